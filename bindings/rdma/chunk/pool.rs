// SPDX-License-Identifier: GPL-2.0

//! Chunks that are allocated ahead for future sessions.

use super::allocator::Allocator;
use crate::{
    page::Pages,
    prelude::*,
    sync::spinlock_irq::{
        new_spinlock_irq,
        SpinLockIrq, //
    }, //
};
use kernel::sync::Arc;

/// Chunks of one size that were allocated ahead, and are lent to [`ChunkSet`](super::ChunkSet)s.
///
/// All chunks in the pool are zeroed.
#[pin_data]
pub struct ChunkPool {
    chunk_size: usize,
    count: usize,
    /// The most segments of a chunk.
    max_segments: usize,
    // Chunks come back in the context in which their user is dropped, so the lock disables
    // interrupts.
    #[pin]
    free: SpinLockIrq<Free>,
}

/// The chunks that are not lent. Both vectors have the capacity for all chunks.
struct Free {
    /// The segments of the chunks, one chunk after the other.
    segments: KVVec<Pages>,
    /// The number of segments of each chunk.
    lens: KVVec<usize>,
}

impl ChunkPool {
    /// Allocates `count` chunks of `chunk_size` bytes. Sleeps.
    ///
    /// `EINVAL` unless `chunk_size` is a multiple of the page size and not 0, `ENOMEM` if there is
    /// not enough memory.
    pub fn new(count: usize, chunk_size: usize) -> Result<Arc<Self>> {
        let mut allocator = Allocator::new(count, chunk_size, -1)?;
        let mut segments = KVVec::with_capacity(count, GFP_KERNEL)?;
        let mut lens = KVVec::with_capacity(count, GFP_KERNEL)?;
        let mut max_segments = 0;
        for _ in 0..count {
            let start = segments.len();
            allocator.add_chunk(&mut segments)?;
            let len = segments.len() - start;
            lens.push(len, GFP_KERNEL)?;
            max_segments = len.max(max_segments);
        }
        Arc::pin_init(
            pin_init!(Self {
                chunk_size,
                count,
                max_segments,
                free <- new_spinlock_irq!(Free { segments, lens }, "ChunkPool::free"),
            }),
            GFP_KERNEL,
        )
    }

    /// The size of each chunk in bytes.
    pub fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// The memory of all chunks in bytes.
    pub fn total_memory(&self) -> usize {
        self.count * self.chunk_size
    }

    /// The memory of the chunks that are not lent, in bytes. Any context.
    pub fn free_memory(&self) -> usize {
        self.free.lock().lens.len() * self.chunk_size
    }

    /// Appends the segments of a chunk to `to`. False if all chunks are lent, or if `block` is set
    /// and the next chunk is not one block. Sleeps.
    pub(super) fn take(&self, to: &mut KVVec<Pages>, block: bool) -> Result<bool> {
        to.reserve(self.max_segments, GFP_KERNEL)?;
        let mut free = self.free.lock();
        if block && free.lens.last() != Some(&1) {
            return Ok(false);
        }
        let Some(len) = free.lens.pop() else {
            return Ok(false);
        };
        for _ in 0..len {
            if let Some(segment) = free.segments.pop() {
                // The capacity was reserved above.
                let _ = to.push_within_capacity(segment);
            }
        }
        Ok(true)
    }

    /// Takes a chunk back: the segments of `from` from index `start` on. Any context.
    pub(super) fn put(&self, from: &mut KVVec<Pages>, start: usize) {
        for segment in from.iter_mut().skip(start) {
            segment.clear();
        }
        let mut free = self.free.lock();
        let len = from.len() - start;
        for _ in 0..len {
            if let Some(segment) = from.pop() {
                // The vector had this segment before, so it has the capacity.
                let _ = free.segments.push_within_capacity(segment);
            }
        }
        let _ = free.lens.push_within_capacity(len);
    }
}
