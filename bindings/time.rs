// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks, and waits that have to be over by some time.
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

/// The time by which several waits have to be over together.
#[derive(Clone, Copy)]
pub struct Deadline {
    began: Instant<Monotonic>,
    timeout: Msecs,
}

impl Deadline {
    /// In `timeout` milliseconds. Any context.
    pub fn after(timeout: Msecs) -> Self {
        Self {
            began: Instant::now(),
            timeout,
        }
    }

    /// How many milliseconds are left, 0 if none. Any context.
    pub fn left(&self) -> Msecs {
        let elapsed = Msecs::try_from(self.began.elapsed().as_millis()).unwrap_or(Msecs::MAX);
        self.timeout.max(elapsed) - elapsed
    }
}

/// The time in ticks, in a machine word, which wraps around. One read of memory; any context.
#[inline]
pub fn now() -> u64 {
    // SAFETY: The kernel's clock is always there; it is read in one access.
    unsafe { (&raw const bindings::jiffies).read_volatile() as u64 }
}

/// The time since the machine was started in ns, without the time in which it slept
/// (`CLOCK_MONOTONIC`). Any context.
#[inline]
pub fn monotonic_ns() -> u64 {
    // SAFETY: The function may be called anywhere but in an NMI, where no function of a module here
    // runs. The time is not negative.
    unsafe { bindings::ktime_get() as u64 }
}
