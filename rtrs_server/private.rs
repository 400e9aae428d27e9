// SPDX-License-Identifier: GPL-2.0

//! Pages for the data of small writes, out of the reach of clients.
//!
//! With `always_invalidate` a client must not be able to change data that the user has.
//! Invalidating the registration of a chunk and making it again costs far more than copying a page,
//! so small writes are copied. There are fewer pages than chunks, so that a session takes little
//! more memory than its chunks. A write that finds no page is protected as a long write is.

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

/// The pages, and the data structures of chunks and pages, take at most 1/`PART` of the memory of
/// the chunks.
const PART: usize = 50;

/// The data structures of a chunk or of a page, in bytes, rather too much.
const DESCRIPTION: usize = 128;

/// The memory of a page besides its data structures, in bytes.
const PLACE: usize = size_of::<(Place, Chunk)>();

/// How many more places are searched for a page.
const MAX_LOOKS: usize = 3;

/// The place of a page that is not in use. It has a cache line of its own, since requests of
/// several CPUs take pages.
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
    /// Allocates the pages for chunks of `layout`; no pages if memory is short. Sleeps.
    pub(crate) fn new(layout: &ChunkLayout, node: i32) -> Result<Self> {
        let depth = layout.queue_depth() as usize;
        // The size is at most 2^28, and the depth less than 2^16.
        let room = (layout.total_size() as usize / PART)
            .checked_sub(depth.checked_mul(DESCRIPTION).ok_or(EOVERFLOW)?);
        let most = room.map_or(0, |room| room / (PAGE_SIZE + DESCRIPTION));
        // A power of two, so that a place is found without a division.
        let count = match most.min(depth).checked_ilog2() {
            Some(log) => 1usize.wrapping_shl(log),
            None => 0,
        };
        // Without pages the registrations are invalidated, which takes longer.
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
    /// `None` if the data does not fit, or if no page is found.
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
        // A chunk's neighbours are more often in use at the same time than chunks half the pages
        // away.
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

    /// The memory of the pages, in bytes.
    pub(crate) fn memory(&self) -> usize {
        // This does not wrap around: the memory exists.
        let places = self.places.len().wrapping_mul(PLACE);
        self.pages.memory().wrapping_add(places)
    }

    /// Gives back a page that is not used any more. Any context.
    #[inline]
    pub(crate) fn put(&self, page: PrivatePage) {
        if let Some(place) = self.places.get(page.index()) {
            // The place is empty: the page was taken out of it.
            drop(place.0.put(page));
        }
    }
}
