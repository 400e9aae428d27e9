// SPDX-License-Identifier: GPL-2.0

//! Pages to send from: bytes are copied to a page, and devices send these bytes to several peers.
//!
//! The pages are only accessed by copying, by the module `shared_memory`. No reference to their
//! bytes is ever made, as a device may still send the old bytes of a page while new ones are
//! written.

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

/// Pages to send from. A [`ScatterTable`](crate::scatterlist::ScatterTable) describes the bytes in
/// a page, and [`MappedSendPages`](crate::rdma::send_pages::MappedSendPages) maps the pages for a
/// device.
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

    /// Allocates `count` zeroed pages. Sleeps. `ENOMEM` if there are not as many.
    pub fn new(count: usize) -> Result<Arc<Self>> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            // On any node.
            pages.push(Pages::zeroed(-1, 0, true)?, GFP_KERNEL)?;
        }
        // INVARIANT: Each block has order 0: a single page.
        Ok(Arc::new(Self { pages }, GFP_KERNEL)?)
    }

    /// Copies `bytes` to the beginning of page `index`. Any context.
    ///
    /// A device that still sends the old bytes of the page may send any mixture of old and new
    /// bytes. `EINVAL` if there is no such page, or if `bytes` do not fit.
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

    /// Page `index`, which stays as long as this value.
    pub(crate) fn page(&self, index: usize) -> Option<NonNull<bindings::page>> {
        self.pages.get(index).map(Pages::page)
    }

    /// The kernel's addresses of the pages, in the order of their numbers.
    pub(crate) fn addresses(&self) -> impl ExactSizeIterator<Item = NonNull<u8>> + '_ {
        self.pages.iter().map(Pages::address)
    }
}
