// SPDX-License-Identifier: GPL-2.0

//! Tables that describe a page to send from.

use super::{
    Hold,
    ScatterTable, //
};
use crate::{
    bindings,
    page::send::SendPages,
    prelude::*,
    rdma::Direction, //
};
use kernel::sync::Arc;

impl ScatterTable {
    /// Fills the table with the first `len` bytes of page `index` of `pages`, only to be sent. The
    /// table keeps the page until the table is emptied or filled anew, also when a request has
    /// ended. Filling it with the same page again takes only a few instructions. Any context.
    ///
    /// `EINVAL` if there is no such page, or if `len` is 0 or more than [`SendPages::SIZE`];
    /// `EBUSY` if the table is mapped.
    #[inline]
    pub fn set_page(&mut self, pages: &Arc<SendPages>, index: usize, len: u32) -> Result {
        let bytes = len as usize;
        if len == 0 || bytes > SendPages::SIZE {
            return Err(EINVAL);
        }
        if self.is_mapped() {
            return Err(EBUSY);
        }
        if !self.has_page(pages, index) {
            self.set_other_page(pages, index)?;
        }
        // INVARIANT: The only entry in use is that of the page, which has at least `len` bytes.
        self.entries.first_mut().ok_or(EINVAL)?.length = len;
        self.bytes = bytes;
        Ok(())
    }

    /// Fills the table with all of a page that it does not describe yet; otherwise as
    /// [`Self::set_page()`].
    #[cold]
    #[inline(never)]
    fn set_other_page(&mut self, pages: &Arc<SendPages>, index: usize) -> Result {
        let page = pages.page(index).ok_or(EINVAL)?;
        let entries = self.as_mut_ptr().ok_or(EBUSY)?;
        let len = SendPages::SIZE as u32;
        // SAFETY: There is at least one entry, and the exclusive reference keeps other users away.
        // The page is valid, and has `len` bytes.
        unsafe {
            bindings::sg_init_table(entries, 1);
            bindings::rnbd_helper_sg_set_page(entries, page.as_ptr(), len, 0);
        }
        // INVARIANT: The entry names the page, which the table keeps, and which must only be read.
        // The entry is marked as the end.
        self.used = 1;
        self.permitted = Direction::ToDevice;
        self.bytes = SendPages::SIZE;
        self.hold = Some(Hold::Page {
            pages: pages.clone(),
            index,
        });
        Ok(())
    }

    /// Whether the table describes bytes of page `index` of `pages`.
    #[inline]
    fn has_page(&self, pages: &Arc<SendPages>, index: usize) -> bool {
        match &self.hold {
            Some(Hold::Page {
                pages: mine,
                index: my_index,
            }) => Arc::ptr_eq(mine, pages) && *my_index == index,
            _ => false,
        }
    }

    /// The number of bytes that the table describes of page `index` of `pages`, from the beginning
    /// of the page: 1 to the size of the page. `None` if the table describes other memory.
    #[inline]
    pub(crate) fn len_in_page(&self, pages: &Arc<SendPages>, index: usize) -> Option<u32> {
        // By the type invariant there is only one entry, so the length fits into a `u32`.
        self.has_page(pages, index).then_some(self.bytes as u32)
    }
}
