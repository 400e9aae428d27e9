// SPDX-License-Identifier: GPL-2.0
/*
 * Which cache lines of data an emulated machine's kernel uses: how many for each
 * request, and which of them more than one processor writes.
 *
 * A plugin of QEMU's (-plugin vm_lines.so,socket=PATH), with these commands on a
 * Unix socket. A byte 'w' and a struct wish, followed by as many pairs of
 * addresses (first, behind the last) as it says, begins. A byte 't' asks for a
 * struct totals, a byte 's' ends it and asks for a struct shared for each line
 * that more than one processor has written, ended by one of zeros. If there was
 * no room for all lines, the connection is closed instead. A byte 'f', after the
 * end, asks for a struct first for each block of code of the modules that was
 * the first of these modules to use a line for a request, ended by one of zeros.
 *
 * A request begins where one of the addresses of the wish is executed. What is
 * done before the first one is not counted, nor what is done after the last one
 * that was asked for.
 *
 * The machine is to run with one thread for all processors (-icount), see
 * vm_plugin_cpu.h.
 */

#include <stdlib.h>

#include "vm_plugin.h"
#include "vm_plugin_cpu.h"
#include "vm_plugin_memory.h"
#include "vm_plugin_socket.h"

#define MAX_BLOCKS (1u << 21)
#define MAX_RANGES 256
#define NUM_BEGINS 2
/* A power of two. */
#define MAX_LINES (1u << 21)
/* Bytes of a stack of Linux, of a task and of interrupts, to which it is aligned. */
#define STACK_SIZE (16u << 10)

struct wish {
	/* Where requests begin; 0 for none. */
	uint64_t begins[NUM_BEGINS];
	/* How many are looked at. */
	uint64_t requests;
	/* How many ranges of addresses follow: the modules that are looked at for themselves. */
	uint64_t ranges;
};

struct totals {
	/* How many requests were looked at. */
	uint64_t requests;
	/* Lines that the kernel, and those modules, have used, each once for a request. */
	uint64_t kernel;
	uint64_t modules;
	/* How often a line was written by another processor than before. */
	uint64_t handovers;
};

struct shared {
	/* One of its addresses. */
	uint64_t address;
	uint64_t writes;
	uint64_t handovers;
	/* The code that has written it last when it was handed over, and before that. */
	uint64_t code;
	uint64_t code_before;
};

struct first {
	/* Where the block begins. */
	uint64_t code;
	/* Lines that it used first of all these modules' code, each once for a request, and those of them on a stack. */
	uint64_t lines;
	uint64_t of_stack;
};

struct block {
	uint64_t address;
	uint64_t lines;
	uint64_t of_stack;
	uint8_t is_of_module;
	uint8_t begins_request;
};

struct line {
	/* By its physical address; 0 for a place that is not used. */
	uint64_t number;
	struct shared found;
	uint64_t last_code;
	/* The last request by which it was used. */
	uint32_t request;
	uint32_t request_of_module;
	uint8_t is_written;
	uint8_t last_writer;
};

static struct block *blocks;
static uint32_t num_blocks;
static struct line *table;
static uint32_t num_lines;
static struct wish wish;
static uint64_t ranges[MAX_RANGES][2];
static struct totals totals;
/* The number of the present request, from 1 on. */
static uint32_t request;
static unsigned int this;
/* The stack pointer where the present block of a module begins. */
static uint64_t stack;
static int tracing;
static int is_full;

static int is_of_module(uint64_t address)
{
	for (uint64_t index = 0; index < wish.ranges; index++)
		if (address >= ranges[index][0] && address < ranges[index][1])
			return 1;
	return 0;
}

static int begins_request(uint64_t address)
{
	for (unsigned int index = 0; index < NUM_BEGINS; index++)
		if (address == wish.begins[index])
			return 1;
	return 0;
}

/* The line of this number; NULL if there are too many. */
static struct line *line_at(uint64_t number)
{
	uint32_t place = number * 0x9e3779b97f4a7c15u >> 43;

	while (table[place].number && table[place].number != number)
		place = (place + 1) % MAX_LINES;
	if (!table[place].number) {
		if (num_lines == MAX_LINES / 4 * 3) {
			is_full = 1;
			return NULL;
		}
		num_lines++;
		table[place].number = number;
	}
	return &table[place];
}

static int is_looked_at(void)
{
	return tracing && request && request <= wish.requests;
}

static void executed(unsigned int vcpu, void *data)
{
	const struct block *block = data;

	(void)vcpu;
	if (!tracing)
		return;
	request += block->begins_request;
	if (!is_looked_at())
		return;
	this = this_cpu();
	if (block->is_of_module)
		stack = read_register(stack_pointer);
}

/* A line of the modules' is used for the first time for this request. */
static void used_first(struct block *block, uint64_t vaddr)
{
	totals.modules++;
	block->lines++;
	/* As stacks are aligned; the pointer may be at the very end. */
	block->of_stack += ((stack - 1) ^ vaddr) < STACK_SIZE;
}

static void written(struct line *line, uint64_t vaddr, uint64_t code)
{
	line->found.writes++;
	if (line->is_written && line->last_writer != this) {
		line->found.handovers++;
		line->found.code = code;
		line->found.code_before = line->last_code;
		totals.handovers++;
	}
	line->is_written = 1;
	line->last_writer = this;
	line->last_code = code;
	line->found.address = vaddr;
}

static void accessed(unsigned int vcpu, mem_info info, uint64_t vaddr, void *data)
{
	struct block *block = data;
	struct line *line;
	uint64_t number;

	(void)vcpu;
	if (!is_looked_at())
		return;
	number = line_of(info, vaddr);
	line = number ? line_at(number) : NULL;
	if (!line)
		return;
	if (line->request != request) {
		line->request = request;
		totals.kernel++;
	}
	if (block->is_of_module && line->request_of_module != request) {
		line->request_of_module = request;
		used_first(block, vaddr);
	}
	if (qemu_plugin_mem_is_store(info))
		written(line, vaddr, block->address);
}

static void look_at(struct block *block)
{
	block->is_of_module = is_of_module(block->address);
	block->begins_request = begins_request(block->address);
	block->lines = 0;
	block->of_stack = 0;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block = NULL;

	(void)id;
	if (!(address >> 63))
		return;
	pthread_mutex_lock(&lock);
	if (num_blocks < MAX_BLOCKS) {
		block = &blocks[num_blocks++];
		block->address = address;
		look_at(block);
	} else {
		is_full = 1;
	}
	pthread_mutex_unlock(&lock);
	if (!block)
		return;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, READS_REGISTERS, block);
	for (size_t index = 0; index < count; index++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, index), accessed,
						 NO_REGISTERS, READS_AND_WRITES, block);
}

static int begin(int client)
{
	tracing = 0;
	if (receive_all(client, &wish, sizeof(wish)) || wish.ranges > MAX_RANGES ||
	    receive_all(client, ranges, wish.ranges * sizeof(*ranges))) {
		wish.ranges = 0;
		return -1;
	}
	for (uint32_t number = 0; number < num_blocks; number++)
		look_at(&blocks[number]);
	memset(table, 0, MAX_LINES * sizeof(*table));
	memset(&totals, 0, sizeof(totals));
	num_lines = 0;
	request = 0;
	tracing = 1;
	return send_all(client, "w", 1);
}

static int send_totals(int client)
{
	/* Behind them one of zeros. */
	struct totals found[2] = { totals };

	found[0].requests = request < wish.requests ? request : wish.requests;
	return send_all(client, found, sizeof(found));
}

static int end(int client)
{
	struct shared *found = calloc(num_lines + 1, sizeof(*found));
	size_t used = 0;
	int error;

	tracing = 0;
	if (!found || is_full) {
		free(found);
		return -1;
	}
	for (uint32_t place = 0; place < MAX_LINES; place++)
		if (table[place].found.handovers)
			found[used++] = table[place].found;
	error = send_all(client, found, (used + 1) * sizeof(*found));
	free(found);
	return error;
}

static int send_first(int client)
{
	struct first none = { 0 };

	for (uint32_t number = 0; number < num_blocks; number++) {
		const struct block *block = &blocks[number];
		struct first one = { block->address, block->lines, block->of_stack };

		if (one.lines && send_all(client, &one, sizeof(one)))
			return -1;
	}
	return send_all(client, &none, sizeof(none));
}

static int carry_out(int client, char command)
{
	switch (command) {
	case 'w':
		return begin(client);
	case 't':
		return send_totals(client);
	case 's':
		return end(client);
	case 'f':
		return send_first(client);
	default:
		return -1;
	}
}

API int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	blocks = calloc(MAX_BLOCKS, sizeof(*blocks));
	table = calloc(MAX_LINES, sizeof(*table));
	if (!blocks || !table || begin_to_serve(argc, argv))
		return -1;
	tell_processors(id);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
