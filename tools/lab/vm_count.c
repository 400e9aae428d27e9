// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the instructions that an emulated machine executes, by address.
 *
 * A plugin of QEMU's (-plugin vm_count.so,socket=PATH). It listens on a Unix
 * socket, where a byte 'r' sets all counts to zero and a byte 'd' asks for
 * them: a struct found for each block of instructions that was executed, ended
 * by one of zeros. Everything below the upper half of the address space (user
 * space) is one block at 0, with as many executions as instructions.
 *
 * The machine is to run with one thread for all processors (-icount).
 */

#include <stdlib.h>

#include "vm_plugin.h"
#include "vm_plugin_socket.h"
#include "vm_plugin_x86.h"

/* Kernel blocks; a machine that boots and runs fio has some 150000. */
#define MAX_BLOCKS (1u << 20)

struct block {
	uint64_t address;
	uint32_t instructions;
	/* How many of these lock the bus, are fences, and switch interrupts off. */
	uint16_t locks;
	uint16_t fences;
	uint16_t masks;
};

struct found {
	uint64_t address;
	uint64_t executions;
	uint32_t instructions;
	uint16_t locks;
	uint16_t fences;
	uint16_t masks;
	uint16_t unused[3];
};

/* Block 0 is user space, whose count is of instructions. */
static struct block blocks[MAX_BLOCKS];
static uint32_t num_blocks = 1;
/* Numbers of blocks by hash; 0 is free. */
static uint32_t table[2 * MAX_BLOCKS];
/* Only the one thread of the processors adds to them. */
static uint64_t counts[MAX_BLOCKS];

static int is_same(const struct block *one, const struct block *other)
{
	return one->address == other->address && one->instructions == other->instructions &&
	       one->locks == other->locks && one->fences == other->fences &&
	       one->masks == other->masks;
}

/* The number of a block, 0 if there are too many. */
static uint32_t number_of(const struct block *block)
{
	uint64_t hash = (block->address * 31 + block->instructions) * 0x9e3779b97f4a7c15u;
	uint32_t place = hash >> (64 - 21);

	while (table[place]) {
		if (is_same(&blocks[table[place]], block))
			return table[place];
		place = (place + 1) % (2 * MAX_BLOCKS);
	}
	if (num_blocks == MAX_BLOCKS)
		return 0;
	blocks[num_blocks] = *block;
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

static struct block look_at(struct qemu_plugin_tb *tb)
{
	struct block found = {
		.address = qemu_plugin_tb_vaddr(tb), .instructions = qemu_plugin_tb_n_insns(tb),
	};
	uint8_t bytes[16];

	for (size_t index = 0; index < found.instructions; index++) {
		const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, index);
		struct x86 kind = x86_of(bytes, qemu_plugin_insn_data(insn, bytes, sizeof(bytes)));

		found.locks += kind.locks;
		found.fences += kind.fences;
		found.masks += kind.masks;
	}
	return found;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	uint64_t instructions = qemu_plugin_tb_n_insns(tb);
	uint32_t number = 0;

	(void)id;
	if (qemu_plugin_tb_vaddr(tb) >> 63) {
		struct block block = look_at(tb);

		pthread_mutex_lock(&lock);
		number = number_of(&block);
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
	struct found *found = calloc(num_blocks + 1, sizeof(*found));
	size_t used = 0;
	int error;

	if (!found)
		return -1;
	for (uint32_t number = 0; number < num_blocks; number++) {
		const struct block *block = &blocks[number];

		if (!counts[number])
			continue;
		found[used++] = (struct found){
			.address = block->address, .executions = counts[number],
			.instructions = number ? block->instructions : 1, .locks = block->locks,
			.fences = block->fences, .masks = block->masks,
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
