// SPDX-License-Identifier: GPL-2.0

//! DMA-mapped buffers for the messages of a connection.

use crate::{
    bindings,
    rdma::{
        pd::Retained,
        verbs,
        Direction,
        ProtectionDomain,
        Sge, //
    }, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Buffers of one size, for sends or for receives.
pub struct MessageBuffers;

impl MessageBuffers {
    /// Allocates `count` zeroed buffers of `size` bytes each, mapped in `direction`. Sleeps.
    ///
    /// Small buffers share pages, and each is contiguous. `EINVAL` if `size` is 0 or more than
    /// [`MessageBuffer::MAX_SIZE`].
    pub fn allocate(
        domain: &Arc<ProtectionDomain>,
        count: usize,
        size: usize,
        direction: Direction,
    ) -> Result<KVVec<MessageBuffer>> {
        if size == 0 || size > MessageBuffer::MAX_SIZE {
            return Err(EINVAL);
        }
        let stride = size.next_multiple_of(ALIGNMENT);
        let order = stride.div_ceil(PAGE_SIZE).next_power_of_two().ilog2();
        let per_block = (PAGE_SIZE << order) / stride;
        let mut buffers = KVVec::with_capacity(count, GFP_KERNEL)?;
        while buffers.len() < count {
            let block = Arc::new(
                Retained::new(domain, Block::new(domain, order, direction)?)?,
                GFP_KERNEL,
            )?;
            for index in 0..per_block.min(count - buffers.len()) {
                // SAFETY: The ranges are within the block and do not overlap.
                let buffer =
                    unsafe { MessageBuffer::of_block(block.clone(), index * stride, size) };
                buffers.push(buffer, GFP_KERNEL)?;
            }
        }
        Ok(buffers)
    }
}

/// The alignment of buffers: no two share a cache line, as `ARCH_DMA_MINALIGN` of any machine.
const ALIGNMENT: usize = 128;

/// Contiguous pages that are mapped for a device.
///
/// # Invariants
///
/// `page` starts a block of `1 << order` pages owned by this type, at `address` in the kernel, mapped
/// for `device` at `dma_address` in `direction`. The device stays, as the protection domain has a handle of it.
struct Block {
    page: NonNull<bindings::page>,
    order: u32,
    address: NonNull<u8>,
    dma_address: u64,
    direction: Direction,
    device: *mut bindings::ib_device,
}

// SAFETY: Owns its pages, and may be freed in any task.
unsafe impl Send for Block {}

// SAFETY: Has no methods that change anything.
unsafe impl Sync for Block {}

impl Block {
    fn new(domain: &ProtectionDomain, order: u32, direction: Direction) -> Result<Self> {
        let device = domain.device().as_raw();
        let node = domain.device().numa_node();
        // SAFETY: Any node is fine, and by `MAX_SIZE` the page allocator has blocks of that order.
        let page = unsafe { bindings::rnbd_helper_alloc_zeroed_pages(node, order, true) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: The page is valid and in the linear mapping.
        let address = unsafe { bindings::rnbd_helper_page_address(page.as_ptr()) };
        let size = PAGE_SIZE << order;
        // SAFETY: The device is valid, and the block is that long.
        let dma_address = unsafe {
            bindings::rnbd_helper_ib_dma_map_single(device, address, size, direction.into())
        };
        // SAFETY: The device is valid.
        let failed = unsafe { bindings::rnbd_helper_ib_dma_mapping_error(device, dma_address) };
        let (Some(address), 0) = (NonNull::new(address.cast()), failed) else {
            // SAFETY: The pages were allocated above.
            unsafe { bindings::__free_pages(page.as_ptr(), order) };
            return Err(EIO);
        };
        // INVARIANT: As made above.
        Ok(Self {
            page,
            order,
            address,
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
                PAGE_SIZE << self.order,
                self.direction.into(),
            );
            bindings::__free_pages(self.page.as_ptr(), self.order);
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
/// The `size` bytes at `address` are part of `block` and belong to this buffer alone, and `size` is
/// not 0. They are mapped for `device` at `dma_address`, and `lkey` is for the domain of the block.
pub struct MessageBuffer {
    address: NonNull<u8>,
    dma_address: u64,
    size: u32,
    lkey: u32,
    device: *mut bindings::ib_device,
    direction: Direction,
    /// Keeps all that.
    _block: Arc<Retained<Block>>,
}

// SAFETY: Owns its part of the block.
unsafe impl Send for MessageBuffer {}

// SAFETY: Through a shared reference the bytes are only copied out.
unsafe impl Sync for MessageBuffer {}

impl MessageBuffer {
    /// The longest buffer in bytes; the page allocator has them on every machine.
    pub const MAX_SIZE: usize = 2 << 20;

    /// Allocates one buffer, see [`MessageBuffers::allocate()`]. Sleeps.
    pub fn new(domain: &Arc<ProtectionDomain>, size: usize, direction: Direction) -> Result<Self> {
        MessageBuffers::allocate(domain, 1, size, direction)?
            .pop()
            .ok_or(ENOMEM)
    }

    /// # Safety
    ///
    /// The `size` bytes at `offset` are within the pages of `block` and not part of another buffer;
    /// `size` is not 0.
    unsafe fn of_block(block: Arc<Retained<Block>>, offset: usize, size: usize) -> Self {
        // INVARIANT: By the function's requirement, and by the invariant of the block, which has
        // what is mapped for the device.
        Self {
            // SAFETY: By the function's requirement.
            address: unsafe { block.address.add(offset) },
            dma_address: block.dma_address + offset as u64,
            // At most `MAX_SIZE`.
            size: size as u32,
            lkey: block.domain().local_dma_lkey(),
            device: block.device,
            direction: block.direction,
            _block: block,
        }
    }

    /// The size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Lets `f` write the buffer and hands it to the device. Any context.
    ///
    /// The bytes are as they were last written, zero at first. `EINVAL` for a buffer that the
    /// device writes to: no reference to such memory can be had.
    #[inline]
    pub fn write<R>(&mut self, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.direction != Direction::ToDevice {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the bytes are ours alone, and the device only reads them.
        let result = f(unsafe { slice::from_raw_parts_mut(self.address.as_ptr(), self.size()) });
        // SAFETY: The range is part of what is mapped for the device.
        unsafe {
            verbs::sync_for_device(
                self.device,
                self.dma_address,
                self.size(),
                self.direction.into(),
            )
        };
        Ok(result)
    }

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
                self.device,
                self.dma_address,
                bytes.len(),
                self.direction.into(),
            );
            bindings::rnbd_helper_memcpy(
                bytes.as_mut_ptr().cast(),
                self.address.as_ptr().cast(),
                bytes.len(),
            );
        }
        Ok(())
    }

    /// The first `len` bytes as a scatter entry. `EINVAL` if `len` is 0 or more than the size.
    #[inline]
    pub fn sge(&self, len: usize) -> Result<Sge> {
        if len == 0 || len > self.size() {
            return Err(EINVAL);
        }
        // The size is at most `MAX_SIZE`.
        Ok(Sge::new(self.dma_address, len as u32, self.lkey))
    }
}
