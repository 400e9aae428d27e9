// SPDX-License-Identifier: GPL-2.0

//! One page of memory for messages outside the IO path.
//!
//! Would extend: `rust/kernel/page.rs`, whose accesses are unsafe.

use crate::{
    bindings,
    prelude::*, //
};
use kernel::{
    page::{
        Page,
        PAGE_SIZE, //
    }, //
};

/// An owned, initially zeroed page.
///
/// What is in it may be written by a device, so it is only copied in and out.
pub struct PageBuffer(Page);

impl PageBuffer {
    /// The length in bytes.
    pub const LEN: usize = PAGE_SIZE;

    /// Allocates a page. Sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self(Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?))
    }

    pub(crate) fn as_page(&self) -> *mut bindings::page {
        self.0.as_ptr()
    }

    /// Copies `bytes` to `offset`. `EINVAL` if they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result {
        // SAFETY: The source is valid. The page is only ours: no device uses it, as a table that is
        // mapped does not give its buffer out of its hands.
        unsafe { self.0.write_raw(bytes.as_ptr(), offset, bytes.len()) }
    }

    /// Copies the bytes at `offset` to `bytes`. `EINVAL` if there are not as many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result {
        // SAFETY: The destination is valid. Nobody writes to the page: others with a reference only
        // read, and for devices see `write()`.
        unsafe { self.0.read_raw(bytes.as_mut_ptr(), offset, bytes.len()) }
    }
}
