/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What an x86 instruction is by its bytes, as far as the plugins want to know.
 */

#ifndef VM_PLUGIN_X86_H
#define VM_PLUGIN_X86_H

#include <stddef.h>
#include <stdint.h>

/* How an instruction leaves a block. */
enum leaving { GOES_ON, CALLS, JUMPS, RETURNS };

struct x86 {
	/* It has a lock prefix, or is an exchange with memory, which needs none. */
	uint8_t locks;
	/* It is a fence: lfence, mfence or sfence. */
	uint8_t fences;
	/* It switches interrupts off: cli. */
	uint8_t masks;
	/* An enum leaving. */
	uint8_t leaving;
};

/* The places of an opcode's first byte and of the byte behind it. */
static inline size_t x86_opcode(const uint8_t *byte, size_t len, uint8_t *has_lock)
{
	size_t at = 0;

	while (at + 1 < len && (byte[at] == 0x66 || byte[at] == 0x67 || byte[at] == 0x2e ||
				byte[at] == 0x36 || byte[at] == 0x3e || byte[at] == 0x26 ||
				byte[at] == 0x64 || byte[at] == 0x65 || byte[at] == 0xf2 ||
				byte[at] == 0xf3 || byte[at] == 0xf0))
		*has_lock |= byte[at++] == 0xf0;
	if (at + 1 < len && (byte[at] & 0xf0) == 0x40)
		at++;
	return at;
}

static inline struct x86 x86_of(const uint8_t *byte, size_t len)
{
	struct x86 found = { .leaving = GOES_ON };
	size_t at;

	if (!len)
		return found;
	at = x86_opcode(byte, len, &found.locks);
	if (byte[at] == 0xc3 || byte[at] == 0xc2) {
		found.leaving = RETURNS;
	} else if (byte[at] == 0xe8) {
		found.leaving = CALLS;
	} else if (byte[at] == 0xe9 || byte[at] == 0xeb) {
		found.leaving = JUMPS;
	} else if (byte[at] == 0xfa) {
		found.masks = 1;
	} else if (at + 1 < len && byte[at] == 0xff) {
		unsigned int operation = byte[at + 1] >> 3 & 7;

		if (operation == 2 || operation == 3)
			found.leaving = CALLS;
		else if (operation == 4 || operation == 5)
			found.leaving = JUMPS;
	} else if (at + 1 < len && (byte[at] == 0x86 || byte[at] == 0x87)) {
		found.locks |= byte[at + 1] >> 6 != 3;
	} else if (at + 2 < len && byte[at] == 0x0f && byte[at + 1] == 0xae) {
		/* The same opcode with memory is another instruction. */
		found.fences = byte[at + 2] >> 6 == 3 && (byte[at + 2] >> 3 & 7) >= 5;
	}
	return found;
}

#endif
