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

/// The direction of the messages in a buffer: [`Outgoing`] or [`Incoming`].
pub trait MessageDirection: sealed::Sealed + 'static {
    /// How the device accesses the buffer.
    const DIRECTION: Direction;
}

/// Messages to the peer: the CPU writes them, the device only reads them.
pub enum Outgoing {}

/// Messages from the peer: the device writes them, at any time.
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
    /// The size of the largest buffer in bytes. The page allocator of every machine has such
    /// blocks.
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
            // INVARIANT: `allocate()` maps the piece in the direction of `D`.
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

/// The alignment of buffers, so that no two share a cache line. At least `ARCH_DMA_MINALIGN` of
/// every machine.
const ALIGNMENT: usize = 128;

/// Contiguous pages that are mapped for a device.
///
/// # Invariants
///
/// `pages` are mapped for `device` at `dma_address` in `direction`. `device` is valid, as the
/// protection domain holds a handle of it.
struct Block {
    pages: Pages,
    dma_address: u64,
    direction: Direction,
    device: *mut bindings::ib_device,
}

// SAFETY: Owns its pages, which may be unmapped and freed in any task.
unsafe impl Send for Block {}

// SAFETY: `Block` has no method that changes it.
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
        // SAFETY: By the type invariant the pages are mapped. `Retained` keeps the block while work
        // requests name it.
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
/// The `size` bytes at `address` are part of the block and belong to this piece alone, and `size`
/// is not 0. The bytes are mapped for `device` at `dma_address`. `lkey` and `domain` are the local
/// key and the serial number of the domain of the block.
struct Piece {
    address: NonNull<u8>,
    dma_address: u64,
    size: u32,
    lkey: u32,
    device: *mut bindings::ib_device,
    domain: u64,
    /// Keeps the memory, the mapping and the device.
    _block: Arc<Retained<Block>>,
}

// SAFETY: A `Piece` owns its part of the block.
unsafe impl Send for Piece {}

// SAFETY: Through a shared reference the bytes are only copied in or out, by `shared_memory`.
unsafe impl Sync for Piece {}

impl Piece {
    /// # Safety
    ///
    /// The `size` bytes at `offset` are within the pages of `block` and not part of another piece;
    /// `size` is not 0.
    unsafe fn of_block(block: Arc<Retained<Block>>, offset: usize, size: usize) -> Self {
        // INVARIANT: By the function's requirement the bytes belong to this piece alone, and by the
        // invariant of the block they are mapped.
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
/// May be dropped in any context, as long as something else holds the protection domain. The memory
/// is freed with the domain.
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
    /// If the device still sends an earlier message from the buffer, it may send any mixture of old
    /// and new bytes; see the module `shared_memory`. Bytes that were never written are zero.
    /// `EINVAL` if `bytes` do not fit.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result {
        let piece = &self.piece;
        let end = offset.checked_add(bytes.len()).ok_or(EINVAL)?;
        if end > self.size() {
            return Err(EINVAL);
        }
        // SAFETY: By the invariant of the piece its bytes belong to this buffer alone. They are
        // only accessed by copying, and the range was checked.
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
        // SAFETY: By the invariant of the piece the bytes are mapped, and its block stays as long
        // as the domain. `len` is at most `MAX_SIZE`, so it fits.
        unsafe {
            verbs::sync_for_device(piece.device, address, len, direction);
            Ok(Sge::new(address, len as u32, piece.lkey, piece.domain))
        }
    }
}

impl MessageBuffer<Incoming> {
    /// Copies the first bytes that the device wrote to `bytes`. Any context.
    ///
    /// `EINVAL` if `bytes` is longer than the buffer. To be called once per message: the device
    /// cannot change the copy.
    #[inline]
    pub fn copy_out(&self, bytes: &mut [u8]) -> Result {
        if bytes.len() > self.size() {
            return Err(EINVAL);
        }
        // SAFETY: Both ranges are valid, and the device does not access the destination.
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

    /// The scatter entry of the whole buffer, for a receive on a queue pair in the domain with the
    /// serial number `domain`; the domain keeps the memory. `EINVAL` if the buffer is of another
    /// domain.
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
