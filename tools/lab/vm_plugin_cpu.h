/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which processor of a machine runs, where one thread runs all of them (-icount).
 *
 * Blocks are then shared by the processors, and QEMU tells a block's callback
 * the processor that first met it. So the one that executes it is told by its
 * register GS, which leads Linux to the processor's own data. In user space
 * that address waits in the register that SWAPGS exchanges with GS.
 */

#ifndef VM_PLUGIN_CPU_H
#define VM_PLUGIN_CPU_H

#include <stdlib.h>
#include <string.h>

#include "vm_plugin.h"

/* GArray and GByteArray of GLib. */
struct array {
	char *data;
	unsigned int len;
};

struct register_descriptor {
	void *handle;
	const char *name;
	const char *feature;
};

struct array *g_byte_array_new(void);
struct array *g_byte_array_set_size(struct array *array, unsigned int len);
struct array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(void *handle, struct array *to);

#define MAX_CPUS 64

static void *gs_base;
static void *other_gs_base;
static void *stack_pointer;
static struct array *register_value;
static uint64_t cpus[MAX_CPUS];
static unsigned int num_cpus;

static uint64_t read_register(void *handle)
{
	uint64_t found = 0;

	g_byte_array_set_size(register_value, 0);
	if (qemu_plugin_read_register(handle, register_value) == sizeof(found))
		memcpy(&found, register_value->data, sizeof(found));
	return found;
}

/*
 * A number for the processor that runs, below MAX_CPUS; for a callback that
 * READS_REGISTERS.
 */
static unsigned int this_cpu(void)
{
	uint64_t base = read_register(gs_base);
	unsigned int cpu = 0;

	if (!(base >> 63))
		base = read_register(other_gs_base);
	while (cpu < num_cpus && cpus[cpu] != base)
		cpu++;
	if (cpu == MAX_CPUS)
		return MAX_CPUS - 1;
	if (cpu == num_cpus)
		cpus[num_cpus++] = base;
	return cpu;
}

static void find_registers(plugin_id id, unsigned int vcpu)
{
	const struct array *found;
	const struct register_descriptor *one;

	(void)id;
	if (vcpu)
		return;
	found = qemu_plugin_get_registers();
	one = (const struct register_descriptor *)found->data;
	for (unsigned int index = 0; index < found->len; index++) {
		if (!strcmp(one[index].name, "gs_base"))
			gs_base = one[index].handle;
		else if (!strcmp(one[index].name, "k_gs_base"))
			other_gs_base = one[index].handle;
		else if (!strcmp(one[index].name, "rsp"))
			stack_pointer = one[index].handle;
	}
	if (!gs_base || !other_gs_base || !stack_pointer)
		abort();
}

/* Has the processors told apart. */
static void tell_processors(plugin_id id)
{
	register_value = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, find_registers);
}

#endif
