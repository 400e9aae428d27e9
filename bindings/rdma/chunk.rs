// SPDX-License-Identifier: GPL-2.0

//! The server's memory: chunks. Clients write requests to them, and the server sends the data of
//! reads from them.
//!
//! No reference to the bytes of a chunk is ever made, as a peer may write to them at any time. The
//! module `shared_memory` copies them in and out, and devices access them by DMA.

use crate::{
    bindings,
    page::Pages,
    prelude::*,
    rdma::{
        pd::Retained,
        verbs,
        Direction,
        MemoryRegion,
        ProtectionDomain,
        SendBatch,
        Sge,
        REGION_PAGE_SIZE, //
    },
    sync::shared_memory, //
};
use core::{
    ops::Range,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::sync::Arc;

mod allocator;
mod pool;
pub mod single;

pub use pool::ChunkPool;

use allocator::Allocator;

/// Chunks of one size, made of zeroed pages. The last reference must be dropped in process context.
///
/// # Invariants
///
/// - `segments` holds the chunks one after the other; each chunk has exactly `chunk_size` bytes.
/// - `first` has `count + 1` elements: for each chunk the index of its first segment in `segments`,
///   and last the number of segments.
/// - The first `pooled` chunks come from `pool`.
pub struct ChunkSet {
    segments: KVVec<Pages>,
    first: KVVec<usize>,
    chunk_size: usize,
    count: usize,
    pool: Option<Arc<ChunkPool>>,
    pooled: usize,
}

impl Drop for ChunkSet {
    fn drop(&mut self) {
        let (Some(pool), Some(&end)) = (&self.pool, self.first.get(self.pooled)) else {
            return;
        };
        self.segments.truncate(end);
        for &start in self.first[..self.pooled].iter().rev() {
            pool.put(&mut self.segments, start);
        }
    }
}

impl ChunkSet {
    /// Allocates `count` chunks of `chunk_size` bytes, if possible on `node` (-1 for any). Sleeps.
    ///
    /// Free chunks of `pool` are used first, and return to it when the set is dropped. `EINVAL`
    /// unless `chunk_size` is a multiple of the page size, not 0, and the chunk size of `pool`.
    /// `ENOMEM` if there is not enough memory, or if hardly any would be left for the rest of the
    /// machine.
    pub fn new(
        count: usize,
        chunk_size: usize,
        node: i32,
        pool: Option<&Arc<ChunkPool>>,
    ) -> Result<Arc<Self>> {
        Self::allocate(count, chunk_size, node, pool, false)
    }

    /// As [`Self::new()`], but each chunk is one block: its bytes are contiguous in the kernel's
    /// address space. Sleeps.
    ///
    /// Chunks of `pool` are used up to the first chunk that is not one block. `EINVAL` unless
    /// `chunk_size` is the page size times a power of two, `ENOMEM` if there are not enough such
    /// blocks, though there may be as much memory in smaller ones.
    pub fn of_blocks(
        count: usize,
        chunk_size: usize,
        node: i32,
        pool: Option<&Arc<ChunkPool>>,
    ) -> Result<Arc<Self>> {
        Self::allocate(count, chunk_size, node, pool, true)
    }

    fn allocate(
        count: usize,
        chunk_size: usize,
        node: i32,
        pool: Option<&Arc<ChunkPool>>,
        blocks: bool,
    ) -> Result<Arc<Self>> {
        if pool.is_some_and(|pool| pool.chunk_size() != chunk_size) {
            return Err(EINVAL);
        }
        // INVARIANT: There are no chunks yet. On an error the set is dropped, which returns its
        // chunks to the pool.
        let mut set = Self {
            segments: KVVec::with_capacity(count, GFP_KERNEL)?,
            first: KVVec::with_capacity(count.checked_add(1).ok_or(EINVAL)?, GFP_KERNEL)?,
            chunk_size,
            count: 0,
            pool: pool.cloned(),
            pooled: 0,
        };
        set.first.push(0, GFP_KERNEL)?;
        if let Some(pool) = pool {
            while set.count < count && pool.take(&mut set.segments, blocks)? {
                set.finish_chunk()?;
                set.pooled += 1;
            }
        }
        let mut allocator = Allocator::new(count - set.count, chunk_size, node)?;
        while set.count < count {
            if blocks {
                allocator.add_block(&mut set.segments)?;
            } else {
                allocator.add_chunk(&mut set.segments)?;
            }
            set.finish_chunk()?;
        }
        Ok(Arc::new(set, GFP_KERNEL)?)
    }

    /// Checks whether there is memory for `count` chunks of `chunk_size` bytes: `ENOMEM` if not.
    /// [`Self::new()`] may fail all the same, as nothing is reserved. Any context.
    pub fn check(count: usize, chunk_size: usize, pool: Option<&ChunkPool>) -> Result {
        let pooled = pool.map_or(0, |pool| pool.free_memory() / pool.chunk_size().max(1));
        Allocator::new(count - pooled.min(count), chunk_size, -1).map(drop)
    }

    /// Makes the segments after the last chunk a further chunk.
    fn finish_chunk(&mut self) -> Result {
        // `allocate()` has reserved the capacity.
        self.first.push(self.segments.len(), GFP_KERNEL)?;
        // INVARIANT: The caller has added segments of `chunk_size` bytes.
        self.count += 1;
        Ok(())
    }

    /// The memory that the chunks and their description take, in bytes.
    pub fn memory(&self) -> usize {
        self.count * self.chunk_size
            + self.segments.capacity() * size_of::<Pages>()
            + self.first.capacity() * size_of::<usize>()
    }

    /// The part of the chunks' memory that comes from the pool, in bytes.
    pub fn pooled_memory(&self) -> usize {
        self.pooled * self.chunk_size
    }

    /// The number of chunks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The size of each chunk in bytes.
    pub fn chunk_size(&self) -> usize {
        self.chunk_size
    }

    /// The segments of a chunk.
    #[inline]
    fn segments(&self, index: usize) -> Option<&[Pages]> {
        let start = *self.first.get(index)?;
        let end = *self.first.get(index.checked_add(1)?)?;
        self.segments.get(start..end)
    }

    /// Whether chunk `index` exists, and `range` is within a chunk.
    #[inline]
    fn contains(&self, index: usize, range: &Range<usize>) -> bool {
        index < self.count && range.start <= range.end && range.end <= self.chunk_size
    }

    /// Calls `f` with each piece of `range` of a chunk: the segment's number within the set, the
    /// segment, and the range within it; none is empty.
    ///
    /// Does nothing if the range is not within the chunk.
    #[inline]
    fn for_each_piece(
        &self,
        index: usize,
        range: Range<usize>,
        mut f: impl FnMut(usize, &Pages, Range<usize>),
    ) {
        let (Some(&first), Some(segments)) = (self.first.get(index), self.segments(index)) else {
            return;
        };
        match segments {
            _ if range.is_empty() || !self.contains(index, &range) => {}
            // The usual case.
            [segment] => f(first, segment, range),
            _ => {
                let mut base = 0;
                for (number, segment) in (first..).zip(segments) {
                    // The lengths add up to the chunk's size, so no addition overflows.
                    let end = base + segment.len();
                    if range.start < end && base < range.end {
                        let start = range.start.max(base) - base;
                        f(number, segment, start..range.end.min(end) - base);
                    }
                    base = end;
                }
            }
        }
    }

    /// Copies the bytes at `offset` of a chunk to `bytes`. Any context.
    ///
    /// `EINVAL` if they are not all within the chunk.
    #[inline]
    pub fn copy_out(&self, index: usize, offset: usize, bytes: &mut [u8]) -> Result {
        let range = self.range(index, offset, bytes.len())?;
        let mut to = bytes.as_mut_ptr();
        self.for_each_piece(index, range, |_, segment, piece| {
            // SAFETY: The piece is within the segment, and the pieces add up to the length of
            // `bytes`.
            unsafe {
                let from = segment.address().as_ptr().add(piece.start);
                shared_memory::copy(to, from, piece.len());
                to = to.add(piece.len());
            }
        });
        Ok(())
    }

    /// Copies `bytes` to `offset` of a chunk. Any context.
    ///
    /// `EINVAL` if they do not fit.
    pub fn copy_in(&self, index: usize, offset: usize, bytes: &[u8]) -> Result {
        let range = self.range(index, offset, bytes.len())?;
        let mut from = bytes.as_ptr();
        self.for_each_piece(index, range, |_, segment, piece| {
            // SAFETY: The piece is within the segment, and the pieces add up to the length of
            // `bytes`. Chunks are only accessed by copying, so that no reference is affected.
            unsafe {
                let to = segment.address().as_ptr().add(piece.start);
                shared_memory::copy(to, from, piece.len());
                from = from.add(piece.len());
            }
        });
        Ok(())
    }

    /// Copies the first `len` bytes of a chunk to chunk `to_index` of `to`. Any context.
    ///
    /// `EINVAL` if a chunk has fewer bytes, or if both are the same chunk.
    #[inline]
    fn copy_to(&self, index: usize, len: usize, to: &ChunkSet, to_index: usize) -> Result {
        let range = self.range(index, 0, len)?;
        to.range(to_index, 0, len)?;
        if ptr::eq(self, to) && index == to_index {
            return Err(EINVAL);
        }
        let mut done = 0;
        self.for_each_piece(index, range, |_, segment, piece| {
            let (start, end) = (done, done + piece.len());
            let mut from = segment.address().as_ptr().wrapping_add(piece.start);
            to.for_each_piece(to_index, start..end, |_, segment, piece| {
                // SAFETY: Both pieces are within their segments: `from` moves through the outer
                // piece, and the inner ones add up to its length. Chunks are only accessed by
                // copying. These are two different chunks, and no two chunks share a page.
                unsafe {
                    let to = segment.address().as_ptr().add(piece.start);
                    shared_memory::copy(to, from, piece.len());
                    from = from.add(piece.len());
                }
            });
            done = end;
        });
        Ok(())
    }

    /// The address and length of a chunk that is one block.
    #[inline]
    fn contiguous(&self, index: usize) -> Option<(NonNull<u8>, usize)> {
        match self.segments(index)? {
            [segment] => Some((segment.address(), segment.len())),
            _ => None,
        }
    }

    #[inline]
    fn range(&self, index: usize, offset: usize, len: usize) -> Result<Range<usize>> {
        let range = offset..offset.checked_add(len).ok_or(EINVAL)?;
        if !self.contains(index, &range) {
            return Err(EINVAL);
        }
        Ok(range)
    }
}

/// The DMA addresses of a set's segments.
///
/// # Invariants
///
/// - The first `addresses.len()` segments of `set` are mapped for `device`, for both directions,
///   each at its element of `addresses`. As many entries of `list` describe these segments. After
///   the construction these are all segments.
/// - `device` is valid, as the protection domain holds a handle of it.
struct Mappings {
    set: Arc<ChunkSet>,
    list: KVVec<bindings::scatterlist>,
    addresses: KVVec<u64>,
    device: *mut bindings::ib_device,
}

// SAFETY: A `Mappings` may be dropped in any task, and its fields are otherwise only read.
unsafe impl Send for Mappings {}

// SAFETY: As above.
unsafe impl Sync for Mappings {}

impl Drop for Mappings {
    fn drop(&mut self) {
        for (segment, &address) in self.set.segments.iter().zip(self.addresses.iter()) {
            // SAFETY: By the type invariant the segment is mapped. `Retained` keeps the mapping
            // while work requests name it.
            unsafe {
                bindings::rnbd_helper_ib_dma_unmap_single(
                    self.device,
                    address,
                    segment.len(),
                    Direction::Bidirectional.into(),
                )
            };
        }
    }
}

/// All chunks of a set, mapped for the device of a protection domain.
///
/// The memory stays as long as the protection domain.
pub struct MappedChunks(Retained<Mappings>);

impl MappedChunks {
    /// Maps `set`. Sleeps.
    ///
    /// `EIO` if the device cannot reach the memory, `EINVAL` if there are no chunks.
    pub fn new(domain: &Arc<ProtectionDomain>, set: &Arc<ChunkSet>) -> Result<Self> {
        let device = domain.device().as_raw();
        let total = set.segments.len();
        let entries = u32::try_from(total)?;
        if entries == 0 {
            // `sg_init_table()` would write the end mark in front of an empty table.
            return Err(EINVAL);
        }
        let mut list = KVVec::from_elem(bindings::scatterlist::default(), total, GFP_KERNEL)?;
        // SAFETY: `list` has `entries` elements.
        unsafe { bindings::sg_init_table(list.as_mut_ptr(), entries) };
        // INVARIANT: Nothing is mapped.
        let mut mappings = Mappings {
            set: set.clone(),
            list,
            addresses: KVVec::with_capacity(total, GFP_KERNEL)?,
            device,
        };
        for (segment, entry) in set.segments.iter().zip(mappings.list.iter_mut()) {
            let len = segment.len();
            // SAFETY: The device is valid, and the segment is that long.
            let address = unsafe {
                bindings::rnbd_helper_ib_dma_map_single(
                    device,
                    segment.address().as_ptr().cast(),
                    len,
                    Direction::Bidirectional.into(),
                )
            };
            // SAFETY: The device is valid.
            if unsafe { bindings::rnbd_helper_ib_dma_mapping_error(device, address) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: The next segment is mapped. There is capacity for all.
            mappings.addresses.push(address, GFP_KERNEL)?;
            let len = u32::try_from(len)?;
            // SAFETY: The entry and the page are valid.
            unsafe {
                bindings::rnbd_helper_sg_set_page(entry, segment.page().as_ptr(), len, 0);
                bindings::rnbd_helper_sg_set_dma(entry, address, len);
            }
        }
        Ok(Self(Retained::new(domain, mappings)?))
    }

    /// The chunks.
    #[inline]
    pub fn set(&self) -> &Arc<ChunkSet> {
        &self.0.set
    }

    /// The protection domain.
    #[inline]
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        self.0.domain()
    }

    /// The DMA address of a chunk that is one block.
    fn block_address(&self, index: usize) -> Option<u64> {
        self.0.set.contiguous(index)?;
        let number = *self.0.set.first.get(index)?;
        self.0.addresses.get(number).copied()
    }

    /// The most scatter entries that a range of a chunk takes.
    pub fn max_sges(&self) -> usize {
        let set = &self.0.set;
        (0..set.count)
            .filter_map(|index| set.segments(index))
            .map(<[Pages]>::len)
            .fold(0, usize::max)
    }

    /// Adds scatter entries for `len` bytes at `offset` of a chunk to the next request of `batch`,
    /// until that request has `limit` entries. Returns how many bytes the entries cover. Any
    /// context.
    ///
    /// `EINVAL` if `len` is 0, if not all bytes are within the chunk, or if `batch` names memory of
    /// another protection domain.
    #[inline]
    pub fn add_sges<const N: usize, const S: usize>(
        &self,
        index: usize,
        offset: usize,
        len: usize,
        batch: &mut SendBatch<'_, N, S>,
        limit: usize,
    ) -> Result<usize> {
        if len == 0 {
            return Err(EINVAL);
        }
        let range = self.0.set.range(index, offset, len)?;
        let (lkey, domain) = (self.domain().local_dma_lkey(), self.domain().serial());
        batch.common_domain(domain)?;
        let mut covered = 0;
        self.0.set.for_each_piece(index, range, |number, _, piece| {
            if batch.pending() >= limit {
                return;
            }
            if let Some(address) = self.0.addresses.get(number) {
                let address = address + piece.start as u64;
                // SAFETY: The piece is not empty, and is part of a segment that stays mapped for
                // the domain as long as the domain exists.
                let sge = unsafe { Sge::new(address, piece.len() as u32, lkey, domain) };
                if batch.add(sge).is_ok() {
                    covered += piece.len();
                }
            }
        });
        Ok(covered)
    }

    /// Makes what peers wrote to a range visible to the CPU. Any context.
    ///
    /// `EINVAL` if it is not all within the chunk.
    #[inline]
    pub fn sync_for_cpu(&self, index: usize, offset: usize, len: usize) -> Result {
        self.sync(index, offset, len, false)
    }

    /// Makes what the CPU wrote to a range visible to the device. Any context.
    ///
    /// `EINVAL` if it is not all within the chunk.
    #[inline]
    pub fn sync_for_device(&self, index: usize, offset: usize, len: usize) -> Result {
        self.sync(index, offset, len, true)
    }

    /// Makes a range visible to the device, or to the CPU. Does nothing for a device that uses the
    /// CPU's addresses.
    ///
    /// `EINVAL` if it is not all within the chunk.
    fn sync(&self, index: usize, offset: usize, len: usize, to_device: bool) -> Result {
        let range = self.0.set.range(index, offset, len)?;
        // SAFETY: By the type invariant of `Mappings` the device is valid.
        if unsafe { verbs::is_virtual(self.0.device) } {
            return Ok(());
        }
        self.0.set.for_each_piece(index, range, |number, _, piece| {
            if let Some(address) = self.0.addresses.get(number) {
                let address = address + piece.start as u64;
                let (device, both) = (self.0.device, Direction::Bidirectional.into());
                // SAFETY: The device is valid, and the piece is part of a segment that is mapped
                // for it, for both directions.
                unsafe {
                    if to_device {
                        verbs::sync_for_device(device, address, piece.len(), both);
                    } else {
                        verbs::sync_for_cpu(device, address, piece.len(), both);
                    }
                }
            }
        });
        Ok(())
    }

    /// How many chunks a memory region of up to `max_pages` pages can hold.
    pub fn chunks_per_region(&self, max_pages: u32) -> usize {
        let pages = self.0.set.chunk_size / REGION_PAGE_SIZE;
        // `pages` is at least 1. The checked division keeps the compiler from adding a panic.
        (max_pages as usize).checked_div(pages).unwrap_or(0)
    }

    /// Makes a memory region of `count` chunks from `first` on, with a new key.
    ///
    /// Chunk `first + i` is at `iova() + i * chunk_size` of the region. Sleeps. `EINVAL` if `count`
    /// is 0, if the set has not all of these chunks, or if they are more than the device can
    /// register at once.
    pub fn region(&self, first: usize, count: usize) -> Result<MemoryRegion> {
        let set = &self.0.set;
        let end = first.checked_add(count).ok_or(EINVAL)?;
        let start = *set.first.get(first).ok_or(EINVAL)?;
        let end = *set.first.get(end).ok_or(EINVAL)?;
        let entries = self.0.list.get(start..end).ok_or(EINVAL)?;
        if entries.is_empty() {
            return Err(EINVAL);
        }
        let pages = count
            .checked_mul(set.chunk_size / REGION_PAGE_SIZE)
            .ok_or(EINVAL)?;
        let region = MemoryRegion::new(self.domain(), u32::try_from(pages)?, 0)?;
        let (list, len) = (entries.as_ptr().cast_mut(), u32::try_from(entries.len())?);
        // SAFETY: The entries are mapped for the domain's device, for both directions, as long as
        // the domain exists, which retains the mappings. The list is only read.
        unsafe { region.map_permanently(list, len, Direction::Bidirectional) }?;
        Ok(region)
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/chunk.rs"]
mod tests;
