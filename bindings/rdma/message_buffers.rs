// SPDX-License-Identifier: GPL-2.0

//! DMA-mapped buffers for the messages of a connection.

use crate::{
    bindings,
    page::Pages,
    prelude::*,
    rdma::{
        pd::Retained,
        verbs,
        Direction,
        ProtectionDomain,
        Sge, //
    },
    sync::shared_memory, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};

/// Where the messages in a buffer go: [`Outgoing`] or [`Incoming`].
pub trait MessageDirection: sealed::Sealed + 'static {
    /// How the device accesses the buffer.
    const DIRECTION: Direction;
}

/// To the peer: the CPU writes them, the device only reads.
pub enum Outgoing {}

/// From the peer: the device writes them, at any time.
pub enum Incoming {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Outgoing {}
    impl Sealed for super::Incoming {}
}

impl MessageDirection for Outgoing {
    const DIRECTION: Direction = Direction::ToDevice;
}

impl MessageDirection for Incoming {
    const DIRECTION: Direction = Direction::FromDevice;
}

/// Buffers of one size, for sends or for receives.
pub struct MessageBuffers;

impl MessageBuffers {
    /// The longest buffer in bytes; the page allocator has them on every machine.
    pub const MAX_SIZE: usize = 2 << 20;

    /// Allocates `count` zeroed buffers of `size` bytes each. Sleeps.
    ///
    /// Small buffers share pages, and each is contiguous. `EINVAL` if `size` is 0 or more than
    /// [`Self::MAX_SIZE`].
    pub fn allocate<D: MessageDirection>(
        domain: &Arc<ProtectionDomain>,
        count: usize,
        size: usize,
    ) -> Result<KVVec<MessageBuffer<D>>> {
        let mut buffers = KVVec::with_capacity(count, GFP_KERNEL)?;
        allocate(domain, count, size, D::DIRECTION, &mut |piece| {
            // INVARIANT: Mapped in that direction.
            let buffer = MessageBuffer {
                piece,
                _direction: PhantomData,
            };
            Ok(buffers.push(buffer, GFP_KERNEL)?)
        })?;
        Ok(buffers)
    }
}

/// Gives `count` pieces of blocks to `push`; see [`MessageBuffers::allocate()`].
fn allocate(
    domain: &Arc<ProtectionDomain>,
    count: usize,
    size: usize,
    direction: Direction,
    push: &mut dyn FnMut(Piece) -> Result,
) -> Result {
    if size == 0 || size > MessageBuffers::MAX_SIZE {
        return Err(EINVAL);
    }
    let stride = size.next_multiple_of(ALIGNMENT);
    let order = stride.div_ceil(PAGE_SIZE).next_power_of_two().ilog2();
    let per_block = (PAGE_SIZE << order) / stride;
    let mut done = 0;
    while done < count {
        let block = Arc::new(
            Retained::new(domain, Block::new(domain, order, direction)?)?,
            GFP_KERNEL,
        )?;
        for index in 0..per_block.min(count - done) {
            // SAFETY: The ranges are within the block and do not overlap.
            push(unsafe { Piece::of_block(block.clone(), index * stride, size) })?;
            done += 1;
        }
    }
    Ok(())
}

/// The alignment of buffers: no two share a cache line, as `ARCH_DMA_MINALIGN` of any machine.
const ALIGNMENT: usize = 128;

/// Contiguous pages that are mapped for a device.
///
/// # Invariants
///
/// `pages` are mapped for `device` at `dma_address` in `direction`. The device stays, as the
/// protection domain has a handle of it.
struct Block {
    pages: Pages,
    dma_address: u64,
    direction: Direction,
    device: *mut bindings::ib_device,
}

// SAFETY: Owns its pages, which may be unmapped and freed in any task.
unsafe impl Send for Block {}

// SAFETY: Has no methods that change anything.
unsafe impl Sync for Block {}

impl Block {
    fn new(domain: &ProtectionDomain, order: u32, direction: Direction) -> Result<Self> {
        let device = domain.device().as_raw();
        let pages = Pages::zeroed(domain.device().numa_node(), order, true)?;
        // SAFETY: The device is valid, and the pages are that long.
        let dma_address = unsafe {
            bindings::rnbd_helper_ib_dma_map_single(
                device,
                pages.address().as_ptr().cast(),
                pages.len(),
                direction.into(),
            )
        };
        // SAFETY: The device is valid.
        if unsafe { bindings::rnbd_helper_ib_dma_mapping_error(device, dma_address) } != 0 {
            return Err(EIO);
        }
        // INVARIANT: As mapped above.
        Ok(Self {
            pages,
            dma_address,
            direction,
            device,
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; `Retained` keeps the block while requests name it.
        unsafe {
            bindings::rnbd_helper_ib_dma_unmap_single(
                self.device,
                self.dma_address,
                self.pages.len(),
                self.direction.into(),
            )
        };
    }
}

/// A part of a block.
///
/// # Invariants
///
/// The `size` bytes at `address` are part of `block` and belong to this piece alone, and `size` is
/// not 0. They are mapped for `device` at `dma_address`; `lkey` is for the domain of the block,
/// whose serial number is `domain`.
struct Piece {
    address: NonNull<u8>,
    dma_address: u64,
    size: u32,
    lkey: u32,
    device: *mut bindings::ib_device,
    domain: u64,
    /// Keeps all that.
    _block: Arc<Retained<Block>>,
}

// SAFETY: Owns its part of the block.
unsafe impl Send for Piece {}

// SAFETY: Through a shared reference the bytes are only copied in or out, by `shared_memory`.
unsafe impl Sync for Piece {}

impl Piece {
    /// # Safety
    ///
    /// The `size` bytes at `offset` are within the pages of `block` and not part of another piece;
    /// `size` is not 0.
    unsafe fn of_block(block: Arc<Retained<Block>>, offset: usize, size: usize) -> Self {
        // INVARIANT: By the function's requirement, and by the invariant of the block, which has
        // what is mapped for the device.
        Self {
            // SAFETY: By the function's requirement.
            address: unsafe { block.pages.address().add(offset) },
            dma_address: block.dma_address + offset as u64,
            // At most `MAX_SIZE`.
            size: size as u32,
            lkey: block.domain().local_dma_lkey(),
            device: block.device,
            domain: block.domain().serial(),
            _block: block,
        }
    }
}

/// A buffer for one message.
///
/// May be dropped in any context, as long as somebody else holds the protection domain, with which
/// the memory goes.
///
/// # Invariants
///
/// `piece` is mapped in the direction of `D`.
pub struct MessageBuffer<D: MessageDirection> {
    piece: Piece,
    _direction: PhantomData<fn(D)>,
}

impl<D: MessageDirection> MessageBuffer<D> {
    /// Allocates one buffer, see [`MessageBuffers::allocate()`]. Sleeps.
    pub fn new(domain: &Arc<ProtectionDomain>, size: usize) -> Result<Self> {
        MessageBuffers::allocate(domain, 1, size)?
            .pop()
            .ok_or(ENOMEM)
    }

    /// The size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.piece.size as usize
    }
}

impl MessageBuffer<Outgoing> {
    /// Copies `bytes` to `offset`; [`Self::sge()`] hands them to the device. Any context.
    ///
    /// A device that still sends what was there before may send any mixture of both, as bytes are
    /// only copied in; see the module `shared_memory`. Bytes that were never written are zero.
    /// `EINVAL` if they do not fit.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result {
        let piece = &self.piece;
        let end = offset.checked_add(bytes.len()).ok_or(EINVAL)?;
        if end > self.size() {
            return Err(EINVAL);
        }
        // SAFETY: By the invariant of the piece its bytes are this buffer's alone, and are only
        // accessed by copying; the range was checked.
        unsafe { shared_memory::store(piece.address.as_ptr().add(offset), bytes) };
        Ok(())
    }

    /// Hands the first `len` bytes to the device, as a scatter entry. Any context. `EINVAL` if
    /// `len` is 0 or more than the size.
    #[inline]
    pub fn sge(&self, len: usize) -> Result<Sge> {
        if len == 0 || len > self.size() {
            return Err(EINVAL);
        }
        let piece = &self.piece;
        let (address, direction) = (piece.dma_address, Outgoing::DIRECTION.into());
        // SAFETY: By the type invariant of the piece, whose block stays as long as the domain. The
        // size is at most `MAX_SIZE`.
        unsafe {
            verbs::sync_for_device(piece.device, address, len, direction);
            Ok(Sge::new(address, len as u32, piece.lkey, piece.domain))
        }
    }
}

impl MessageBuffer<Incoming> {
    /// Copies what the device wrote, from the beginning, to `bytes`. Any context.
    ///
    /// `EINVAL` if there are more of them than in the buffer. To be called once per message; what
    /// is copied does not change any more.
    #[inline]
    pub fn copy_out(&self, bytes: &mut [u8]) -> Result {
        if bytes.len() > self.size() {
            return Err(EINVAL);
        }
        // SAFETY: The ranges are valid, and the destination is not the device's.
        unsafe {
            verbs::sync_for_cpu(
                self.piece.device,
                self.piece.dma_address,
                bytes.len(),
                Incoming::DIRECTION.into(),
            );
            shared_memory::copy(bytes.as_mut_ptr(), self.piece.address.as_ptr(), bytes.len());
        }
        Ok(())
    }

    /// All of it, for a receive on a queue pair in the domain with the serial number `domain`,
    /// which keeps the memory then. `EINVAL` if the buffer is of another one.
    pub(crate) fn for_receive(&self, domain: u64) -> Result<bindings::ib_sge> {
        let piece = &self.piece;
        if piece.domain != domain {
            return Err(EINVAL);
        }
        Ok(bindings::ib_sge {
            addr: piece.dma_address,
            length: piece.size,
            lkey: piece.lkey,
        })
    }
}
