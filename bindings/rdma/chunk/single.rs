// SPDX-License-Identifier: GPL-2.0

//! One chunk, with what requests for it need at hand.
//!
//! A [`ChunkSet`] finds a chunk by its number, and its memory in a list of segments. Nearly always
//! a chunk is one block, of which all that is known when it is allocated and mapped; so whoever has
//! many requests for the same chunk keeps that.

use super::{
    ChunkSet,
    MappedChunks, //
};
use crate::{
    bindings,
    block::memory::{
        Memory,
        Segment, //
    },
    prelude::*,
    rdma::{
        verbs,
        Direction,
        Sge, //
    },
    scatterlist::ScatterTable,
    sync::shared_memory, //
};
use core::{
    array,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    sync::Arc, //
};

/// The memory of a chunk that is one block.
#[derive(Clone, Copy)]
struct Block {
    address: NonNull<u8>,
    page: NonNull<bindings::page>,
}

/// A chunk, which it keeps, and the set with it. Dropped in process context.
///
/// # Invariants
///
/// - `index` is a chunk of `set`, whose chunks have `size` bytes.
/// - `block` is the memory of the chunk, if it is one block.
pub struct Chunk {
    set: Arc<ChunkSet>,
    index: usize,
    size: usize,
    block: Option<Block>,
}

// SAFETY: The pointers are into the set, which may be used from anywhere.
unsafe impl Send for Chunk {}

// SAFETY: As above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Chunk `index` of `set`. `EINVAL` if there is none.
    pub fn new(set: &Arc<ChunkSet>, index: usize) -> Result<Self> {
        let block = match set.segments(index).ok_or(EINVAL)? {
            [segment] => Some(Block {
                address: segment.address(),
                page: segment.page(),
            }),
            _ => None,
        };
        // INVARIANT: The set has the chunk.
        Ok(Self {
            set: set.clone(),
            index,
            size: set.chunk_size(),
            block,
        })
    }

    /// Its number in the set.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Copies the bytes at `offset` to `bytes`. Any context. `EINVAL` if there are not as many.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.set.copy_out(self.index, offset, bytes)
    }

    /// A copy of the `N` words at `offset`; for messages that are short. Each is read once. Any
    /// context.
    ///
    /// `None` if they are not all within the chunk, are not aligned, or if the chunk is not one
    /// block: then [`Self::copy_out()`] may be able to.
    #[inline(always)]
    pub fn copy_words<const N: usize>(&self, offset: usize) -> Option<[[u8; 8]; N]> {
        let block = self.block?;
        let end = offset.checked_add(const { N * size_of::<u64>() })?;
        if end > self.size || offset % size_of::<u64>() != 0 {
            return None;
        }
        // SAFETY: Within the chunk, as just checked.
        let from = unsafe { block.address.as_ptr().add(offset) };
        Some(array::from_fn(|i| {
            // SAFETY: As above; a block begins with a page, so the word is aligned.
            unsafe { shared_memory::load_word(from.add(i * size_of::<u64>())) }
        }))
    }

    /// Copies `bytes` to `offset`. Any context. `EINVAL` if they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result {
        self.set.copy_in(self.index, offset, bytes)
    }

    /// Copies the first `len` bytes to the beginning of `to`. Any context.
    ///
    /// `EINVAL` if either has less, or if they are the same one.
    #[inline]
    pub fn copy_to(&self, len: usize, to: &Self) -> Result {
        let (Some(from), Some(block)) = (self.block, to.block) else {
            return self.set.copy_to(self.index, len, &to.set, to.index);
        };
        if len > self.size || len > to.size || from.address == block.address {
            return Err(EINVAL);
        }
        // SAFETY: Both have that many bytes. Chunks are only accessed by copying, and these two do
        // not overlap: each is made of pages of its own.
        unsafe { shared_memory::copy(block.address.as_ptr(), from.address.as_ptr(), len) };
        Ok(())
    }

    /// Where the chunk is in the kernel, if it is one block: a pointer that is valid for
    /// [`ChunkSet::chunk_size()`] bytes as long as the chunk is there, and that devices and peers
    /// write to. Any context.
    #[inline]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.block.map(|block| block.address)
    }

    /// The first `len` bytes; `None` if there are not as many.
    #[inline]
    pub fn data(&self, len: usize) -> Option<ChunkData<'_>> {
        // INVARIANT: Only if there are that many bytes.
        (len <= self.size).then_some(ChunkData { chunk: self, len })
    }
}

/// The first bytes of a chunk.
///
/// # Invariants
///
/// The chunk has at least `len` bytes.
#[derive(Clone, Copy)]
pub struct ChunkData<'a> {
    chunk: &'a Chunk,
    len: usize,
}

impl ChunkData<'_> {
    /// Where the bytes are in the kernel; see [`Chunk::address()`]. Any context.
    #[inline]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.chunk.address()
    }

    /// Copies `bytes` to `offset`. Any context. `EINVAL` if they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result {
        match offset.checked_add(bytes.len()) {
            Some(end) if end <= self.len => self.chunk.copy_in(offset, bytes),
            _ => Err(EINVAL),
        }
    }

    /// Copies the bytes at `offset` to `bytes`. Any context. `EINVAL` if there are not as many.
    ///
    /// A peer that can write to the chunk may do so meanwhile: then each byte is an old or a new
    /// one.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        match offset.checked_add(bytes.len()) {
            Some(end) if end <= self.len => self.chunk.copy_out(offset, bytes),
            _ => Err(EINVAL),
        }
    }
}

// SAFETY: The borrowed chunk holds the set, whose pages are not freed before, and which are only
// accessed by copying, so that a device may write to them. The pieces are not empty and add up to
// the length; segments consist of whole pages.
unsafe impl Memory for ChunkData<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn only_segment(&self) -> Option<Segment> {
        match self.chunk.block {
            Some(block) if self.len != 0 => Some(Segment {
                page: block.page,
                offset: 0,
                // A block has far less than 4 GiB.
                len: self.len as u32,
            }),
            _ => None,
        }
    }

    #[inline]
    fn for_each_segment(&self, mut visit: impl FnMut(Segment)) {
        let chunk = self.chunk;
        chunk
            .set
            .for_each_piece(chunk.index, 0..self.len, |_, segment, piece| {
                // SAFETY: The piece begins within the segment, whose pages are contiguous, and so
                // are their descriptors.
                let page = unsafe { segment.page().add(piece.start >> PAGE_SHIFT) };
                visit(Segment {
                    page,
                    // Both fit: they are at most the size of a segment.
                    offset: (piece.start % PAGE_SIZE) as u32,
                    len: piece.len() as u32,
                });
            });
    }
}

/// A chunk that is mapped for the device of a protection domain.
///
/// Dropped in process context.
///
/// # Invariants
///
/// - `chunk` is a chunk of `mapped`, whose mapping stays until its domain goes.
/// - `address` is that of the chunk for the domain's device, if the chunk is one block; `lkey` and
///   `domain_serial` are of the domain.
pub struct MappedChunk {
    chunk: Chunk,
    address: Option<u64>,
    lkey: u32,
    domain_serial: u64,
    /// The device is not software that uses the CPU's addresses.
    synchronise: bool,
    mapped: Arc<MappedChunks>,
}

impl MappedChunk {
    /// Chunk `index` of `mapped`. `EINVAL` if there is none.
    pub fn new(mapped: &Arc<MappedChunks>, index: usize) -> Result<Self> {
        let chunk = Chunk::new(mapped.set(), index)?;
        let domain = mapped.domain();
        // INVARIANT: As `mapped` has it.
        Ok(Self {
            chunk,
            address: mapped.block_address(index),
            lkey: domain.local_dma_lkey(),
            domain_serial: domain.serial(),
            // SAFETY: The domain keeps its device.
            synchronise: !unsafe { verbs::is_virtual(domain.device().as_raw()) },
            mapped: mapped.clone(),
        })
    }

    /// The first `len` bytes as one scatter entry; `None` if that is not possible, or if they are
    /// none. Any context.
    #[inline]
    pub fn sge(&self, len: usize) -> Option<Sge> {
        self.address
            .filter(|_| len != 0 && len <= self.chunk.size)
            // SAFETY: By the type invariant that much is mapped there, and as long as the domain is
            // there.
            .map(|addr| unsafe { Sge::new(addr, len as u32, self.lkey, self.domain_serial) })
    }

    /// Where the chunk is, if it is one block and has `len` bytes.
    #[inline]
    fn block(&self, len: usize) -> Option<NonNull<u8>> {
        self.chunk
            .block
            .filter(|_| len <= self.chunk.size)
            .map(|block| block.address)
    }

    /// Makes what peers wrote to the first `len` bytes visible to the CPU. Any context.
    ///
    /// `EINVAL` if there are not as many, which is not looked at for a device that uses the CPU's
    /// addresses.
    #[inline]
    pub fn sync_for_cpu(&self, len: usize) -> Result {
        if self.synchronise {
            self.mapped.sync_for_cpu(self.chunk.index, 0, len)
        } else {
            Ok(())
        }
    }

    /// Makes what the CPU wrote to the first `len` bytes visible to the device; as
    /// [`Self::sync_for_cpu()`].
    #[inline]
    pub fn sync_for_device(&self, len: usize) -> Result {
        if self.synchronise {
            self.mapped.sync_for_device(self.chunk.index, 0, len)
        } else {
            Ok(())
        }
    }

    /// Copies the bytes at the start of the chunk, which a peer wrote, to the memory of `table`.
    /// Any context.
    ///
    /// `EINVAL` if the chunk is shorter, or is not one block, or if the memory must not be written
    /// to: that of a write request.
    #[inline(always)]
    pub fn copy_to_table(&self, table: &mut ScatterTable) -> Result {
        let len = table.byte_len();
        let from = self.block(len).ok_or(EINVAL)?;
        let (entries, used) = table.pages(Direction::FromDevice).ok_or(EINVAL)?;
        self.sync_for_cpu(len)?;
        // SAFETY: The entries name pages that the table keeps, and may be written to; `len` bytes
        // are at `from`.
        let copied = unsafe {
            bindings::rnbd_helper_sg_copy_from_buffer(entries, used, from.as_ptr().cast(), len)
        };
        if copied != len {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Copies the memory of `table` to the start of the chunk, from where the device is to send it;
    /// returns the scatter entry of the copy. Any context.
    ///
    /// `EINVAL` if the chunk is shorter, or is not one block, if the table is empty, or if it has
    /// the memory of a read request: that holds what its last user left.
    #[inline(always)]
    pub fn copy_from_table(&self, table: &ScatterTable) -> Result<Sge> {
        let len = table.byte_len();
        let to = self.block(len).ok_or(EINVAL)?;
        let (entries, used) = table.pages(Direction::ToDevice).ok_or(EINVAL)?;
        // SAFETY: The entries name pages that the table keeps; `len` bytes are at `to`. Chunks are
        // only accessed by copying.
        let copied = unsafe {
            bindings::rnbd_helper_sg_copy_to_buffer(entries, used, to.as_ptr().cast(), len)
        };
        if copied != len {
            return Err(EINVAL);
        }
        self.sync_for_device(len)?;
        self.sge(len).ok_or(EINVAL)
    }
}

impl Deref for MappedChunk {
    type Target = Chunk;

    #[inline]
    fn deref(&self) -> &Chunk {
        &self.chunk
    }
}
