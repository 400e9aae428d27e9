// SPDX-License-Identifier: GPL-2.0

//! Pages for the data of small writes, out of the reach of clients.
//!
//! With `always_invalidate` a client must not be able to change data that the block layer has.
//! Invalidating the registration of a chunk and making it again costs far more than copying a
//! page, and so small writes are copied. There are fewer pages than chunks, to keep what a session
//! takes near what its chunks take; a write that finds none goes the long way.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc, //
    }, //
};
use kernel_ext::atomic::{
    ordering,
    Atomic, //
};
use kernel_ext::chunk::{
    ChunkSet,
    ChunkSlice, //
};
use proto::rtrs::ChunkLayout;

/// The pages, and what describes chunks and pages, take at most this part of what the chunks take.
const PART: usize = 50;

/// What describes a chunk or a page, in bytes, rather too much.
const DESCRIPTION: usize = 128;

/// How many places are looked at for a page.
const MAX_LOOKS: usize = 4;

/// Whether a page is in use; a cache line of its own, since requests of several CPUs take pages.
#[repr(align(64))]
struct InUse(Atomic<bool>);

/// The pages of a session.
pub(crate) struct PrivatePages {
    pages: Arc<ChunkSet>,
    in_use: KVec<InUse>,
}

/// The use of a page; given back by [`PrivatePages::put()`].
pub(crate) struct PrivatePage(usize);

impl PrivatePages {
    /// Allocates the pages for chunks of `layout`. Sleeps.
    pub(crate) fn new(layout: &ChunkLayout, node: i32) -> Result<Self> {
        let depth = layout.queue_depth() as usize;
        let room = (depth.saturating_mul(layout.chunk_size() as usize) / PART)
            .saturating_sub(depth.saturating_mul(DESCRIPTION));
        // A power of two, so that finding one takes no division.
        let count = match (room / (PAGE_SIZE + DESCRIPTION))
            .min(depth)
            .checked_ilog2()
        {
            Some(log) => 1usize.wrapping_shl(log),
            None => 0,
        };
        let mut in_use = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            in_use.push(InUse(Atomic::new(false)), GFP_KERNEL)?;
        }
        Ok(Self {
            pages: ChunkSet::new(count, PAGE_SIZE, node, None)?,
            in_use,
        })
    }

    /// Copies the first `len` bytes of chunk `id` to a page of its own. Any context.
    ///
    /// `None` if they do not fit, or if there is no page to be had.
    #[inline]
    pub(crate) fn copy(&self, chunks: &ChunkSet, id: u32, len: u32) -> Option<PrivatePage> {
        let len = len as usize;
        if len > PAGE_SIZE {
            return None;
        }
        let mask = self.in_use.len().checked_sub(1)?;
        // Chunks have neighbours in use more often than those half the pages away.
        let stride = (mask >> 1).wrapping_add(1);
        let mut place = id as usize & mask;
        for look in 0..MAX_LOOKS {
            let in_use = self.in_use.get(place)?;
            if !in_use.0.load(ordering::Relaxed) && !in_use.0.xchg(true, ordering::Acquire) {
                let page = PrivatePage(place);
                if chunks.copy_to(id as usize, len, &self.pages, place).is_ok() {
                    return Some(page);
                }
                self.put(page);
                return None;
            }
            place = place.wrapping_add(stride).wrapping_add(look) & mask;
        }
        None
    }

    /// The first `len` bytes of `page`.
    #[inline]
    pub(crate) fn slice(&self, page: &PrivatePage, len: u32) -> Option<ChunkSlice> {
        self.pages.slice(page.0, 0, len as usize)
    }

    /// What it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.pages
            .memory()
            .saturating_add(self.in_use.len().saturating_mul(size_of::<InUse>()))
    }

    /// Gives a page back, which nobody uses any more. Any context.
    #[inline]
    pub(crate) fn put(&self, page: PrivatePage) {
        if let Some(in_use) = self.in_use.get(page.0) {
            in_use.0.store(false, ordering::Release);
        }
    }
}
