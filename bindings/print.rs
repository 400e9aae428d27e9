// SPDX-License-Identifier: GPL-2.0

//! Log lines that a peer or a user can cause.
//!
//! Would extend: `rust/kernel/print.rs`.

use kernel::{
    sync::atomic::{
        ordering,
        Atomic, //
    },
    time::msecs_to_jiffies, //
};

use crate::time;

/// Limits how often a line is logged: ten times in five seconds, as the kernel's
/// `printk_ratelimit` does, but silent about what it leaves out.
///
/// Everything that a peer or a user can cause goes through one of these, each place in the code
/// with its own; see [`pr_err_ratelimited!`](crate::pr_err_ratelimited).
pub struct RateLimit {
    /// When the current interval began, in jiffies.
    begin: Atomic<usize>,
    /// The lines of the current interval.
    lines: Atomic<i32>,
}

impl RateLimit {
    const INTERVAL_MS: u32 = 5000;
    const BURST: i32 = 10;

    /// Makes a limit that allows a first burst.
    pub const fn new() -> Self {
        Self {
            begin: Atomic::new(0),
            lines: Atomic::new(0),
        }
    }

    /// Whether one more line may be logged now. Any context.
    ///
    /// Callers that find the interval over at the same time may let a few lines more through.
    pub fn allow(&self) -> bool {
        let now = time::now() as usize;
        let begin = self.begin.load(ordering::Relaxed);
        if begin == 0 || now.wrapping_sub(begin) >= msecs_to_jiffies(Self::INTERVAL_MS) {
            self.begin.store(now.max(1), ordering::Relaxed);
            self.lines.store(1, ordering::Relaxed);
            return true;
        }
        // Bounded, so that the counter does not wrap however many lines there are.
        self.lines.load(ordering::Relaxed) < Self::BURST
            && self.lines.fetch_add(1, ordering::Relaxed) < Self::BURST
    }
}

/// Does something, a `pr_` macro say, unless this place has done so too often; see
/// [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! ratelimited {
    ($do:expr) => {{
        static LIMIT: $crate::print::RateLimit = $crate::print::RateLimit::new();
        if LIMIT.allow() {
            $do;
        }
    }};
}

/// `pr_err!` for what a peer or a user can cause; see [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_err_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_err!($($arg)*))
    };
}

/// `pr_warn!` for what a peer or a user can cause; see [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_warn!($($arg)*))
    };
}

/// `pr_info!` for what a peer or a user can cause; see [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_info!($($arg)*))
    };
}
