// SPDX-License-Identifier: GPL-2.0

//! The chunks of a session: their number and size, and how an immediate names a byte in them.

use core::fmt;

use super::{
    MAX_IMM_PAYL_BITS,
    MAX_IMM_PAYL_MASK,
    MAX_SESS_QUEUE_DEPTH,
    MIN_CHUNK_SIZE, //
};
use crate::{
    text::impl_error,
    ProtoError, //
};

/// The number of chunks of a session and their size.
///
/// # Invariants
///
/// `1 <= queue_depth <= MAX_SESS_QUEUE_DEPTH` and `chunk_size >= 1`. The bits of a chunk number and
/// of an offset together fit into the immediate's 28, so all chunks together have at most 256 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLayout {
    queue_depth: u32,
    chunk_size: u32,
    mem_bits: u32,
}

/// Why numbers do not make a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The number of chunks is out of range.
    QueueDepth(i64),
    /// The chunk size is out of range, or not a power of two.
    ChunkSize(i64),
    /// The chunk number and the offset do not fit into an immediate.
    TooLarge {
        /// The number of chunks.
        queue_depth: u32,
        /// Their size in bytes.
        chunk_size: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueDepth(value) => write!(
                f,
                "invalid queue depth {value}, must be 1 to {MAX_SESS_QUEUE_DEPTH}"
            ),
            Self::ChunkSize(value) => write!(
                f,
                "invalid chunk size {value}, must be a power of two of at least {MIN_CHUNK_SIZE}"
            ),
            Self::TooLarge {
                queue_depth,
                chunk_size,
            } => write!(
                f,
                "{queue_depth} chunks of {chunk_size} bytes do not fit an immediate of \
                 {MAX_IMM_PAYL_BITS} bits, reduce the queue depth or the chunk size"
            ),
        }
    }
}

impl_error!(LayoutError, EINVAL);

/// The number of bits that hold each number below `count`, which is not zero.
const fn bits_below(count: u32) -> u32 {
    // `leading_zeros` is at most 32.
    u32::BITS.wrapping_sub(count.wrapping_sub(1).leading_zeros())
}

impl ChunkLayout {
    /// A layout of `queue_depth` chunks of `chunk_size` bytes, for a client that got these numbers
    /// from a server.
    pub const fn new(queue_depth: u32, chunk_size: u32) -> Result<Self, LayoutError> {
        if queue_depth == 0 || queue_depth > MAX_SESS_QUEUE_DEPTH {
            return Err(LayoutError::QueueDepth(queue_depth as i64));
        }
        if chunk_size == 0 {
            return Err(LayoutError::ChunkSize(0));
        }
        let chunk_bits = bits_below(queue_depth);
        // `chunk_bits` is at most 16, see the check above.
        let mem_bits = MAX_IMM_PAYL_BITS.wrapping_sub(chunk_bits);
        if bits_below(chunk_size) > mem_bits {
            return Err(LayoutError::TooLarge {
                queue_depth,
                chunk_size,
            });
        }
        Ok(Self {
            queue_depth,
            chunk_size,
            mem_bits,
        })
    }

    /// A layout from the module parameters of a server. The chunk size must also be a power of two
    /// of at least [`MIN_CHUNK_SIZE`] (C: `check_module_params`).
    pub const fn for_server(
        sess_queue_depth: i32,
        max_chunk_size: i32,
    ) -> Result<Self, LayoutError> {
        if sess_queue_depth < 1 || sess_queue_depth as u32 > MAX_SESS_QUEUE_DEPTH {
            return Err(LayoutError::QueueDepth(sess_queue_depth as i64));
        }
        if max_chunk_size < MIN_CHUNK_SIZE as i32 || !(max_chunk_size as u32).is_power_of_two() {
            return Err(LayoutError::ChunkSize(max_chunk_size as i64));
        }
        Self::new(sess_queue_depth as u32, max_chunk_size as u32)
    }

    /// The number of chunks.
    #[inline]
    pub const fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    /// The size of a chunk in bytes.
    #[inline]
    pub const fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// The bits of an offset in the immediate.
    #[inline]
    pub const fn mem_bits(&self) -> u32 {
        self.mem_bits
    }

    /// The size of all chunks in bytes, at most 2^28.
    pub const fn total_size(&self) -> u64 {
        // The factors have 32 bits each.
        (self.queue_depth as u64).wrapping_mul(self.chunk_size as u64)
    }

    /// The payload that names offset `off` in chunk `msg_id`; `None` if there is no such chunk, or
    /// if the offset is not inside the chunk.
    #[inline]
    pub const fn encode(&self, msg_id: u32, off: u32) -> Option<u32> {
        match msg_id.checked_shl(self.mem_bits) {
            Some(high) if msg_id < self.queue_depth && off < self.chunk_size => Some(high | off),
            _ => None,
        }
    }

    /// The chunk number and the offset that a payload names. Both are inside this layout.
    #[inline]
    pub const fn decode(&self, payload: u32) -> Result<(u32, u32), ProtoError> {
        let payload = payload & MAX_IMM_PAYL_MASK;
        // `mem_bits` is at most 28.
        let msg_id = payload.wrapping_shr(self.mem_bits);
        let off = payload & !u32::MAX.wrapping_shl(self.mem_bits);
        if msg_id >= self.queue_depth {
            return Err(ProtoError::BadField {
                field: "chunk of an IO request",
                value: msg_id as u64,
            });
        }
        if off >= self.chunk_size {
            return Err(ProtoError::BadField {
                field: "offset of an IO request",
                value: off as u64,
            });
        }
        Ok((msg_id, off))
    }
}
