// SPDX-License-Identifier: GPL-2.0

//! Scatterlists: the memory of a request, for one RDMA device at a time.
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

use crate::{
    bindings,
    block::request::DataHold,
    chunk::ChunkSet,
    page_buffer::PageBuffer,
    rdma::{
        Direction,
        ProtectionDomain,
        Sge,
        SgeList, //
    }, //
};
use core::mem::ManuallyDrop;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A scatterlist with room for a fixed number of segments, allocated once and filled many times.
///
/// # Invariants
///
/// - `entries` was initialised by `sg_init_table()` for its whole length and is not chained.
/// - The first `used` entries name pages. If `buffer` is set, there is one and it names its page;
///   otherwise the pages are those of the request of `request`, which keeps them.
pub struct ScatterTable {
    entries: KVec<bindings::scatterlist>,
    used: u32,
    /// The length of the entries in use, in bytes.
    bytes: usize,
    buffer: Option<PageBuffer>,
    request: Option<DataHold>,
}

// SAFETY: Owns its entries, and what keeps the pages they name, which is `Send`.
unsafe impl Send for ScatterTable {}

// SAFETY: Shared references give out numbers only.
unsafe impl Sync for ScatterTable {}

impl ScatterTable {
    /// Allocates a table for up to `max_segments` segments, at least 1. Sleeps.
    pub fn new(max_segments: u32) -> Result<Self> {
        let max_segments = max_segments.max(1);
        let mut entries =
            KVec::<bindings::scatterlist>::zeroed(usize::try_from(max_segments)?, GFP_KERNEL)?;
        // SAFETY: There are that many entries.
        unsafe { bindings::sg_init_table(entries.as_mut_ptr(), max_segments) };
        // INVARIANT: As initialised above; nothing is in use.
        Ok(Self {
            entries,
            used: 0,
            bytes: 0,
            buffer: None,
            request: None,
        })
    }

    /// The most segments.
    #[inline]
    pub fn capacity(&self) -> u32 {
        // It was made from a `u32`.
        self.entries.len() as u32
    }

    /// The segments in use.
    #[inline]
    pub fn num_segments(&self) -> u32 {
        self.used
    }

    /// The length of all segments in use, in bytes.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The entries of the table, which is emptied, for C functions that fill them.
    #[inline]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut bindings::scatterlist {
        self.clear();
        self.entries.as_mut_ptr()
    }

    /// Tells how many entries were filled.
    ///
    /// # Safety
    ///
    /// The first `used` entries must name pages of the request of `request`, and `used` must not
    /// exceed the capacity.
    #[inline]
    pub(crate) unsafe fn set_request(&mut self, used: u32, request: DataHold) {
        // INVARIANT: By the function's requirement.
        self.used = used;
        self.bytes = self
            .entries
            .iter()
            .take(used as usize)
            .fold(0, |sum: usize, entry| {
                sum.saturating_add(entry.length as usize)
            });
        self.request = Some(request);
    }

    /// Empties the table. If a block request has ended meanwhile, the block layer gets it back
    /// now. Any context.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
        self.bytes = 0;
        self.buffer = None;
        self.request = None;
    }

    /// Empties the table if its memory is that of a block request; see [`Self::clear()`].
    #[inline]
    pub fn release_request(&mut self) {
        if self.request.is_some() {
            self.used = 0;
            self.bytes = 0;
            self.request = None;
        }
    }

    /// Makes the first `len` bytes of `buffer` the one segment of the table, which keeps it.
    ///
    /// `EINVAL` if `len` is 0 or more than the buffer holds.
    pub fn set_buffer(&mut self, buffer: PageBuffer, len: u32) -> Result {
        if len == 0 || usize::try_from(len)? > PageBuffer::LEN {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr();
        // SAFETY: There is at least one entry, and the page is valid.
        unsafe {
            bindings::rnbd_helper_sg_set_page(entries, buffer.as_page(), len, 0);
            bindings::rnbd_helper_sg_mark_end(entries);
        }
        // INVARIANT: The entry names the buffer's page, which is kept.
        self.used = 1;
        self.bytes = len as usize;
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Empties the table and gives back the buffer of [`Self::set_buffer()`].
    pub fn take_buffer(&mut self) -> Option<PageBuffer> {
        self.used = 0;
        self.bytes = 0;
        self.request = None;
        if self.buffer.is_some() {
            // SAFETY: There is at least one entry.
            unsafe { bindings::rnbd_helper_sg_unmark_end(self.entries.as_mut_ptr()) };
        }
        self.buffer.take()
    }

    /// Fills the memory from the start of a chunk. Any context.
    ///
    /// `EINVAL` if the chunk is shorter, or is not one block.
    #[inline]
    pub fn copy_from_chunk(&mut self, chunks: &ChunkSet, index: usize) -> Result {
        let (address, room) = chunks.contiguous(index).ok_or(EINVAL)?;
        let len = self.byte_len();
        if len > room {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the entries name pages, which are kept; `len` bytes are at
        // `address`.
        let copied = unsafe {
            bindings::rnbd_helper_sg_copy_from_buffer(
                self.entries.as_mut_ptr(),
                self.used,
                address.as_ptr().cast(),
                len,
            )
        };
        if copied != len {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Maps the memory for the device of `domain`. Any context.
    ///
    /// `EINVAL` for an empty table, `EIO` if the device cannot reach the memory; the table is given
    /// back then.
    #[inline]
    pub fn map(
        mut self,
        domain: &Arc<ProtectionDomain>,
        direction: Direction,
    ) -> Result<MappedScatter, (Self, Error)> {
        if self.used == 0 {
            return Err((self, EINVAL));
        }
        // SAFETY: By the type invariant the entries name pages. `used` was a C int.
        let mapped = unsafe {
            bindings::rnbd_helper_ib_dma_map_sg(
                domain.device().as_raw(),
                self.entries.as_mut_ptr(),
                self.used as c_int,
                direction.into(),
            )
        };
        match u32::try_from(mapped) {
            // INVARIANT: Just mapped.
            Ok(mapped) if mapped > 0 => Ok(MappedScatter {
                table: ManuallyDrop::new(self),
                mapped,
                direction,
                domain: domain.clone(),
            }),
            _ => Err((self, EIO)),
        }
    }
}

/// A scatterlist that is mapped for an RDMA device.
///
/// Its memory is unmapped when it is dropped, or by [`Self::unmap()`], in any context. That must
/// not happen while requests that name it are in flight. As it holds a reference to the protection
/// domain, somebody else has to hold one that is dropped where sleeping is allowed.
///
/// # Invariants
///
/// The used entries of `table` are mapped for the device of `domain` in `direction`, to the first
/// `mapped` DMA entries.
pub struct MappedScatter {
    table: ManuallyDrop<ScatterTable>,
    mapped: u32,
    direction: Direction,
    domain: Arc<ProtectionDomain>,
}

impl MappedScatter {
    /// The number of segments as the device sees them.
    #[inline]
    pub fn num_segments(&self) -> u32 {
        self.mapped
    }

    /// The length of all segments, in bytes.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.table.byte_len()
    }

    /// The domain.
    #[inline]
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// Writes the scatter entries to the beginning of `out`.
    ///
    /// `None` if `out` has less than [`Self::num_segments()`] entries.
    #[inline]
    pub fn sges<'a>(&self, out: &'a mut [Sge]) -> Option<&'a [Sge]> {
        let out = out.get_mut(..usize::try_from(self.mapped).ok()?)?;
        // SAFETY: By the type invariant that many DMA entries are valid, and `out` has room for as
        // many; the list is only read. `Sge` has the layout of `ib_sge`.
        unsafe {
            bindings::rnbd_helper_sg_to_sges(
                self.table.entries.as_ptr().cast_mut(),
                self.mapped,
                self.domain.local_dma_lkey(),
                out.as_mut_ptr().cast(),
            )
        };
        Some(out)
    }

    /// Adds the scatter entries to `list`; false, and none added, if it would have more than `limit`
    /// then, or more than it has room for.
    #[inline]
    pub fn add_sges<const N: usize>(&self, list: &mut SgeList<N>, limit: usize) -> bool {
        let count = self.mapped as usize;
        if list.len() + count > limit {
            return false;
        }
        let Some(out) = list.spare(count) else {
            return false;
        };
        // SAFETY: By the type invariant that many DMA entries are valid, and `out` has room for as
        // many; the list is only read. `Sge` has the layout of `ib_sge`.
        unsafe {
            bindings::rnbd_helper_sg_to_sges(
                self.table.entries.as_ptr().cast_mut(),
                self.mapped,
                self.domain.local_dma_lkey(),
                out.cast(),
            );
            list.added(count);
        }
        true
    }

    /// The list and the number of its DMA entries.
    #[inline]
    pub(crate) fn as_raw(&self) -> (*mut bindings::scatterlist, u32) {
        (self.table.entries.as_ptr().cast_mut(), self.mapped)
    }

    /// Unmaps the memory and gives the table back, still filled. Any context.
    #[inline]
    pub fn unmap(self) -> ScatterTable {
        let mut this = ManuallyDrop::new(self);
        this.unmap_entries();
        // SAFETY: `this` is not dropped, so this is the only drop of its domain.
        unsafe { core::ptr::drop_in_place(&mut this.domain) };
        // SAFETY: `this` is not used again.
        unsafe { ManuallyDrop::take(&mut this.table) }
    }

    #[inline]
    fn unmap_entries(&mut self) {
        // SAFETY: By the type invariant these are mapped; the callers do not use them as such any
        // more.
        unsafe {
            bindings::rnbd_helper_ib_dma_unmap_sg(
                self.domain.device().as_raw(),
                self.table.entries.as_mut_ptr(),
                self.table.used as c_int,
                self.direction.into(),
            )
        };
    }
}

impl Drop for MappedScatter {
    fn drop(&mut self) {
        self.unmap_entries();
        // SAFETY: `self` is not used again.
        unsafe { ManuallyDrop::drop(&mut self.table) };
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "kunit/scatterlist.rs"]
mod tests;
