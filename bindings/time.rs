// SPDX-License-Identifier: GPL-2.0

//! The kernel's coarse clock.
//!
//! Would extend: `rust/kernel/time.rs`, which converts to jiffies and cannot read them.
//!
//! C header: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h)

use crate::bindings;

/// The time in ticks, in a machine word, which wraps around. One read of memory; any context.
#[inline]
pub fn now() -> u64 {
    // SAFETY: The kernel's clock is always there; it is read in one access.
    unsafe { (&raw const bindings::jiffies).read_volatile() as u64 }
}
