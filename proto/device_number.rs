// SPDX-License-Identifier: GPL-2.0

//! Which number a device gets that a session opens.
//!
//! A request names its device by number. One that was sent before a device was closed may be looked
//! at afterwards, since it can be left behind in a path that has failed; so a number is given to
//! another device as late as possible.

/// How many numbers a session uses before it uses one again.
pub const FRESH: usize = 1024;

/// The number for a device, of which `len` have been given so far, the one before it being `last`.
///
/// `len` if no number is to be used again yet, or none `is_free`; else the next free one behind
/// `last`, or from the beginning if there is none.
pub fn next(len: usize, last: usize, mut is_free: impl FnMut(usize) -> bool) -> usize {
    if len < FRESH {
        return len;
    }
    let behind = last.saturating_add(1);
    (behind..len)
        .chain(0..behind.min(len))
        .find(|number| is_free(*number))
        .unwrap_or(len)
}
