// SPDX-License-Identifier: GPL-2.0

//! When to try again to connect a path.

/// The first wait is the longest wait divided by this.
const FIRST_PART: u32 = 64;

/// The number of failed attempts after which the wait is the longest: each failed attempt doubles
/// the wait.
const EARLY_ATTEMPTS: u32 = FIRST_PART.ilog2();

/// The random part of a wait is up to the wait divided by this.
const RANDOM_PART: u32 = 4;

/// The wait in ms before the next attempt, when `failed` attempts have failed in a row.
///
/// The wait doubles with each failed attempt, up to `longest_ms`. `random` chooses how much of it
/// is left out, a quarter at most, so that the paths of many clients do not all come back at once
/// after a server was away. Never zero.
pub const fn delay_ms(failed: u32, longest_ms: u32, random: u32) -> u32 {
    let mut delay = longest_ms;
    if failed <= EARLY_ATTEMPTS {
        // No bit is lost: a 64th of `longest_ms`, or 1, is doubled six times at most.
        let doubled = at_least_1(longest_ms / FIRST_PART).wrapping_shl(failed);
        if doubled < longest_ms {
            delay = doubled;
        }
    }
    // A quarter of a `u32` and one more do not overflow.
    let less = match random.checked_rem((delay / RANDOM_PART).wrapping_add(1)) {
        Some(less) => less,
        None => 0,
    };
    at_least_1(delay.wrapping_sub(less))
}

/// The longest wait in ms while the server is away on purpose.
const DRAIN_DELAY_MS: u32 = 1000;

/// The wait in ms before the next attempt while the server is away on purpose: as long as after
/// many failed attempts, but at most a second, so that the pause is short.
pub const fn drain_delay_ms(longest_ms: u32, random: u32) -> u32 {
    let longest_ms = if longest_ms < DRAIN_DELAY_MS {
        longest_ms
    } else {
        DRAIN_DELAY_MS
    };
    delay_ms(u32::MAX, longest_ms, random)
}

/// The number of times in a row that a path was up for less than `longest_ms`, the longest wait.
/// The path was last up for `up_ms`; `before` is the number before that.
pub const fn short_lived(before: u32, up_ms: i64, longest_ms: u32) -> u32 {
    if up_ms < longest_ms as i64 {
        // The largest number stays: the wait has been the longest for long.
        before.saturating_add(1)
    } else {
        0
    }
}

/// The failures in a row: the attempts that failed, and the times that a path was up only for a
/// short while, except the first such time.
///
/// A server that accepts connections and drops them counts as failing. A path that was lost once
/// may be back at once.
pub const fn failures(failed_attempts: u32, short_lived: u32) -> u32 {
    match short_lived.checked_sub(1) {
        // The largest number stays, as above.
        Some(repeated) => failed_attempts.saturating_add(repeated),
        None => failed_attempts,
    }
}

/// Whether to give up after `failed` failed attempts in a row. `max` attempts may fail; a negative
/// `max` means never to give up.
///
/// The early attempts, with their short waits, do not count, unless `max` is 0. C waits the longest
/// time before each attempt, so an administrator who sets `max` expects the attempts to be as far
/// apart as that.
pub const fn gives_up(failed: u32, max: i32) -> bool {
    if max <= 0 {
        return max == 0;
    }
    // `max` is at most 2^31.
    failed >= EARLY_ATTEMPTS.wrapping_add(max.unsigned_abs())
}

const fn at_least_1(value: u32) -> u32 {
    if value == 0 {
        1
    } else {
        value
    }
}
