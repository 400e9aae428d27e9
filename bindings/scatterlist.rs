// SPDX-License-Identifier: GPL-2.0

//! Scatterlists: the memory of a request, for one RDMA device at a time.
//!
//! C header: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h)

use crate::{
    bindings,
    block::mq::request::{
        DataHold,
        Op,
        OwnedRequest, //
    },
    page::{
        buffer::PageBuffer,
        send::SendPages, //
    },
    prelude::*,
    rdma::{
        verbs,
        Device,
        Direction, //
    }, //
};
use core::ptr;
use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};

mod page;
pub mod shared;

use shared::{
    SharedHold,
    Source, //
};

/// Memory that several requests send at the same time; see [`shared`].
pub type SharedTable = shared::SharedTable<ScatterTable>;

/// The right to hand out the memory of a [`SharedTable`].
pub type Sharing = shared::Sharing<ScatterTable>;

/// The page size of registrations, which is at most `PAGE_SIZE`.
const SINK_PAGE_SIZE: usize = 4096;

/// A scatterlist with room for a fixed number of segments, allocated once and filled many times.
///
/// # Invariants
///
/// - `entries` was initialised by `sg_init_table()` and is not chained.
/// - The first `used` entries name pages. If `buffer` is set, the pages are those of the buffer. If
///   `request` is set, the pages are those of the request that it holds, which keeps them. If
///   `hold` is set, the pages are those that it keeps; a `Hold::Page` has one entry, which starts
///   at the beginning of the page. Otherwise the pages are lent: the caller of [`Self::set_lent()`]
///   keeps them for as long as they may be accessed. If `used` is 0, none of `buffer`, `request`
///   and `hold` is set.
/// - The pages in use are only accessed as `permitted` says. The pages of a read must only be
///   written, as their old content may be secret. The pages of a write must only be read, as their
///   user may have no right to write to them.
/// - If `mapping` names a region, that region has mapped the entries in use as `mapping` says, for
///   the device of its domain. Then the entries, `buffer`, `request`, `hold` and `is_sink` are not
///   changed. If `mapping.is_shared` is set, the entries are those of the shared table's mapping
///   for the device.
/// - `is_sink` says that the entries in use are those of [`Self::set_sink()`].
pub struct ScatterTable {
    entries: KVec<bindings::scatterlist>,
    used: u32,
    /// The length of the entries in use, in bytes.
    bytes: usize,
    permitted: Direction,
    buffer: Option<PageBuffer>,
    request: Option<DataHold>,
    hold: Option<Hold>,
    is_sink: bool,
    mapping: Mapping,
}

/// The holder of pages that several tables name at the same time.
enum Hold {
    /// Keeps the pages of a shared table.
    Shared(SharedHold<ScatterTable>),
    /// Keeps one of the pages to send from.
    Page { pages: Arc<SendPages>, index: usize },
}

/// How a table is mapped.
struct Mapping {
    /// The serial number of the memory region that has mapped the table; 0 if the table is not
    /// mapped.
    region: u64,
    /// The number of DMA entries.
    entries: u32,
    direction: Direction,
    /// Whether this is a mapping of the shared table.
    is_shared: bool,
}

// SAFETY: A table owns its entries, and the holders of their pages, which are `Send`.
unsafe impl Send for ScatterTable {}

// SAFETY: Shared references only give out numbers and pointers.
unsafe impl Sync for ScatterTable {}

impl ScatterTable {
    /// Allocates a table for up to `max_segments` segments, at least 1. Sleeps.
    pub fn new(max_segments: u32) -> Result<Self> {
        let max_segments = max_segments.max(1);
        let mut entries = KVec::from_elem(
            bindings::scatterlist::default(),
            usize::try_from(max_segments)?,
            GFP_KERNEL,
        )?;
        // SAFETY: `entries` has `max_segments` elements.
        unsafe { bindings::sg_init_table(entries.as_mut_ptr(), max_segments) };
        // INVARIANT: As initialised above; nothing is in use.
        Ok(Self {
            entries,
            used: 0,
            bytes: 0,
            permitted: Direction::Bidirectional,
            buffer: None,
            request: None,
            hold: None,
            is_sink: false,
            mapping: Mapping {
                region: 0,
                entries: 0,
                direction: Direction::ToDevice,
                is_shared: false,
            },
        })
    }

    /// The most segments.
    #[inline]
    pub fn capacity(&self) -> u32 {
        // The length was given as a `u32`.
        self.entries.len() as u32
    }

    /// The length of all segments in use, in bytes.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// Empties the table, and returns its entries for C functions that fill them; `None` if the
    /// table is mapped.
    #[inline]
    fn as_mut_ptr(&mut self) -> Option<*mut bindings::scatterlist> {
        if self.is_mapped() {
            return None;
        }
        if self.used != 0 {
            self.clear();
        }
        Some(self.entries.as_mut_ptr())
    }

    /// Fills the table with the data of a block request. The table holds the request until the
    /// table is emptied; the request does not end before. Any context.
    ///
    /// `EINVAL` if the data has more segments than the table has room for, or if the request has no
    /// data: only reads and writes have. `EBUSY` if the data is in a table already, or if this
    /// table is mapped.
    #[inline]
    pub fn set_request<D>(&mut self, request: &mut OwnedRequest<D>) -> Result {
        let permitted = match request.op() {
            Op::Read => Direction::FromDevice,
            Op::Write => Direction::ToDevice,
            // Other requests have a length, but no pages.
            _ => return Err(EINVAL),
        };
        if u32::from(request.segments()) > self.capacity() {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        let hold = DataHold::new(request).ok_or(EBUSY)?;
        let mut last = ptr::null_mut();
        // SAFETY: The request is live, and the table has room for all of its segments.
        let used = unsafe { bindings::__blk_rq_map_sg(request.as_raw(), entries, &mut last) };
        if used <= 0 {
            return Err(EINVAL);
        }
        // INVARIANT: The first `used` entries are filled with pages of this request, and
        // `permitted` is right for a read or a write.
        self.used = used as u32;
        self.permitted = permitted;
        self.bytes = match (used, self.entries.first()) {
            (1, Some(entry)) => entry.length as usize,
            _ => self.sum(used as u32),
        };
        // The table was emptied, so the old value is `None`, and needs no drop.
        core::mem::forget(self.request.replace(hold));
        Ok(())
    }

    /// Fills the table with memory that a caller in C lends: copies the first `count` entries of
    /// `list`. For `Direction::FromDevice` the memory is only written, for `ToDevice` only read.
    /// Any context.
    ///
    /// `EINVAL` if `count` is 0 or more than the table has room for, if the list has fewer entries,
    /// or if an entry has no page or the length 0; the table is empty then. `EBUSY` if the table is
    /// mapped.
    ///
    /// # Safety
    ///
    /// `list` is a list of `struct scatterlist`. If it has fewer than `count` entries, its last one
    /// is marked as the end. The list is not changed during the call. The memory of the entries
    /// stays valid until the table is emptied or filled anew; or, once the memory becomes invalid,
    /// the table is neither mapped nor copied from or to until then.
    pub unsafe fn set_lent(
        &mut self,
        list: *mut kernel::bindings::scatterlist,
        count: u32,
        direction: Direction,
    ) -> Result {
        let room = self.capacity();
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        let mut bytes = 0;
        // SAFETY: There are `room` entries, and the list is as the caller promises.
        let used = unsafe {
            bindings::rnbd_helper_sg_copy_entries(entries, room, list.cast(), count, &mut bytes)
        };
        if used == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: The first `used` entries are filled with pages that the caller keeps, and the
        // last one is marked as the end.
        self.used = used;
        self.permitted = direction;
        self.bytes = bytes;
        Ok(())
    }

    /// The length of the first `used` entries, in bytes.
    #[inline(never)]
    fn sum(&self, used: u32) -> usize {
        let entries = self.entries.iter().take(used as usize);
        entries.fold(0, |sum, entry| sum + entry.length as usize)
    }

    /// Empties the table, unless it is mapped. If the table's block request was ended meanwhile,
    /// the block layer gets the request back now. Any context.
    #[inline]
    pub fn clear(&mut self) {
        if self.is_mapped() {
            return;
        }
        self.used = 0;
        self.bytes = 0;
        self.buffer = None;
        self.request = None;
        if self.hold.is_some() {
            self.drop_hold();
        }
        self.is_sink = false;
    }

    /// Drops `hold`. Out of line, as few requests have such memory.
    #[cold]
    #[inline(never)]
    fn drop_hold(&mut self) {
        self.hold = None;
    }

    /// Empties the table if its memory is that of a block request or of a shared table; see
    /// [`Self::clear()`].
    #[inline]
    pub fn release_request(&mut self) {
        if self.request.is_some() {
            if !self.is_mapped() {
                self.used = 0;
                self.bytes = 0;
                self.request = None;
            }
        } else if let Some(Hold::Shared(_)) = self.hold {
            self.release_shared();
        }
    }

    /// Empties a table with the memory of a shared table.
    #[cold]
    #[inline(never)]
    fn release_shared(&mut self) {
        self.clear();
    }

    /// Fills the table with the memory of a shared table, only to be sent. The table keeps that
    /// memory until the table is emptied. Any context.
    ///
    /// `EINVAL` if the memory has more segments than the table has room for, `EBUSY` if the table
    /// is mapped.
    pub fn set_shared(&mut self, sharing: &Sharing) -> Result {
        let (list, count) = sharing.table().to_send().ok_or(EINVAL)?;
        let room = self.capacity();
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        let mut bytes = 0;
        // SAFETY: There are `room` entries, and `count` in the list. The list does not change as
        // long as there is a `Sharing`.
        let used = unsafe {
            bindings::rnbd_helper_sg_copy_entries(entries, room, list, count, &mut bytes)
        };
        if used == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: The first `used` entries are filled with pages of the shared table, which
        // `hold` keeps. The pages may be read, and the last entry is marked as the end.
        self.used = used;
        self.permitted = Direction::ToDevice;
        self.bytes = bytes;
        self.hold = Some(Hold::Shared(sharing.hold()));
        Ok(())
    }

    /// Fills the table with the first `len` bytes of `buffer`, one segment for each page. The table
    /// keeps the buffer. Any context.
    ///
    /// `EINVAL` if `len` is 0 or more than the buffer's capacity, or if the bytes take more
    /// segments than the table has room for. `EBUSY` if the table is mapped. On an error the buffer
    /// is dropped.
    pub fn set_buffer(&mut self, buffer: PageBuffer, len: u32) -> Result {
        let bytes = usize::try_from(len)?;
        let count = u32::try_from(bytes.div_ceil(PAGE_SIZE))?;
        if len == 0 || bytes > buffer.capacity() || count > self.capacity() {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        // SAFETY: The table has at least `count` entries, and the exclusive reference keeps other
        // users away.
        unsafe { bindings::sg_init_table(entries, count) };
        for (index, (page, part)) in buffer.pages(bytes).enumerate() {
            // SAFETY: There are `count` pages, so the entry is one of those that were initialised.
            // The page is valid, and has at least `part` bytes.
            unsafe {
                let entry = entries.add(index);
                bindings::rnbd_helper_sg_set_page(entry, page, part as u32, 0);
            }
        }
        // INVARIANT: The entries name the buffer's pages, which the table keeps, and may be read
        // and written. The last entry is marked as the end.
        self.used = count;
        self.permitted = Direction::Bidirectional;
        self.bytes = bytes;
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Fills the table with a sink: for a device it looks like `len` bytes that begin at `offset`
    /// of a page, but all of its pages are the first page of `buffer`. Data that a device writes to
    /// a sink is lost. The table keeps the buffer.
    ///
    /// `EINVAL` if `len` is 0, or if the bytes take more segments than the table has room for;
    /// `EBUSY` if the table is mapped.
    pub fn set_sink(&mut self, buffer: PageBuffer, offset: usize, len: usize) -> Result {
        let offset = offset % SINK_PAGE_SIZE;
        let pages = (offset.checked_add(len).ok_or(EINVAL)?).div_ceil(SINK_PAGE_SIZE);
        let count = u32::try_from(pages)?;
        if len == 0 || count > self.capacity() {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        // SAFETY: The table has at least `count` entries, and the exclusive reference keeps other
        // users away.
        unsafe { bindings::sg_init_table(entries, count) };
        let (mut offset, mut left) = (offset, len);
        for index in 0..pages {
            let part = left.min(SINK_PAGE_SIZE - offset);
            // SAFETY: The entry is one of those that were initialised. The page is valid and has at
            // least `SINK_PAGE_SIZE` bytes, and `offset` and `part` are at most that.
            unsafe {
                let entry = entries.add(index);
                let (part, offset) = (part as u32, offset as u32);
                bindings::rnbd_helper_sg_set_page(entry, buffer.first_page(), part, offset);
            }
            (offset, left) = (0, left - part);
        }
        // INVARIANT: The entries name a page of the buffer, which the table keeps. The last entry
        // is marked as the end.
        self.used = count;
        self.permitted = Direction::FromDevice;
        self.is_sink = true;
        self.bytes = len;
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Empties the table and returns the buffer of [`Self::set_buffer()`]. `None`, and nothing is
    /// done, if the table is mapped.
    pub fn take_buffer(&mut self) -> Option<PageBuffer> {
        if self.is_mapped() {
            return None;
        }
        self.used = 0;
        self.bytes = 0;
        self.request = None;
        self.hold = None;
        self.is_sink = false;
        // The last entry in use stays marked as the end. The next function that fills the table
        // moves the mark.
        self.buffer.take()
    }

    /// The entries in use and their number, for C functions that access the pages. `None` if the
    /// pages must not be accessed in `direction`.
    #[inline(always)]
    pub(crate) fn pages(&self, direction: Direction) -> Option<(*mut bindings::scatterlist, u32)> {
        self.permitted
            .permits(direction)
            .then_some((self.entries.as_ptr().cast_mut(), self.used))
    }

    /// Maps the memory for `device`, on behalf of the region with the serial number `region`, which
    /// is not 0; see [`MemoryRegion::map()`](crate::rdma::MemoryRegion::map). Any context.
    pub(crate) fn map(&mut self, device: &Device, region: u64, direction: Direction) -> Result {
        if self.is_mapped() {
            return Err(EBUSY);
        }
        if self.used == 0 || !self.permitted.permits(direction) {
            return Err(EINVAL);
        }
        if let Some(Hold::Shared(shared)) = &self.hold {
            if let Some(entries) = shared.map(device, &mut self.entries)? {
                // INVARIANT: The entries are mapped for the device, and the direction is permitted.
                self.mapping = Mapping {
                    region,
                    entries,
                    direction,
                    is_shared: true,
                };
                return Ok(());
            }
        }
        // SAFETY: By the type invariant the entries name pages. `used` was a C int.
        let mapped = unsafe {
            bindings::rnbd_helper_ib_dma_map_sg(
                device.as_raw(),
                self.entries.as_mut_ptr(),
                self.used as c_int,
                direction.into(),
                self.is_sink,
            )
        };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: The entries were just mapped for that region.
        self.mapping = Mapping {
            region,
            entries: mapped as u32,
            direction,
            is_shared: false,
        };
        Ok(())
    }

    /// Whether the memory is mapped for a device.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        self.mapping.region != 0
    }

    /// Unmaps the memory; the table stays filled. Any context.
    ///
    /// # Safety
    ///
    /// The table is mapped for `device`, which does not use the memory any more.
    pub(crate) unsafe fn unmap(&mut self, device: &Device) {
        if self.mapping.is_shared {
            if let Some(Hold::Shared(shared)) = &self.hold {
                shared.unmap(device);
                // INVARIANT: The entries are not mapped any more.
                self.mapping.region = 0;
                return;
            }
        }
        let device = device.as_raw();
        // SAFETY: By the function's requirement the entries are mapped for the device, which does
        // not use them any more.
        unsafe {
            if !verbs::is_virtual(device) {
                bindings::rnbd_helper_ib_dma_unmap_sg(
                    device,
                    self.entries.as_mut_ptr(),
                    self.used as c_int,
                    self.mapping.direction.into(),
                    self.is_sink,
                );
            }
        }
        // INVARIANT: The entries are not mapped any more.
        self.mapping.region = 0;
    }

    /// The list and the number of its DMA entries; `None` unless the region with the serial number
    /// `region` has mapped the table.
    #[inline]
    pub(crate) fn mapped_by(&self, region: u64) -> Option<(*mut bindings::scatterlist, u32)> {
        (self.mapping.region == region)
            .then(|| (self.entries.as_ptr().cast_mut(), self.mapping.entries))
    }

    /// Restricts the access to the memory, as for a request.
    #[cfg(RNBD_KUNIT)]
    pub(crate) fn permit(&mut self, permitted: Direction) {
        // INVARIANT: The memory is that of a buffer, which may be accessed in every direction.
        self.permitted = permitted;
    }
}

// SAFETY: The entries name pages that are kept until the table is emptied or filled anew.
unsafe impl Source for ScatterTable {
    fn to_send(&self) -> Option<(*mut bindings::scatterlist, u32)> {
        self.pages(Direction::ToDevice)
    }

    fn num_bytes(&self) -> usize {
        self.bytes
    }

    fn empty(&mut self) {
        self.clear();
    }
}

impl SharedTable {
    /// Allocates a shared table for up to `max_segments` segments, at least 1. The memory is mapped
    /// for up to `max_devices` devices at a time; for a further device each request maps the memory
    /// itself. Sleeps.
    // Not inlined into other modules, as lockdep knows a class by the address of its name.
    #[inline(never)]
    pub fn new(max_segments: u32, max_devices: usize) -> Result<Self> {
        let table = ScatterTable::new(max_segments)?;
        let max_segments = table.capacity();
        Self::of(table, max_segments, max_devices)
    }
}

impl Drop for ScatterTable {
    fn drop(&mut self) {
        if self.is_mapped() {
            // A device may use the memory, so its owner must not get it back.
            core::mem::forget(self.buffer.take());
            core::mem::forget(self.request.take());
            core::mem::forget(self.hold.take());
        }
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "kunit/scatterlist.rs"]
mod tests;
