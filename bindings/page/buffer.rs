// SPDX-License-Identifier: GPL-2.0

//! Pages for data that a device reads or writes. The bytes are copied in and out here.
//!
//! Would extend: `rust/kernel/page.rs`, whose accesses are unsafe.

use crate::{
    bindings,
    prelude::*, //
};
use kernel::page::{
    Page,
    PAGE_SIZE, //
};

/// Owned, initially zeroed pages, which need not lie side by side in memory.
///
/// A device may write to the pages, so their bytes are only copied in and out.
///
/// # Invariants
///
/// There is at least one page. No reference to the bytes of a page is made.
pub struct PageBuffer {
    pages: KVec<Page>,
}

impl PageBuffer {
    /// Allocates a page. Sleeps.
    pub fn new() -> Result<Self> {
        Self::with_len(PAGE_SIZE)
    }

    /// Allocates as many pages as `len` bytes take, at least one. Sleeps.
    pub fn with_len(len: usize) -> Result<Self> {
        let count = len.div_ceil(PAGE_SIZE).max(1);
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            pages.push(Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?, GFP_KERNEL)?;
        }
        // INVARIANT: `count` is not 0.
        Ok(Self { pages })
    }

    /// The number of bytes that fit: those of all pages.
    #[inline]
    pub fn capacity(&self) -> usize {
        // The pages are in memory, so the product fits into a `usize`.
        self.pages.len() * PAGE_SIZE
    }

    /// The first page.
    pub(crate) fn first_page(&self) -> *mut bindings::page {
        // By the type invariant there is one.
        self.pages[0].as_ptr()
    }

    /// The pages of the first `len` bytes, each with the number of these bytes in it.
    pub(crate) fn pages(
        &self,
        len: usize,
    ) -> impl Iterator<Item = (*mut bindings::page, usize)> + '_ {
        let starts = (0..len).step_by(PAGE_SIZE);
        let parts = starts.map(move |start| (len - start).min(PAGE_SIZE));
        self.pages.iter().map(Page::as_ptr).zip(parts)
    }

    /// Copies `bytes` to `offset`. `EINVAL` if they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result {
        self.for_each_piece(offset, bytes.len(), |page, offset, at, len| {
            // SAFETY: The source is `len` bytes of `bytes`. The page is exclusively ours: no device
            // uses it, as a mapped table does not return its buffer.
            unsafe { page.write_raw(bytes[at..][..len].as_ptr(), offset, len) }
        })
    }

    /// Copies the bytes at `offset` to `bytes`. `EINVAL` if there are not as many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.for_each_piece(offset, bytes.len(), |page, offset, at, len| {
            // SAFETY: The destination is `len` bytes of `bytes`. The page is not written to: other
            // holders of a shared reference only read, and no device uses the page, as in
            // `write()`.
            unsafe { page.read_raw(bytes[at..][..len].as_mut_ptr(), offset, len) }
        })
    }

    /// Calls `run` for each piece of the `len` bytes at `offset`, with the page, the offset of the
    /// piece in the page, its offset in the `len` bytes, and its length. `EINVAL` if the buffer
    /// does not have all of these bytes.
    fn for_each_piece(
        &self,
        offset: usize,
        len: usize,
        mut run: impl FnMut(&Page, usize, usize, usize) -> Result,
    ) -> Result {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.capacity() {
            return Err(EINVAL);
        }
        let (mut from, mut at) = (offset, 0);
        while from < end {
            let start = from % PAGE_SIZE;
            let part = (end - from).min(PAGE_SIZE - start);
            run(&self.pages[from / PAGE_SIZE], start, at, part)?;
            from += part;
            at += part;
        }
        Ok(())
    }
}
