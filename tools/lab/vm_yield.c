// SPDX-License-Identifier: GPL-2.0
/*
 * Gives the host's processor away when an emulated one waits for a lock.
 *
 * A plugin of QEMU's (-plugin vm_yield.so), for machines with a thread for
 * each processor. Where there are more of these than processors of the host, a
 * processor that holds a spinlock may be off the host's while another one spins
 * for all of its own slice of time. What spins says so with the instruction
 * "pause", after which the thread lets another one go first.
 */

#include <sched.h>
#include <string.h>

#include "vm_plugin.h"

static const uint8_t pause_code[] = { 0xf3, 0x90 };

static void spinning(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	sched_yield();
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *last;
	uint8_t code[sizeof(pause_code)];

	(void)id;
	if (!count)
		return;
	/* The emulator leaves the code that it made after a pause, so that a block ends there. */
	last = qemu_plugin_tb_get_insn(tb, count - 1);
	if (qemu_plugin_insn_size(last) == sizeof(code) &&
	    qemu_plugin_insn_data(last, code, sizeof(code)) == sizeof(code) &&
	    !memcmp(code, pause_code, sizeof(code)))
		qemu_plugin_register_vcpu_insn_exec_cb(last, spinning, NO_REGISTERS, NULL);
}

API int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	(void)argc;
	(void)argv;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
