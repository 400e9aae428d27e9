// SPDX-License-Identifier: GPL-2.0

//! One chunk, with its address looked up in advance for requests.
//!
//! A [`ChunkSet`] finds a chunk by its number, and the memory of the chunk in a list of segments.
//! Nearly always a chunk is one block, whose address is known when the block is allocated and
//! mapped. So a user with many requests for the same chunk keeps a [`Chunk`], or a [`MappedChunk`].

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

/// A chunk; keeps its set. Must be dropped in process context.
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

    /// The number of the chunk in the set.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Copies the bytes at `offset` to `bytes`. Any context. `EINVAL` if there are not as many.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.set.copy_out(self.index, offset, bytes)
    }

    /// A copy of the `N` words at `offset`, each read once; for short messages. Any context.
    ///
    /// `None` if the words are not all within the chunk, if they are not aligned, or if the chunk
    /// is not one block. [`Self::copy_out()`] needs no alignment, and copies from a chunk of
    /// several blocks, too.
    #[inline(always)]
    pub fn copy_words<const N: usize>(&self, offset: usize) -> Option<[[u8; 8]; N]> {
        let block = self.block?;
        let end = offset.checked_add(const { N * size_of::<u64>() })?;
        if end > self.size || offset % size_of::<u64>() != 0 {
            return None;
        }
        // SAFETY: The offset is within the chunk, as was just checked.
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
    /// `EINVAL` if a chunk has fewer bytes, or if both are the same chunk.
    #[inline]
    pub fn copy_to(&self, len: usize, to: &Self) -> Result {
        let (Some(from), Some(block)) = (self.block, to.block) else {
            return self.set.copy_to(self.index, len, &to.set, to.index);
        };
        if len > self.size || len > to.size || from.address == block.address {
            return Err(EINVAL);
        }
        // SAFETY: Both chunks have that many bytes. Chunks are only accessed by copying, and these
        // two do not overlap, as no two chunks share a page.
        unsafe { shared_memory::copy(block.address.as_ptr(), from.address.as_ptr(), len) };
        Ok(())
    }

    /// The kernel's address of the chunk; `None` if the chunk is not one block. The pointer is
    /// valid for [`ChunkSet::chunk_size()`] bytes as long as the chunk exists. Devices and peers
    /// write to these bytes. Any context.
    #[inline]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.block.map(|block| block.address)
    }

    /// The first `len` bytes; `None` if there are not as many.
    #[inline]
    pub fn data(&self, len: usize) -> Option<ChunkData<'_>> {
        // INVARIANT: `then_some()` returns the value only if the chunk has that many bytes.
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
    /// The kernel's address of the bytes; see [`Chunk::address()`]. Any context.
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
    /// If a peer writes to the chunk meanwhile, each byte of the copy is an old or a new one.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        match offset.checked_add(bytes.len()) {
            Some(end) if end <= self.len => self.chunk.copy_out(offset, bytes),
            _ => Err(EINVAL),
        }
    }
}

// SAFETY: The borrowed chunk holds the set, so its pages are not freed meanwhile. They are only
// accessed by copying, so a device may write to them. The pieces are not empty and add up to the
// length, and segments consist of whole pages.
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
/// - `chunk` is a chunk of `mapped`, whose mapping stays as long as its domain.
/// - `address` is the DMA address of the chunk for the domain's device, if the chunk is one block.
///   `lkey` and `domain_serial` are those of the domain.
pub struct MappedChunk {
    chunk: Chunk,
    address: Option<u64>,
    lkey: u32,
    domain_serial: u64,
    /// Whether the memory must be synchronised: not for a software device, which uses the CPU's
    /// addresses.
    synchronise: bool,
    mapped: Arc<MappedChunks>,
}

impl MappedChunk {
    /// Chunk `index` of `mapped`. `EINVAL` if there is none.
    pub fn new(mapped: &Arc<MappedChunks>, index: usize) -> Result<Self> {
        let chunk = Chunk::new(mapped.set(), index)?;
        let domain = mapped.domain();
        // INVARIANT: All values come from `mapped` and its domain.
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

    /// The first `len` bytes as one scatter entry. `None` if the chunk is not one block or is
    /// shorter, or if `len` is 0. Any context.
    #[inline]
    pub fn sge(&self, len: usize) -> Option<Sge> {
        self.address
            .filter(|_| len != 0 && len <= self.chunk.size)
            // SAFETY: By the type invariant that many bytes are mapped at the address as long as
            // the domain exists.
            .map(|addr| unsafe { Sge::new(addr, len as u32, self.lkey, self.domain_serial) })
    }

    /// The kernel's address of the chunk, if the chunk is one block and has `len` bytes.
    #[inline]
    fn block(&self, len: usize) -> Option<NonNull<u8>> {
        self.chunk
            .block
            .filter(|_| len <= self.chunk.size)
            .map(|block| block.address)
    }

    /// Makes what peers wrote to the first `len` bytes visible to the CPU. Any context.
    ///
    /// `EINVAL` if the chunk is shorter. A device that uses the CPU's addresses needs no
    /// synchronisation; then `len` is not checked.
    #[inline]
    pub fn sync_for_cpu(&self, len: usize) -> Result {
        if self.synchronise {
            self.mapped.sync_for_cpu(self.chunk.index, 0, len)
        } else {
            Ok(())
        }
    }

    /// Makes what the CPU wrote to the first `len` bytes visible to the device. Context and errors
    /// as of [`Self::sync_for_cpu()`].
    #[inline]
    pub fn sync_for_device(&self, len: usize) -> Result {
        if self.synchronise {
            self.mapped.sync_for_device(self.chunk.index, 0, len)
        } else {
            Ok(())
        }
    }

    /// Copies bytes that a peer wrote, from the start of the chunk, to the memory of `table`. Any
    /// context.
    ///
    /// `EINVAL` if the chunk is shorter than the table's memory or is not one block, or if that
    /// memory must not be written to, as that of a write request.
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

    /// Copies the memory of `table` to the start of the chunk, for the device to send it. Returns
    /// the scatter entry of the copy. Any context.
    ///
    /// `EINVAL` if the chunk is shorter than the table's memory or is not one block, if the table
    /// is empty, or if its memory is that of a read request, which still holds data of its previous
    /// user.
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
