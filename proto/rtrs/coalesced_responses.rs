// SPDX-License-Identifier: GPL-2.0

//! Several responses in one message; see
//! [`FEATURE_COALESCED_RESPONSES`](super::FEATURE_COALESCED_RESPONSES).
//!
//! The message contains the numbers of the chunks, two bytes each. The immediate has their count.
//! All of the requests were carried out.

use super::{
    Imm,
    RkeyRsp, //
};

/// The most responses in one message.
pub const MAX_COALESCED: usize = 64;

/// The size of the longest message in bytes.
pub const MAX_COALESCED_SIZE: usize = size(MAX_COALESCED);

/// The size of the longest message that comes with the immediate of a response, in bytes.
pub const MAX_RESPONSE_MSG_SIZE: usize = if RkeyRsp::SIZE > MAX_COALESCED_SIZE {
    RkeyRsp::SIZE
} else {
    MAX_COALESCED_SIZE
};

/// The size of a chunk's number in bytes.
const NUMBER_SIZE: usize = size_of::<u16>();

/// Writes the responses to the requests in `chunks` to the front of `out`, as many as fit into
/// `out` and into a message. Returns their number.
#[inline]
pub fn write(out: &mut [u8], chunks: impl IntoIterator<Item = u16>) -> usize {
    let mut count = 0usize;
    for (to, chunk) in out
        .chunks_exact_mut(NUMBER_SIZE)
        .take(MAX_COALESCED)
        .zip(chunks)
    {
        to.copy_from_slice(&chunk.to_le_bytes());
        // At most `MAX_COALESCED`.
        count = count.wrapping_add(1);
    }
    count
}

/// The size of a message with `count` responses, at most [`MAX_COALESCED`], in bytes.
#[inline]
pub const fn size(count: usize) -> usize {
    count.wrapping_mul(NUMBER_SIZE)
}

/// The immediate of a message with `count` responses.
#[inline]
pub const fn immediate(count: usize) -> Imm {
    // At most MAX_COALESCED.
    Imm::IoRsps {
        count: count as u32,
    }
}

/// The chunks of a received message. `None` if the message does not have the count that the
/// immediate says, or more than [`MAX_COALESCED`].
#[inline]
pub fn parse(message: &[u8], count: u32) -> Option<impl Iterator<Item = u16> + '_> {
    let count = count as usize;
    if count > MAX_COALESCED || message.len() != size(count) {
        return None;
    }
    Some(
        message
            .chunks_exact(NUMBER_SIZE)
            .filter_map(|chunk| Some(u16::from_le_bytes(*chunk.first_chunk()?))),
    )
}
