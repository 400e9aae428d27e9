// SPDX-License-Identifier: GPL-2.0

//! Pages that bytes are copied to, and that devices send from: the same bytes to several peers.
//!
//! The pages are only accessed by copying, by the module `shared_memory`, so no reference to their
//! bytes is ever made: a device may send what was in a page before while it is written.

use super::Pages;
use crate::{
    bindings,
    prelude::*,
    sync::shared_memory, //
};
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};

/// Pages to send from. A [`ScatterTable`](crate::scatterlist::ScatterTable) describes what is in
/// one of them, and [`MappedSendPages`](crate::rdma::send_pages::MappedSendPages) are these pages
/// as a device reaches them.
///
/// # Invariants
///
/// Each of `pages` is a single page.
pub struct SendPages {
    pages: KVVec<Pages>,
}

impl SendPages {
    /// The bytes of each page.
    pub const SIZE: usize = PAGE_SIZE;

    /// Allocates `count` pages, which are zero. Sleeps. `ENOMEM` if there are not as many.
    pub fn new(count: usize) -> Result<Arc<Self>> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            // On any node.
            pages.push(Pages::zeroed(-1, 0, true)?, GFP_KERNEL)?;
        }
        // INVARIANT: Blocks of order 0.
        Ok(Arc::new(Self { pages }, GFP_KERNEL)?)
    }

    /// Copies `bytes` to the beginning of page `index`. Any context.
    ///
    /// A device that still sends what was there before may send any mixture of both. `EINVAL` if
    /// there is no such page, or if they do not fit.
    pub fn copy_in(&self, index: usize, bytes: &[u8]) -> Result {
        let page = self.pages.get(index).ok_or(EINVAL)?;
        if bytes.len() > Self::SIZE {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the page has that many bytes. It is only accessed by
        // copying, so that no reference is affected.
        unsafe { shared_memory::copy(page.address().as_ptr(), bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Page `index`; it stays as long as this.
    pub(crate) fn page(&self, index: usize) -> Option<NonNull<bindings::page>> {
        self.pages.get(index).map(Pages::page)
    }

    /// Where the pages are in the kernel, by their numbers.
    pub(crate) fn addresses(&self) -> impl ExactSizeIterator<Item = NonNull<u8>> + '_ {
        self.pages.iter().map(Pages::address)
    }
}
