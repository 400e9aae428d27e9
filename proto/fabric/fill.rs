// SPDX-License-Identifier: GPL-2.0

//! Patterns: bytes that both ends can make from a seed and a place.
//!
//! Each word of 8 bytes depends on the seed and on the word's place. So data that was left from
//! another request, that is shifted, or that lacks a piece in the middle does not fit.

use core::ops::Range;

/// Word `index` of the pattern of `seed`.
const fn word(seed: u64, index: u64) -> [u8; 8] {
    let mixed = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}

/// Bytes that are filled or compared at a time, as they take memory beside the data.
pub const STEP: usize = 4096;

/// The pieces of `len` bytes, each of up to [`STEP`] bytes: where they lie, and the number of their
/// first word.
pub fn pieces(len: usize) -> impl Iterator<Item = (Range<usize>, u64)> {
    let starts = (0..len).step_by(STEP);
    // Memory has at most `isize::MAX` bytes, so the end does not wrap around.
    starts.map(move |start| (start..len.min(start.wrapping_add(STEP)), (start / 8) as u64))
}

/// Fills `bytes` with the pattern of `seed` from word `first_word` on.
pub fn fill(seed: u64, first_word: u64, bytes: &mut [u8]) {
    let mut index = first_word;
    for piece in bytes.chunks_mut(8) {
        for (to, from) in piece.iter_mut().zip(word(seed, index)) {
            *to = from;
        }
        index = index.wrapping_add(1);
    }
}

/// The position of the first byte that differs from the pattern as [`fill`] writes it.
pub fn first_difference(seed: u64, first_word: u64, bytes: &[u8]) -> Option<usize> {
    let mut index = first_word;
    for (number, piece) in bytes.chunks(8).enumerate() {
        let expected = word(seed, index);
        let mut pairs = piece.iter().zip(&expected);
        if let Some(place) = pairs.position(|(found, wanted)| found != wanted) {
            return Some(number.wrapping_mul(8).wrapping_add(place));
        }
        index = index.wrapping_add(1);
    }
    None
}
