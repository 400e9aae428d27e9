/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the plugins of the emulator use of its interface, of version 4.
 *
 * Debian packages no header for plugins; https://www.qemu.org/docs/ describes it.
 */

#ifndef VM_PLUGIN_H
#define VM_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;

typedef uint64_t plugin_id;
typedef void (*tb_trans_cb)(plugin_id id, struct qemu_plugin_tb *tb);
typedef void (*exec_cb)(unsigned int vcpu, void *data);
typedef void (*vcpu_cb)(plugin_id id, unsigned int vcpu);
typedef uint32_t mem_info;
typedef void (*mem_cb)(unsigned int vcpu, mem_info info, uint64_t vaddr, void *data);

enum { NO_REGISTERS = 0, READS_REGISTERS = 1 };
enum { READS = 1, WRITES = 2, READS_AND_WRITES = 3 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t len);
void qemu_plugin_register_vcpu_init_cb(plugin_id id, vcpu_cb cb);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, tb_trans_cb cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, exec_cb cb,
					  int registers, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_cb cb,
					    int registers, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, mem_cb cb, int registers,
				      int which, void *data);
_Bool qemu_plugin_mem_is_store(mem_info info);
unsigned int qemu_plugin_mem_size_shift(mem_info info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(mem_info info, uint64_t vaddr);
_Bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

API int qemu_plugin_version = 4;
int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

#endif
