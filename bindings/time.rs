// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks, and deadlines.
//!
//! Would extend: `rust/kernel/time.rs`, which converts to jiffies and cannot read them.
//!
//! C header: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h)

use kernel::time::{
    Instant,
    Monotonic,
    Msecs, //
};

use crate::bindings;

/// A time limit that several waits share.
#[derive(Clone, Copy)]
pub struct Deadline {
    began: Instant<Monotonic>,
    timeout: Msecs,
}

impl Deadline {
    /// A deadline in `timeout` milliseconds. Any context.
    pub fn after(timeout: Msecs) -> Self {
        Self {
            began: Instant::now(),
            timeout,
        }
    }

    /// The milliseconds that are left; 0 after the deadline. Any context.
    pub fn left(&self) -> Msecs {
        let elapsed = Msecs::try_from(self.began.elapsed().as_millis()).unwrap_or(Msecs::MAX);
        self.timeout.max(elapsed) - elapsed
    }
}

/// The time in jiffies, as a machine word, which wraps around. One read of memory. Any context.
#[inline]
pub fn now() -> u64 {
    // SAFETY: `jiffies` always exists, and is read in one access.
    unsafe { (&raw const bindings::jiffies).read_volatile() as u64 }
}

/// The time since the machine was started in ns, without the time in which it slept
/// (`CLOCK_MONOTONIC`). Any context.
#[inline]
pub fn monotonic_ns() -> u64 {
    // SAFETY: The function may be called in any context but an NMI, in which no function of these
    // modules runs. The time is not negative.
    unsafe { bindings::ktime_get() as u64 }
}
