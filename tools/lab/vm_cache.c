// SPDX-License-Identifier: GPL-2.0
/*
 * Models the caches of an emulated machine's processors, and counts their misses
 * by address of the code.
 *
 * A plugin of QEMU's (-plugin vm_cache.so,socket=PATH). It listens on a Unix
 * socket, where a byte 'r' empties the caches, sets all counts to zero and
 * begins to count, and a byte 'd' ends that and asks for the counts: a struct
 * found for each block of instructions that was executed, ended by one of zeros.
 *
 * Each processor has a first cache for instructions, one for data, and a second
 * one for both. Lines have 64 bytes; the line that was used longest ago makes
 * room. A write takes the line away from the other processors. Nothing is
 * fetched before it is asked for, and no instruction is executed that the
 * program does not come to. Data is told by its physical address, code by where
 * the emulator has it, which is another way to say the same.
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
/* Of all blocks together. */
#define MAX_LINES (1u << 23)
#define MODELLED_CPUS 16

/* The caches' sizes, see vm_cache.py. */
#define WAYS_1 8
#define SETS_1 64
#define WAYS_2 16
#define SETS_2 1024

struct block {
	uint64_t address;
	uint32_t instructions;
	/* Its lines: the first one in `lines`, and how many. */
	uint32_t first_line;
	uint32_t num_lines;
	uint64_t executions;
	uint64_t accesses;
	uint64_t misses_1i;
	uint64_t misses_1d;
	uint64_t misses_2;
};

struct found {
	uint64_t address;
	uint64_t instructions;
	uint64_t accesses;
	uint64_t misses_1i;
	uint64_t misses_1d;
	uint64_t misses_2;
};

/* The lines of each set, the one that was used last at the front; 0 is none. */
struct processor {
	uint64_t code[SETS_1][WAYS_1];
	uint64_t data[SETS_1][WAYS_1];
	uint64_t second[SETS_2][WAYS_2];
};

static struct block *blocks;
static uint32_t num_blocks;
static uint64_t *lines;
static uint32_t num_lines;
static struct processor processors[MODELLED_CPUS];
static unsigned int this;
static int counting;
static int is_full;

/* Uses a line of a set; whether it was there. */
static int use(uint64_t *way, unsigned int ways, uint64_t line)
{
	unsigned int at = 0;
	int is_hit;

	while (at < ways - 1 && way[at] != line)
		at++;
	is_hit = way[at] == line;
	memmove(way + 1, way, at * sizeof(*way));
	way[0] = line;
	return is_hit;
}

/* Takes a line out of a set, if it is there. */
static void take(uint64_t *way, unsigned int ways, uint64_t line)
{
	unsigned int at = 0;

	while (at < ways && way[at] != line)
		at++;
	if (at == ways)
		return;
	memmove(way + at, way + at + 1, (ways - 1 - at) * sizeof(*way));
	way[ways - 1] = 0;
}

static int use_second(uint64_t line)
{
	return use(processors[this].second[line % SETS_2], WAYS_2, line);
}

static void executed(unsigned int vcpu, void *data)
{
	struct block *block = data;

	(void)vcpu;
	if (!counting)
		return;
	this = this_cpu() % MODELLED_CPUS;
	block->executions++;
	for (uint32_t index = 0; index < block->num_lines; index++) {
		uint64_t line = lines[block->first_line + index];

		if (use(processors[this].code[line % SETS_1], WAYS_1, line))
			continue;
		block->misses_1i++;
		block->misses_2 += !use_second(line);
	}
}

static void accessed(unsigned int vcpu, mem_info info, uint64_t vaddr, void *data)
{
	struct block *block = data;
	uint64_t line;

	(void)vcpu;
	if (!counting)
		return;
	line = line_of(info, vaddr);
	if (!line)
		return;
	block->accesses++;
	if (!use(processors[this].data[line % SETS_1], WAYS_1, line)) {
		block->misses_1d++;
		block->misses_2 += !use_second(line);
	}
	if (!qemu_plugin_mem_is_store(info))
		return;
	for (unsigned int cpu = 0; cpu < num_cpus && cpu < MODELLED_CPUS; cpu++) {
		if (cpu == this)
			continue;
		take(processors[cpu].data[line % SETS_1], WAYS_1, line);
		take(processors[cpu].second[line % SETS_2], WAYS_2, line);
	}
}

/* A block with its lines; NULL if there are too many. */
static struct block *new_block(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block = &blocks[num_blocks];
	uint64_t last = 0;

	if (num_blocks == MAX_BLOCKS || num_lines + 2 * count > MAX_LINES)
		return NULL;
	num_blocks++;
	block->address = qemu_plugin_tb_vaddr(tb);
	block->instructions = count;
	block->first_line = num_lines;
	for (size_t index = 0; index < count; index++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, index);
		uint64_t first = (uintptr_t)qemu_plugin_insn_haddr(insn);
		uint64_t end = first + qemu_plugin_insn_size(insn) - 1;

		if (!first)
			continue;
		for (uint64_t line = first >> LINE_SHIFT; line <= end >> LINE_SHIFT; line++) {
			if (line != last)
				lines[num_lines++] = line;
			last = line;
		}
	}
	block->num_lines = num_lines - block->first_line;
	return block;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block;

	(void)id;
	pthread_mutex_lock(&lock);
	block = new_block(tb);
	is_full |= !block;
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
	counting = 0;
	memset(processors, 0, sizeof(processors));
	for (uint32_t number = 0; number < num_blocks; number++) {
		struct block *block = &blocks[number];

		block->executions = block->accesses = 0;
		block->misses_1i = block->misses_1d = block->misses_2 = 0;
	}
	counting = 1;
	return send_all(client, "r", 1);
}

static int end(int to)
{
	struct found *found = calloc(num_blocks + 1, sizeof(*found));
	size_t used = 0;
	int error;

	counting = 0;
	if (!found || is_full) {
		free(found);
		return -1;
	}
	for (uint32_t number = 0; number < num_blocks; number++) {
		const struct block *block = &blocks[number];

		if (!block->executions)
			continue;
		found[used++] = (struct found){
			.address = block->address,
			.instructions = block->instructions * block->executions,
			.accesses = block->accesses, .misses_1i = block->misses_1i,
			.misses_1d = block->misses_1d, .misses_2 = block->misses_2,
		};
	}
	error = send_all(to, found, (used + 1) * sizeof(*found));
	free(found);
	return error;
}

static int carry_out(int client, char command)
{
	switch (command) {
	case 'r':
		return begin(client);
	case 'd':
		return end(client);
	default:
		return -1;
	}
}

API int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	blocks = calloc(MAX_BLOCKS, sizeof(*blocks));
	lines = calloc(MAX_LINES, sizeof(*lines));
	if (!blocks || !lines || begin_to_serve(argc, argv))
		return -1;
	tell_processors(id);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
