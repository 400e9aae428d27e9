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

/// Memory for several requests at a time, only to be sent; see [`shared`].
pub type SharedTable = shared::SharedTable<ScatterTable>;

/// The right to hand out memory that a [`SharedTable`] was filled with.
pub type Sharing = shared::Sharing<ScatterTable>;

/// The page size of registrations, which is at most that of memory.
const SINK_PAGE_SIZE: usize = 4096;

/// A scatterlist with room for a fixed number of segments, allocated once and filled many times.
///
/// # Invariants
///
/// - `entries` was initialised by `sg_init_table()` and is not chained.
/// - The first `used` entries name pages. If `buffer` is set, each of them names one of its pages.
///   If `request` is set, the pages are those of its request, which keeps them. If `hold` is set,
///   they are those that it keeps; a page to send from has one entry, from its beginning on.
///   Otherwise the pages are lent: the caller of [`Self::set_lent()`] keeps them for as long as
///   they may be accessed. If none is in use, there is none of these.
/// - The pages in use may be accessed as `permitted` says: those of a read are only to be
///   written, as what is in them is not meant for others, and those of a write only to be
///   read, as they may be somebody's that cannot write to them either.
/// - If `mapping` names a region, that region has mapped the entries in use as it says, for the
///   device of its domain, and neither they, nor what keeps the pages, nor `is_sink` is changed. If
///   `is_shared` is set there, the entries are those of the shared table's mapping for the device.
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

/// What keeps pages that several tables name at a time.
enum Hold {
    /// Those of a shared table.
    Shared(SharedHold<ScatterTable>),
    /// One of the pages to send from.
    Page { pages: Arc<SendPages>, index: usize },
}

/// How a table is mapped.
struct Mapping {
    /// The serial number of the memory region that has mapped it; 0 if none has.
    region: u64,
    /// The number of DMA entries.
    entries: u32,
    direction: Direction,
    /// It is the shared table's mapping.
    is_shared: bool,
}

// SAFETY: Owns its entries, and what keeps the pages they name, which is `Send`.
unsafe impl Send for ScatterTable {}

// SAFETY: Shared references give out numbers only.
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
        // SAFETY: There are that many entries.
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
        // It was made from a `u32`.
        self.entries.len() as u32
    }

    /// The length of all segments in use, in bytes.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The entries of the table, which is emptied, for C functions that fill them; `None` if it is
    /// mapped.
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

    /// Describes the data of a block request, which the table keeps until it is emptied: the
    /// request does not end before that. Any context.
    ///
    /// `EINVAL` if the data has more segments than the table has room for, or if there is none, as
    /// with all but reads and writes; `EBUSY` if the data is in a table already, or something else
    /// in this one is mapped.
    #[inline]
    pub fn set_request<D>(&mut self, request: &mut OwnedRequest<D>) -> Result {
        let permitted = match request.op() {
            Op::Read => Direction::FromDevice,
            Op::Write => Direction::ToDevice,
            // The others have a length, and no pages.
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
        // INVARIANT: That many entries have been filled, with pages of this request, which is a
        // read or a write as `permitted` says.
        self.used = used as u32;
        self.permitted = permitted;
        self.bytes = match (used, self.entries.first()) {
            (1, Some(entry)) => entry.length as usize,
            _ => self.sum(used as u32),
        };
        // There is none since the table was emptied, and so nothing to be dropped.
        core::mem::forget(self.request.replace(hold));
        Ok(())
    }

    /// Describes memory that a caller in C lends: a copy of the first `count` entries of `list`.
    /// For `Direction::FromDevice` the memory is only written, for `ToDevice` only read. Any
    /// context.
    ///
    /// `EINVAL` if `count` is 0 or more than the table has room for, if the list ends before, or if
    /// an entry names no page or no byte; `EBUSY` if something in the table is mapped. The table is
    /// empty then.
    ///
    /// # Safety
    ///
    /// `list` is a list of `struct scatterlist` whose last entry, if it is among the first `count`,
    /// is marked as the end, and nobody changes it meanwhile. What the entries name stays valid
    /// until the table is emptied or filled anew; or the caller has made sure that nobody maps or
    /// copies from or to the table from the moment on when the memory becomes invalid until then.
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
        // INVARIANT: That many entries have been filled, with pages that the caller keeps; the last
        // one is marked.
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

    /// Empties the table, unless it is mapped. If a block request has ended meanwhile, the block
    /// layer gets it back now. Any context.
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

    /// Lets go of what several tables name; out of line, as few requests have such memory.
    #[cold]
    #[inline(never)]
    fn drop_hold(&mut self) {
        self.hold = None;
    }

    /// Empties the table if its memory is that of a block request, or of a shared table; see
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

    /// Empties the table, whose memory is that of a shared one.
    #[cold]
    #[inline(never)]
    fn release_shared(&mut self) {
        self.clear();
    }

    /// Describes the memory of a shared table, only to be sent, which this one keeps until it is
    /// emptied. Any context.
    ///
    /// `EINVAL` if that takes more segments than there is room for, `EBUSY` if the table is mapped.
    pub fn set_shared(&mut self, sharing: &Sharing) -> Result {
        let (list, count) = sharing.table().to_send().ok_or(EINVAL)?;
        let room = self.capacity();
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        let mut bytes = 0;
        // SAFETY: There are `room` entries, and `count` in the list, which does not change as long
        // as it is shared.
        let used = unsafe {
            bindings::rnbd_helper_sg_copy_entries(entries, room, list, count, &mut bytes)
        };
        if used == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: That many entries have been filled, with pages of the shared table, which is
        // held. They may be read, and the last one is marked.
        self.used = used;
        self.permitted = Direction::ToDevice;
        self.bytes = bytes;
        self.hold = Some(Hold::Shared(sharing.hold()));
        Ok(())
    }

    /// Describes the first `len` bytes of `buffer`, which the table keeps: a segment for each page
    /// that they lie in. Any context.
    ///
    /// `EINVAL` if `len` is 0 or more than the buffer holds, or if that takes more segments than
    /// there is room for; `EBUSY` if the table is mapped. The buffer is lost then.
    pub fn set_buffer(&mut self, buffer: PageBuffer, len: u32) -> Result {
        let bytes = usize::try_from(len)?;
        let count = u32::try_from(bytes.div_ceil(PAGE_SIZE))?;
        if len == 0 || bytes > buffer.capacity() || count > self.capacity() {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        // SAFETY: There are that many entries, and nobody else uses them.
        unsafe { bindings::sg_init_table(entries, count) };
        for (index, (page, part)) in buffer.pages(bytes).enumerate() {
            // SAFETY: There are `count` pages, so the entry is one of those above. The page is
            // valid, and has at least `part` bytes.
            unsafe {
                let entry = entries.add(index);
                bindings::rnbd_helper_sg_set_page(entry, page, part as u32, 0);
            }
        }
        // INVARIANT: The entries name the buffer's pages, which are kept, and are ours to read and
        // write. The last one is marked.
        self.used = count;
        self.permitted = Direction::Bidirectional;
        self.bytes = bytes;
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Fills the table with `len` bytes that begin `offset` bytes behind the beginning of a page,
    /// as a device sees it. All of its pages are the first one of `buffer`, which the table keeps:
    /// what a device writes there is lost.
    ///
    /// `EINVAL` if `len` is 0, or if that takes more segments than there is room for; `EBUSY` if
    /// the table is mapped.
    pub fn set_sink(&mut self, buffer: PageBuffer, offset: usize, len: usize) -> Result {
        let offset = offset % SINK_PAGE_SIZE;
        let pages = (offset.checked_add(len).ok_or(EINVAL)?).div_ceil(SINK_PAGE_SIZE);
        let count = u32::try_from(pages)?;
        if len == 0 || count > self.capacity() {
            return Err(EINVAL);
        }
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        // SAFETY: There are that many entries, and nobody else uses them.
        unsafe { bindings::sg_init_table(entries, count) };
        let (mut offset, mut left) = (offset, len);
        for index in 0..pages {
            let part = left.min(SINK_PAGE_SIZE - offset);
            // SAFETY: The entry is one of those above, and the page, which has at least
            // `SINK_PAGE_SIZE` bytes, is valid. Both numbers are at most that size.
            unsafe {
                let entry = entries.add(index);
                let (part, offset) = (part as u32, offset as u32);
                bindings::rnbd_helper_sg_set_page(entry, buffer.first_page(), part, offset);
            }
            (offset, left) = (0, left - part);
        }
        // INVARIANT: The entries name a page of the buffer, which is kept, and is ours. The last
        // one is marked.
        self.used = count;
        self.permitted = Direction::FromDevice;
        self.is_sink = true;
        self.bytes = len;
        self.buffer = Some(buffer);
        Ok(())
    }

    /// Empties the table and gives back the buffer of [`Self::set_buffer()`]; not if it is mapped.
    pub fn take_buffer(&mut self) -> Option<PageBuffer> {
        if self.is_mapped() {
            return None;
        }
        self.used = 0;
        self.bytes = 0;
        self.request = None;
        self.hold = None;
        self.is_sink = false;
        // The first entry stays marked as the last, as after a request of one segment; who fills
        // the table next moves the mark.
        self.buffer.take()
    }

    /// The entries in use and their number, for C functions that access the pages; `None` if those
    /// may not be accessed as a device would for `direction`.
    #[inline(always)]
    pub(crate) fn pages(&self, direction: Direction) -> Option<(*mut bindings::scatterlist, u32)> {
        self.permitted
            .permits(direction)
            .then_some((self.entries.as_ptr().cast_mut(), self.used))
    }

    /// Maps the memory for `device`, on behalf of the region with that serial number, which is not
    /// 0; see [`MemoryRegion::map()`](crate::rdma::MemoryRegion::map). Any context.
    pub(crate) fn map(&mut self, device: &Device, region: u64, direction: Direction) -> Result {
        if self.is_mapped() {
            return Err(EBUSY);
        }
        if self.used == 0 || !self.permitted.permits(direction) {
            return Err(EINVAL);
        }
        if let Some(Hold::Shared(shared)) = &self.hold {
            if let Some(entries) = shared.map(device, &mut self.entries)? {
                // INVARIANT: They are mapped for the device, and the direction is the one that is
                // permitted.
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
        // INVARIANT: Just mapped, for that region.
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
                // INVARIANT: Not mapped any more.
                self.mapping.region = 0;
                return;
            }
        }
        let device = device.as_raw();
        // SAFETY: By the function's requirement, and the entries are those that were mapped.
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
        // INVARIANT: Not mapped any more.
        self.mapping.region = 0;
    }

    /// The list and the number of its DMA entries; `None` if the region with that serial number has
    /// not mapped it.
    #[inline]
    pub(crate) fn mapped_by(&self, region: u64) -> Option<(*mut bindings::scatterlist, u32)> {
        (self.mapping.region == region)
            .then(|| (self.entries.as_ptr().cast_mut(), self.mapping.entries))
    }

    /// Lets the memory be accessed as that of a request may be.
    #[cfg(RNBD_KUNIT)]
    pub(crate) fn permit(&mut self, permitted: Direction) {
        // INVARIANT: It is the buffer's.
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
    /// Allocates a shared table for up to `max_segments` segments, at least 1, that is mapped for
    /// up to `max_devices` devices at a time; for further ones each request maps the memory itself.
    /// Sleeps.
    // Not in other modules: lockdep knows a class by the address of its name.
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
