// SPDX-License-Identifier: GPL-2.0

//! The numbers of the devices that a session opens.
//!
//! A number is given to another device as late as possible. A request names its device by number,
//! and a request that is left behind in a failed path may be handled after its device was closed.

/// How many numbers a session uses before it uses a number again.
pub const FRESH: usize = 1024;

/// The number for the next device. `len` numbers, from 0, have been given so far, the last time
/// `last`.
///
/// The number is `len` until there are [`FRESH`] numbers, or if no number `is_free`; else the first
/// free number behind `last`, or from 0 on.
pub fn next(len: usize, last: usize, mut is_free: impl FnMut(usize) -> bool) -> usize {
    if len < FRESH {
        return len;
    }
    // Behind the largest number comes 0.
    let behind = last.wrapping_add(1);
    (behind..len)
        .chain(0..behind.min(len))
        .find(|number| is_free(*number))
        .unwrap_or(len)
}
