// SPDX-License-Identifier: GPL-2.0

//! The numbers of the devices that a session opens.
//!
//! A number is given to another device as late as possible. A request names its device by number,
//! and a request of a failed path may be handled after its device was closed.

/// A session uses this many numbers before it uses a number again.
pub const FRESH: usize = 1024;

/// The number for the next device. The numbers from 0 to `len - 1` have been given so far, `last`
/// most recently.
///
/// The number is `len` until there are [`FRESH`] numbers, and also if no number `is_free`.
/// Otherwise it is the first free number behind `last`, or, if there is none, the first free number
/// from 0.
pub fn next(len: usize, last: usize, mut is_free: impl FnMut(usize) -> bool) -> usize {
    if len < FRESH {
        return len;
    }
    // The search goes on at 0 after the largest number.
    let behind = last.wrapping_add(1);
    (behind..len)
        .chain(0..behind.min(len))
        .find(|number| is_free(*number))
        .unwrap_or(len)
}
