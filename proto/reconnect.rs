// SPDX-License-Identifier: GPL-2.0

//! When to try again to connect a path.

/// The first wait is this part of the longest one.
const FIRST_PART: u32 = 64;

/// The part of a wait that is random.
const RANDOM_PART: u32 = 4;

/// The wait in ms before the next attempt, when `failed` attempts have failed in a row.
///
/// It doubles with each of them up to `longest_ms`. Up to a quarter of it, as `random` says, is
/// left out, so that the paths of many clients do not come back all at once after a server was
/// away. Never zero.
pub const fn delay_ms(failed: u32, longest_ms: u32, random: u32) -> u32 {
    let first = at_least_1(longest_ms / FIRST_PART);
    let factor = match 1u32.checked_shl(failed) {
        Some(factor) => factor,
        None => u32::MAX,
    };
    let delay = first.saturating_mul(factor);
    let delay = if delay < longest_ms {
        delay
    } else {
        longest_ms
    };
    let less = match random.checked_rem((delay / RANDOM_PART).saturating_add(1)) {
        Some(less) => less,
        None => 0,
    };
    at_least_1(delay.saturating_sub(less))
}

const fn at_least_1(value: u32) -> u32 {
    if value == 0 {
        1
    } else {
        value
    }
}
