// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for room in a send queue.

use core::mem;
use kernel::prelude::*;

use crate::path_chunk::ChunkBox;

/// Requests in the order in which they came, with room for as many as there may be.
///
/// The oldest leaves first: while a client keeps the queue full, one that came early would
/// otherwise wait for ever behind those that come later.
pub(crate) struct Waiting {
    /// The later ones, the newest last.
    newer: KVVec<ChunkBox>,
    /// Those before them, the oldest last.
    older: KVVec<ChunkBox>,
}

impl Waiting {
    /// Room for `max` requests. Sleeps.
    pub(crate) fn new(max: usize) -> Result<Self> {
        Ok(Self {
            newer: KVVec::with_capacity(max, GFP_KERNEL)?,
            older: KVVec::with_capacity(max, GFP_KERNEL)?,
        })
    }

    /// Adds a request; gives it back if there is no room. Any context.
    pub(crate) fn push(&mut self, chunk: ChunkBox) -> Result<(), ChunkBox> {
        self.newer
            .push_within_capacity(chunk)
            .map_err(|refused| refused.0)
    }

    /// Takes out the oldest. Any context.
    pub(crate) fn pop(&mut self) -> Option<ChunkBox> {
        if self.older.is_empty() {
            // Each request is turned round once.
            mem::swap(&mut self.newer, &mut self.older);
            self.older.reverse();
        }
        self.older.pop()
    }
}
