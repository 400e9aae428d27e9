// SPDX-License-Identifier: GPL-2.0

//! Pages for the data of small writes, out of the reach of clients.
//!
//! With `always_invalidate` a client must not be able to change data that the user has.
//! Invalidating the registration of a chunk and making it again costs far more than copying a
//! page, and so small writes are copied. There are fewer pages than chunks, to keep what a session
//! takes near what its chunks take; a write that finds none goes the long way.

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use kernel_ext::{
    prelude::*,
    rdma::chunk::{
        single::Chunk,
        ChunkSet, //
    },
    sync::box_slot::BoxSlot, //
};
use proto::rtrs::ChunkLayout;

/// The pages, and what describes chunks and pages, take at most this part of what the chunks take.
const PART: usize = 50;

/// What describes a chunk or a page, in bytes, rather too much.
const DESCRIPTION: usize = 128;

/// What is there for a page besides its description, in bytes.
const PLACE: usize = size_of::<(Place, Chunk)>();

/// How many more places are looked at for a page.
const MAX_LOOKS: usize = 3;

/// The place of a page that is not in use; a cache line of its own, since requests of several CPUs
/// take pages.
#[repr(align(64))]
struct Place(BoxSlot<Chunk>);

/// The pages of a session.
pub(crate) struct PrivatePages {
    pages: Arc<ChunkSet>,
    places: KVVec<Place>,
}

/// A page in use; given back by [`PrivatePages::put()`].
pub(crate) type PrivatePage = KBox<Chunk>;

impl PrivatePages {
    /// Allocates the pages for chunks of `layout`, none if memory is short. Sleeps.
    pub(crate) fn new(layout: &ChunkLayout, node: i32) -> Result<Self> {
        let depth = layout.queue_depth() as usize;
        // At most 2^28, and less than 2^16 of them.
        let room = (layout.total_size() as usize / PART)
            .checked_sub(depth.checked_mul(DESCRIPTION).ok_or(EOVERFLOW)?);
        let most = room.map_or(0, |room| room / (PAGE_SIZE + DESCRIPTION));
        // A power of two, so that finding one takes no division.
        let count = match most.min(depth).checked_ilog2() {
            Some(log) => 1usize.wrapping_shl(log),
            None => 0,
        };
        // Without them writes are invalidated, which takes longer.
        let pages = match ChunkSet::new(count, PAGE_SIZE, node, None) {
            Ok(pages) => pages,
            Err(_) => ChunkSet::new(0, PAGE_SIZE, node, None)?,
        };
        let count = pages.count();
        let mut places = KVVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let page = KBox::new(Chunk::new(&pages, index)?, GFP_KERNEL)?;
            places.push(Place(BoxSlot::new(page)), GFP_KERNEL)?;
        }
        Ok(Self { pages, places })
    }

    /// Copies the first `len` bytes of `chunk` to a page of its own. Any context.
    ///
    /// `None` if they do not fit, or if there is no page to be had.
    #[inline]
    pub(crate) fn copy(&self, chunk: &Chunk, len: u32) -> Option<PrivatePage> {
        let len = len as usize;
        if len > PAGE_SIZE {
            return None;
        }
        let mask = self.places.len().checked_sub(1)?;
        let place = chunk.index() & mask;
        let page = match self.places.get(place)?.0.take() {
            Some(page) => page,
            None => self.take_elsewhere(place, mask)?,
        };
        if chunk.copy_to(len, &page).is_err() {
            self.put(page);
            return None;
        }
        Some(page)
    }

    /// Takes a page from another place than `place`.
    #[cold]
    #[inline(never)]
    fn take_elsewhere(&self, mut place: usize, mask: usize) -> Option<PrivatePage> {
        // Chunks have neighbours in use more often than those half the pages away.
        let stride = (mask >> 1).wrapping_add(1);
        for look in 0..MAX_LOOKS {
            place = place.wrapping_add(stride).wrapping_add(look) & mask;
            let place = &self.places.get(place)?.0;
            if !place.is_empty() {
                if let Some(page) = place.take() {
                    return Some(page);
                }
            }
        }
        None
    }

    /// What it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        // Memory that is there.
        let places = self.places.len().wrapping_mul(PLACE);
        self.pages.memory().wrapping_add(places)
    }

    /// Gives a page back, which nobody uses any more. Any context.
    #[inline]
    pub(crate) fn put(&self, page: PrivatePage) {
        if let Some(place) = self.places.get(page.index()) {
            // It is empty: the page was taken out of there.
            drop(place.0.put(page));
        }
    }
}
