// SPDX-License-Identifier: GPL-2.0

//! When to try again to connect a path.

/// The first wait is this part of the longest one.
const FIRST_PART: u32 = 64;

/// The attempts that come before the wait is the longest: it doubles from the first one to that.
const EARLY_ATTEMPTS: u32 = FIRST_PART.ilog2();

/// The part of a wait that is random.
const RANDOM_PART: u32 = 4;

/// The wait in ms before the next attempt, when `failed` attempts have failed in a row.
///
/// It doubles with each of them up to `longest_ms`. Up to a quarter of it, as `random` says, is
/// left out, so that the paths of many clients do not come back all at once after a server was
/// away. Never zero.
pub const fn delay_ms(failed: u32, longest_ms: u32, random: u32) -> u32 {
    let mut delay = longest_ms;
    if failed <= EARLY_ATTEMPTS {
        // No bit is lost: what is doubled so often is that part of the longest wait, or 1.
        let doubled = at_least_1(longest_ms / FIRST_PART).wrapping_shl(failed);
        if doubled < longest_ms {
            delay = doubled;
        }
    }
    // Neither overflows: a part of the wait, and one more.
    let less = match random.checked_rem((delay / RANDOM_PART).wrapping_add(1)) {
        Some(less) => less,
        None => 0,
    };
    at_least_1(delay.wrapping_sub(less))
}

/// The longest wait in ms while the server is away on purpose.
const DRAIN_DELAY_MS: u32 = 1000;

/// The wait in ms before the next attempt while the server is away on purpose: always as after many
/// attempts that have failed, but of a second at most, so that the pause is short.
pub const fn drain_delay_ms(longest_ms: u32, random: u32) -> u32 {
    let longest_ms = if longest_ms < DRAIN_DELAY_MS {
        longest_ms
    } else {
        DRAIN_DELAY_MS
    };
    delay_ms(u32::MAX, longest_ms, random)
}

/// How many times in a row a path has been up for less than `longest_ms`, the longest wait, after
/// it was up for `up_ms`; before that it was `before` times.
pub const fn short_lived(before: u32, up_ms: i64, longest_ms: u32) -> u32 {
    if up_ms < longest_ms as i64 {
        // The largest number stands for all beyond it: the wait is the longest long before.
        before.saturating_add(1)
    } else {
        0
    }
}

/// What counts as failures in a row: the attempts that failed, and the times that a path was up
/// only for a short while.
///
/// A server that accepts and drops connections is one that fails, but a path that was lost once
/// may be back at once.
pub const fn failures(failed_attempts: u32, short_lived: u32) -> u32 {
    match short_lived.checked_sub(1) {
        // The largest number stands for all beyond it, as above.
        Some(repeated) => failed_attempts.saturating_add(repeated),
        None => failed_attempts,
    }
}

/// Whether to give up when `failed` attempts have failed in a row and `max` of them may; negative:
/// never.
///
/// The early ones do not count, unless there is to be none at all: whoever allows some expects them
/// to be as far apart as those of the C module, which waits the longest time before each.
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
