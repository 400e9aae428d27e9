/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The smallest virtual machine that writes for ever: a boot sector. It writes the numbers 1, 2, 3... to its disk,
 * each over a sector of its own of 1024, and prints a number in eight hexadecimal digits when it is written. When a
 * write fails, it prints `error' and stops.
 *
 * A number is written to sector 8 + number % 1024, as often as a sector has room for it.
 */
	.code16
	.globl _start
_start:
	cli
	xor %ax, %ax
	mov %ax, %ds
	mov %ax, %es
	mov %ax, %ss
	mov $0x7c00, %sp
	sti
	cld
	mov %dl, drive
again:
	incl number
	mov number, %eax
	mov $buffer, %di
	mov $128, %cx
	rep stosl
	and $1023, %eax
	add $8, %eax
	mov %eax, sector
	/* The BIOS: extended write. */
	mov $packet, %si
	mov drive, %dl
	mov $0x4300, %ax
	int $0x13
	jc failed
	mov number, %ebx
	mov $8, %cx
digit:
	rol $4, %ebx
	mov %bl, %al
	and $15, %al
	add $'0', %al
	cmp $'9', %al
	jbe 1f
	add $('a' - '0' - 10), %al
1:	call print
	loop digit
	mov $'\n', %al
	call print
	jmp again
failed:
	mov $message, %si
2:	lodsb
	test %al, %al
	jz 3f
	call print
	jmp 2b
3:	cli
	hlt
	jmp 3b
	/* A character in al to the serial port, when that has room. */
print:
	push %ax
	mov $0x3fd, %dx
4:	in %dx, %al
	test $0x20, %al
	jz 4b
	pop %ax
	mov $0x3f8, %dx
	out %al, %dx
	ret

message:
	.asciz "error\n"
drive:
	.byte 0
	.balign 4
number:
	.long 0
packet:
	.byte 16, 0
	.word 1
	.word buffer, 0
sector:
	.long 0, 0
	.org 510
	.word 0xaa55
	.set buffer, 0x8000
