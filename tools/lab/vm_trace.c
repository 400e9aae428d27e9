// SPDX-License-Identifier: GPL-2.0
/*
 * Writes down in which order an emulated machine executes some of its code.
 *
 * A plugin of QEMU's (-plugin vm_trace.so,socket=PATH). It listens on a Unix
 * socket, where a byte 'w', a 64-bit number and as many pairs of addresses
 * (first, behind the last) begin a trace of the blocks of instructions in these
 * ranges, and a byte 's' ends it and asks for it: a struct step for each block
 * that was executed, ended by one of zeros. If there was no room for all of it,
 * the connection is closed instead.
 *
 * Of a block it says how many of its instructions lock the bus (those with a
 * lock prefix, and exchanges with memory, which need none), and how its last
 * one leaves it.
 *
 * The machine is to run with one thread for all processors (-icount), see
 * vm_plugin_cpu.h.
 */

#include <stdlib.h>

#include "vm_plugin.h"
#include "vm_plugin_cpu.h"
#include "vm_plugin_socket.h"
#include "vm_plugin_x86.h"

#define MAX_BLOCKS (1u << 21)
#define MAX_STEPS (1u << 22)
#define MAX_RANGES 256

struct block {
	uint64_t address;
	uint32_t bytes;
	uint8_t locked;
	uint8_t leaving;
	uint8_t watched;
};

struct step {
	uint64_t address;
	uint32_t bytes;
	uint8_t locked;
	uint8_t leaving;
	uint8_t cpu;
	uint8_t unused;
	/* Blocks of the kernel outside of the ranges since the last step, of any processor. */
	uint64_t others;
};

static struct block blocks[MAX_BLOCKS];
static uint32_t num_blocks;
static struct step *steps;
static uint32_t num_steps;
static uint64_t others;
static uint64_t ranges[MAX_RANGES][2];
static uint64_t num_ranges;
static int tracing;
static int is_full;

static int is_watched(uint64_t address)
{
	for (uint64_t index = 0; index < num_ranges; index++)
		if (address >= ranges[index][0] && address < ranges[index][1])
			return 1;
	return 0;
}

static void executed(unsigned int vcpu, void *data)
{
	const struct block *block = data;

	(void)vcpu;
	if (!tracing)
		return;
	if (!block->watched) {
		others++;
	} else if (num_steps < MAX_STEPS) {
		steps[num_steps++] = (struct step){
			.address = block->address, .bytes = block->bytes, .locked = block->locked,
			.leaving = block->leaving, .cpu = this_cpu(), .others = others,
		};
		others = 0;
	} else {
		is_full = 1;
	}
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	struct block found = { .address = qemu_plugin_tb_vaddr(tb) };
	size_t count = qemu_plugin_tb_n_insns(tb);
	uint8_t bytes[16];

	(void)id;
	if (!(found.address >> 63))
		return;
	for (size_t index = 0; index < count; index++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, index);
		size_t len = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));

		if (len) {
			struct x86 kind = x86_of(bytes, len);

			found.locked += kind.locks;
			found.leaving = kind.leaving;
		}
		found.bytes += qemu_plugin_insn_size(insn);
	}
	pthread_mutex_lock(&lock);
	found.watched = is_watched(found.address);
	if (num_blocks < MAX_BLOCKS) {
		blocks[num_blocks] = found;
		qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, READS_REGISTERS,
						     &blocks[num_blocks++]);
	} else {
		is_full = 1;
	}
	pthread_mutex_unlock(&lock);
}

static int begin(int client)
{
	if (receive_all(client, &num_ranges, sizeof(num_ranges)) || num_ranges > MAX_RANGES ||
	    receive_all(client, ranges, num_ranges * sizeof(*ranges))) {
		num_ranges = 0;
		return -1;
	}
	for (uint32_t number = 0; number < num_blocks; number++)
		blocks[number].watched = is_watched(blocks[number].address);
	num_steps = 0;
	others = 0;
	tracing = 1;
	return send_all(client, "w", 1);
}

static int end(int client)
{
	tracing = 0;
	memset(&steps[num_steps], 0, sizeof(*steps));
	return is_full || send_all(client, steps, (num_steps + 1) * sizeof(*steps));
}

static int carry_out(int client, char command)
{
	switch (command) {
	case 'w':
		return begin(client);
	case 's':
		return end(client);
	default:
		return -1;
	}
}

API int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	steps = calloc(MAX_STEPS + 1, sizeof(*steps));
	if (!steps || begin_to_serve(argc, argv))
		return -1;
	tell_processors(id);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
