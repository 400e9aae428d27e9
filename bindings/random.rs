// SPDX-License-Identifier: GPL-2.0

//! Random numbers.
//!
//! Would be: `rust/kernel/random.rs`.
//!
//! C header: [`include/linux/random.h`](srctree/include/linux/random.h)

use crate::bindings;

/// Fills `bytes` with random bytes. Any context.
pub fn fill(bytes: &mut [u8]) {
    // SAFETY: The slice is valid for writes of its length.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
}

/// A random UUID (version 4), in wire order. Any context.
pub fn uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    fill(&mut uuid);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// A random number of 64 bits. Any context.
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A random number below `limit`; 0 if `limit` is 0. Any context.
///
/// Good enough for delays: all numbers have the same probability, up to one part in `2^32 / limit`.
pub fn u32_below(limit: u32) -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    let random = u64::from(u32::from_ne_bytes(bytes));
    // The product of two 32-bit numbers, shifted, is less than `limit`.
    (random * u64::from(limit) >> 32) as u32
}
