// SPDX-License-Identifier: GPL-2.0

//! The pages that chunks are made of.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// The largest block that is asked for at once, 512 KiB with pages of 4 KiB.
const MAX_ORDER: u32 = 7;

/// Contiguous pages of a chunk.
///
/// # Invariants
///
/// `page` starts a block of `1 << order` pages owned by this type, at `address` in the kernel.
pub(super) struct Segment {
    pub(super) page: NonNull<bindings::page>,
    pub(super) address: NonNull<u8>,
    order: u32,
}

// SAFETY: Owns its pages, which may be freed in any task.
unsafe impl Send for Segment {}

// SAFETY: Has no methods that change anything.
unsafe impl Sync for Segment {}

impl Segment {
    /// Allocates zeroed pages, if possible on `node`; on any if there is no such node. Sleeps.
    ///
    /// Neither warns nor has anybody killed if there are none.
    pub(super) fn new(node: i32, order: u32) -> Result<Self> {
        // A block of pages can be had as single ones, too.
        let needed = order == 0;
        // SAFETY: Any node is fine, and the page allocator has blocks of that order.
        let page = unsafe { bindings::rnbd_helper_alloc_zeroed_pages(node, order, needed) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: The page is valid and in the linear mapping.
        let address = unsafe { bindings::rnbd_helper_page_address(page.as_ptr()) };
        let Some(address) = NonNull::new(address.cast()) else {
            // SAFETY: Allocated above.
            unsafe { bindings::__free_pages(page.as_ptr(), order) };
            return Err(ENOMEM);
        };
        // INVARIANT: As made above.
        Ok(Self {
            page,
            address,
            order,
        })
    }

    /// The length in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Forgets what was written to the pages. Any context.
    pub(super) fn clear(&self) {
        // SAFETY: By the type invariant the pages are ours; they are only accessed by copying, so
        // that no reference is affected.
        unsafe { bindings::rnbd_helper_memzero(self.address.as_ptr().cast(), self.len()) };
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the pages are ours.
        unsafe { bindings::__free_pages(self.page.as_ptr(), self.order) };
    }
}

/// Allocates the memory of chunks.
///
/// Larger blocks are used where there are any, but none are needed. Once there is no block of some
/// size, none is looked for any more.
pub(super) struct Allocator {
    pages: usize,
    node: i32,
    max_order: u32,
}

impl Allocator {
    /// For `count` chunks of `chunk_size` bytes, if possible on `node` (-1 for any).
    ///
    /// `EINVAL` unless `chunk_size` is a multiple of the page size and not 0. `ENOMEM` if less
    /// memory than that can be had, which is better known before the machine is out of it.
    pub(super) fn new(count: usize, chunk_size: usize, node: i32) -> Result<Self> {
        if chunk_size == 0 || chunk_size % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let pages = chunk_size >> PAGE_SHIFT;
        let needed = count.checked_mul(pages).ok_or(ENOMEM)?;
        // SAFETY: Can always be called.
        let available = unsafe { bindings::rnbd_helper_available_pages() };
        if needed > available {
            return Err(ENOMEM);
        }
        Ok(Self {
            pages,
            node,
            max_order: MAX_ORDER,
        })
    }

    /// Appends the segments of a chunk to `segments`. Sleeps.
    pub(super) fn add_chunk(&mut self, segments: &mut KVVec<Segment>) -> Result {
        let mut left = self.pages;
        while left > 0 {
            let order = left.ilog2().min(self.max_order);
            match Segment::new(self.node, order) {
                Ok(segment) => {
                    segments.push(segment, GFP_KERNEL)?;
                    left -= 1 << order;
                }
                Err(_) if order > 0 => self.max_order = order - 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
