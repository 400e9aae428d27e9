// SPDX-License-Identifier: GPL-2.0

//! Copies to and from memory that a device, a peer or another CPU may access at the same time.
//!
//! Would be: a copy of bytes that are atomic one by one, in `rust/kernel/sync/atomic/`.
//!
//! No reference to such memory is ever made. It is only accessed by the functions here, of which
//! each access is a volatile one of at most a word, or an instruction of the kernel's `memcpy()` or
//! `copy_page()`, which are written in assembly (and are function calls for the compiler, with
//! KASAN too). So the compiler can neither split nor repeat an access, nor assume anything of what
//! it found, and an access that races with another one is like a relaxed atomic access of each
//! byte: the copy is any mixture of the old bytes and the new ones. Code that needs more, namely
//! that no other copy of these modules runs at the same time, has to own the memory.

use crate::bindings;

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

/// Copies `len` bytes. Any context.
///
/// # Safety
///
/// The ranges are valid for that, do not overlap, and no reference to bytes of a range exists that
/// the copy (or, for the source, somebody else) changes.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the function's requirement.
    unsafe { bindings::rnbd_helper_memcpy(to.cast(), from.cast(), len) };
}

/// Copies a few `bytes` to `to`, without a function call. Any context.
///
/// # Safety
///
/// `to` is valid for writes of that many bytes; no reference to them exists.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let (mut to, mut bytes) = (to, bytes);
    if to.addr() % WORD == 0 {
        while let Some((word, rest)) = bytes.split_first_chunk() {
            // SAFETY: By the function's requirement; it is aligned, as whole words precede it.
            unsafe {
                to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word));
                to = to.add(WORD);
            }
            bytes = rest;
        }
        if let Some((half, rest)) = bytes.split_first_chunk() {
            // SAFETY: As above.
            unsafe {
                to.cast::<u32>().write_volatile(u32::from_ne_bytes(*half));
                to = to.add(WORD / 2);
            }
            bytes = rest;
        }
    }
    for &byte in bytes {
        // SAFETY: By the function's requirement.
        unsafe {
            to.write_volatile(byte);
            to = to.add(1);
        }
    }
}

/// The word at `from`, read once. Any context.
///
/// # Safety
///
/// `from` is valid for reads of a word, and aligned to one.
#[inline(always)]
pub(crate) unsafe fn load_word(from: *const u8) -> [u8; WORD] {
    // SAFETY: By the function's requirement.
    unsafe { from.cast::<u64>().read_volatile() }.to_ne_bytes()
}
