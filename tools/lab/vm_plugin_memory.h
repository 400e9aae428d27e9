/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which cache line of the machine's memory an access is to.
 */

#ifndef VM_PLUGIN_MEMORY_H
#define VM_PLUGIN_MEMORY_H

#include "vm_plugin.h"

/* Bytes of a cache line, as a shift. */
#define LINE_SHIFT 6

/* The number of the line by its physical address; 0 if it is no memory. */
static inline uint64_t line_of(mem_info info, uint64_t vaddr)
{
	const struct qemu_plugin_hwaddr *address = qemu_plugin_get_hwaddr(info, vaddr);

	if (!address || qemu_plugin_hwaddr_is_io(address))
		return 0;
	return qemu_plugin_hwaddr_phys_addr(address) >> LINE_SHIFT;
}

#endif
