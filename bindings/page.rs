// SPDX-License-Identifier: GPL-2.0

//! Contiguous pages, which devices and peers may write to.
//!
//! Would extend: `rust/kernel/page.rs`, which has single pages.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

pub mod buffer;
pub mod send;

use crate::{
    bindings,
    prelude::*, //
};
use core::ptr::NonNull;
use kernel::page::PAGE_SIZE;

/// An owned block of pages; freed when dropped, in any context.
///
/// A device or a peer may write to the block, so the owner of the block decides how the bytes are
/// accessed.
///
/// # Invariants
///
/// - `page` starts a block of `1 << order` pages owned by this type, at `address` in the kernel.
/// - A reference to the bytes, made from `address()`, keeps this value borrowed.
pub(crate) struct Pages {
    page: NonNull<bindings::page>,
    address: NonNull<u8>,
    order: u32,
}

// SAFETY: A `Pages` owns its pages, which may be freed in any task.
unsafe impl Send for Pages {}

// SAFETY: A shared reference only gives out pointers.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates a block of `1 << order` zeroed pages, if possible on `node`; on any node if there
    /// is no such node. Sleeps. `ENOMEM` if there is no such block.
    ///
    /// A failure neither prints a warning nor invokes the OOM killer. With `needed` the allocator
    /// tries harder: for callers that cannot use smaller blocks instead.
    pub(crate) fn zeroed(node: i32, order: u32, needed: bool) -> Result<Self> {
        // SAFETY: Any node and any order are fine: the page allocator has no blocks above its
        // largest order, and is told not to warn of that.
        let page = unsafe { bindings::rnbd_helper_alloc_zeroed_pages(node, order, needed) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: The page is valid and in the linear mapping.
        let address = unsafe { bindings::rnbd_helper_page_address(page.as_ptr()) };
        let Some(address) = NonNull::new(address.cast()) else {
            // SAFETY: Allocated above.
            unsafe { bindings::__free_pages(page.as_ptr(), order) };
            return Err(ENOMEM);
        };
        // INVARIANT: The block was allocated above, and `address` is that of its first page.
        Ok(Self {
            page,
            address,
            order,
        })
    }

    /// The first page.
    pub(crate) fn page(&self) -> NonNull<bindings::page> {
        self.page
    }

    /// The kernel's address of the pages. A reference to the bytes has to keep this value borrowed.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// Fills the pages with zeros. Any context.
    pub(crate) fn clear(&mut self) {
        // SAFETY: The block is owned, and has `len()` bytes. A reference to its bytes would keep
        // this value borrowed, so there is none.
        unsafe { bindings::rnbd_helper_memzero(self.address.as_ptr().cast(), self.len()) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: The block of this order is owned, and is not used any more.
        unsafe { bindings::__free_pages(self.page.as_ptr(), self.order) };
    }
}
