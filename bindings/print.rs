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

/// Limits how often a line is logged: ten times in five seconds, as the kernel's `printk_ratelimit`
/// does. Unlike that function it does not log how many lines were left out.
///
/// Every log line that a peer or a user can cause must have a limit. Each place in the code has a
/// limit of its own; see [`pr_err_ratelimited!`](crate::pr_err_ratelimited).
pub struct RateLimit {
    /// The time at which the current interval began, in jiffies.
    begin: Atomic<usize>,
    /// The number of lines in the current interval.
    lines: Atomic<i32>,
}

impl RateLimit {
    const INTERVAL_MS: u32 = 5000;
    const BURST: i32 = 10;

    /// Makes a limit at the beginning of an interval.
    pub const fn new() -> Self {
        Self {
            begin: Atomic::new(0),
            lines: Atomic::new(0),
        }
    }

    /// Whether a further line may be logged now. Any context.
    ///
    /// If several callers find at the same time that the interval is over, a few more lines may be
    /// logged.
    pub fn allow(&self) -> bool {
        let now = time::now() as usize;
        let begin = self.begin.load(ordering::Relaxed);
        if begin == 0 || now.wrapping_sub(begin) >= msecs_to_jiffies(Self::INTERVAL_MS) {
            self.begin.store(now.max(1), ordering::Relaxed);
            self.lines.store(1, ordering::Relaxed);
            return true;
        }
        // The counter is not incremented beyond the limit, so it does not wrap around.
        self.lines.load(ordering::Relaxed) < Self::BURST
            && self.lines.fetch_add(1, ordering::Relaxed) < Self::BURST
    }
}

/// Evaluates an expression, for example a `pr_` macro, unless this place in the code has done so
/// too often; see [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! ratelimited {
    ($do:expr) => {{
        static LIMIT: $crate::print::RateLimit = $crate::print::RateLimit::new();
        if LIMIT.allow() {
            $do;
        }
    }};
}

/// `pr_err!` for a line that a peer or a user can cause; see
/// [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_err_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_err!($($arg)*))
    };
}

/// `pr_warn!` for a line that a peer or a user can cause; see
/// [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_warn!($($arg)*))
    };
}

/// `pr_info!` for a line that a peer or a user can cause; see
/// [`RateLimit`](crate::print::RateLimit).
#[macro_export]
macro_rules! pr_info_ratelimited {
    ($($arg:tt)*) => {
        $crate::ratelimited!(::kernel::pr_info!($($arg)*))
    };
}
