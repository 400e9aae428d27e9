// SPDX-License-Identifier: GPL-2.0

//! What a sysfs file shows.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    fmt,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// The page that a `show` function writes its text to.
///
/// What does not fit is cut off, as `sysfs_emit_at()` does; writing never fails.
///
/// # Invariants
///
/// `page` is valid for writes of `PAGE_SIZE` bytes; `len < PAGE_SIZE`.
pub struct SysfsOutput<'a> {
    page: NonNull<u8>,
    len: usize,
    _page: PhantomData<&'a mut [u8]>,
}

impl SysfsOutput<'_> {
    /// Makes an empty output.
    ///
    /// # Safety
    ///
    /// `page` must be valid for writes of `PAGE_SIZE` bytes, and not be used otherwise, as long as
    /// the output is used.
    pub(crate) unsafe fn new(page: NonNull<u8>) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            page,
            len: 0,
            _page: PhantomData,
        }
    }

    /// Writes bytes as they are.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        // sysfs takes no more than a page less one byte.
        let room = PAGE_SIZE - 1 - self.len;
        let len = bytes.len().min(room);
        // SAFETY: The page is valid for `PAGE_SIZE` bytes, of which `room` are left.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.page.as_ptr().add(self.len), len) };
        // INVARIANT: `len` is at most the room there was.
        self.len += len;
    }

    /// Writes text that [`fmt!`] has formatted. `EINVAL` if one of its values cannot be formatted.
    ///
    /// # Examples
    ///
    /// ```ignore
    /// fn show_depth(device: &Arc<Device>, out: &mut SysfsOutput<'_>) -> Result {
    ///     out.print(fmt!("{}\n", device.depth()))
    /// }
    /// ```
    pub fn print(&mut self, text: fmt::Arguments<'_>) -> Result {
        Ok(fmt::Write::write_fmt(self, text)?)
    }

    /// How many bytes have been written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl fmt::Write for SysfsOutput<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes());
        Ok(())
    }
}
