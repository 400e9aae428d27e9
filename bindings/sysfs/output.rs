// SPDX-License-Identifier: GPL-2.0

//! The output of a sysfs file.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use crate::prelude::*;
use core::{
    fmt,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::page::PAGE_SIZE;

/// A buffer for the content of a file.
///
/// Output that does not fit is cut off, as `sysfs_emit_at()` does. Writing never fails.
///
/// # Invariants
///
/// `buffer` is valid for writes of `room` bytes, and `len <= room`.
pub struct SysfsOutput<'a> {
    buffer: NonNull<u8>,
    room: usize,
    len: usize,
    _buffer: PhantomData<&'a mut [u8]>,
}

impl SysfsOutput<'_> {
    /// The room of a page for sysfs, which takes at most a page less one byte.
    pub(crate) const PAGE: usize = PAGE_SIZE - 1;

    /// Makes an empty output.
    ///
    /// # Safety
    ///
    /// `buffer` must be valid for writes of `room` bytes, and not be used otherwise, as long as the
    /// output is used.
    pub(crate) unsafe fn new(buffer: NonNull<u8>, room: usize) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            buffer,
            room,
            len: 0,
            _buffer: PhantomData,
        }
    }

    /// Writes bytes as they are.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.room - self.len);
        // SAFETY: By the type invariant `len` more bytes fit in the buffer.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer.as_ptr().add(self.len), len)
        };
        // INVARIANT: `len` is at most the room that was left.
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

    /// The number of bytes that have been written.
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
