// SPDX-License-Identifier: GPL-2.0

//! Copies to and from memory that a device, a peer or another CPU may access at the same time.
//!
//! Would be: a copy in which each byte is atomic, in `rust/kernel/sync/atomic/`.
//!
//! No reference to such memory is ever made. Only the functions of this module access it: by
//! volatile accesses of at most a word, or by the kernel's `memcpy()` or `copy_page()`. These two
//! are written in assembly, and are function calls for the compiler, also with KASAN. So the
//! compiler can neither split nor repeat an access, nor assume anything about the value that was
//! read. An access that races with another one is like a relaxed atomic access of each byte: the
//! copy is any mixture of old and new bytes. Code that must not race with other copies has to own
//! the memory.

use crate::bindings;

/// The size of a word in bytes.
const WORD: usize = size_of::<u64>();

/// Copies `len` bytes. Any context.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, and the ranges do not overlap. No
/// reference exists to bytes that the copy changes, or to bytes of the source that other code may
/// change.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: By the function's requirement.
    unsafe { bindings::rnbd_helper_memcpy(to.cast(), from.cast(), len) };
}

/// Copies a few `bytes` to `to`, without a function call. Any context.
///
/// # Safety
///
/// `to` is valid for writes of `bytes.len()` bytes, and no reference to them exists.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let (mut to, mut bytes) = (to, bytes);
    if to.addr() % WORD == 0 {
        while let Some((word, rest)) = bytes.split_first_chunk() {
            // SAFETY: By the function's requirement. `to` is aligned, as only whole words precede
            // it.
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
