// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the instructions that an emulated machine executes, by address.
 *
 * A plugin of QEMU's (-plugin vm_count.so,socket=PATH). It listens on a Unix
 * socket, where a byte 'r' sets all counts to zero and a byte 'd' asks for
 * them: each block of instructions that was executed, as three 64-bit numbers
 * (address, instructions in it, executions), ended by three zeros. Everything
 * below the upper half of the address space (user space) is one block at 0.
 *
 * The machine is to run with one thread for all processors (-icount).
 */

#include <stdlib.h>

#include "vm_plugin.h"
#include "vm_plugin_socket.h"

/* Kernel blocks; a machine that boots and runs fio has some 150000. */
#define MAX_BLOCKS (1u << 20)

struct block {
	uint64_t address;
	uint64_t instructions;
};

/* Block 0 is user space, whose count is of instructions. */
static struct block blocks[MAX_BLOCKS];
static uint32_t num_blocks = 1;
/* Numbers of blocks by hash; 0 is free. */
static uint32_t table[2 * MAX_BLOCKS];
/* Only the one thread of the processors adds to them. */
static uint64_t counts[MAX_BLOCKS];

/* The number of a block, 0 if there are too many. */
static uint32_t number_of(uint64_t address, uint64_t instructions)
{
	uint64_t hash = (address * 31 + instructions) * 0x9e3779b97f4a7c15u;
	uint32_t place = hash >> (64 - 21);

	while (table[place]) {
		struct block *block = &blocks[table[place]];

		if (block->address == address && block->instructions == instructions)
			return table[place];
		place = (place + 1) % (2 * MAX_BLOCKS);
	}
	if (num_blocks == MAX_BLOCKS)
		return 0;
	blocks[num_blocks] = (struct block){ address, instructions };
	table[place] = num_blocks;
	return num_blocks++;
}

static void executed(unsigned int vcpu, void *count)
{
	(void)vcpu;
	++*(uint64_t *)count;
}

static void executed_user(unsigned int vcpu, void *instructions)
{
	(void)vcpu;
	counts[0] += (uintptr_t)instructions;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint64_t instructions = qemu_plugin_tb_n_insns(tb);
	uint32_t number = 0;

	(void)id;
	if (address >> 63) {
		pthread_mutex_lock(&lock);
		number = number_of(address, instructions);
		pthread_mutex_unlock(&lock);
	}
	if (number)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS,
						     &counts[number]);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(tb, executed_user, NO_REGISTERS,
						     (void *)(uintptr_t)instructions);
}

static int dump(int to)
{
	uint64_t (*found)[3] = calloc(num_blocks + 1, sizeof(*found));
	size_t used = 0;
	int error;

	if (!found)
		return -1;
	for (uint32_t number = 0; number < num_blocks; number++) {
		if (!counts[number])
			continue;
		found[used][0] = blocks[number].address;
		found[used][1] = number ? blocks[number].instructions : 1;
		found[used][2] = counts[number];
		used++;
	}
	error = send_all(to, found, (used + 1) * sizeof(*found));
	free(found);
	return error;
}

static int carry_out(int client, char command)
{
	switch (command) {
	case 'r':
		memset(counts, 0, num_blocks * sizeof(*counts));
		return send_all(client, "r", 1);
	case 'd':
		return dump(client);
	default:
		return -1;
	}
}

API int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	if (begin_to_serve(argc, argv))
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
