// SPDX-License-Identifier: GPL-2.0

//! Files of sysfs that are longer than a page.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    mem::{
        self,
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::NonNull,
    slice, //
};
use kernel::{
    str::as_char_ptr_in_const_context,
    sync::Arc, //
};

use super::{
    node,
    output::SysfsOutput, //
};
use crate::{
    bindings,
    prelude::*, //
};

type Read<T> = fn(&Arc<T>, u64, &mut SysfsOutput<'_>) -> Result;
type Write<T> = fn(&Arc<T>, OpenFile, u64, &[u8]) -> Result;

/// A file of a [`ClassDevice`](crate::device::class::ClassDevice) with data of type `T`. The file
/// is read and written in pieces of up to a page, at any offset, only by its owner (0600).
///
/// Must be made in a `static` of the module with the functions `read` and `write`. Both functions
/// may sleep, and may run concurrently on any CPU. `write` takes all bytes that it gets, or fails.
/// Each piece of a longer `write()` of the user comes in a call of its own. If a later piece than
/// the first fails, the user does not get the error, but the number of bytes before that piece.
#[repr(C)]
pub struct BinaryAttribute<T> {
    file: bindings::bin_attribute,
    read: Read<T>,
    write: Write<T>,
}

/// The identity of an open file, unique among the files that are open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile(usize);

// SAFETY: An attribute is never changed; sysfs only reads it.
unsafe impl<T> Sync for BinaryAttribute<T> {}

impl<T: Send + Sync + 'static> BinaryAttribute<T> {
    /// A file called `name`.
    pub const fn new(name: &'static CStr, read: Read<T>, write: Write<T>) -> Self {
        // SAFETY: All zeroes is valid for a structure of pointers and numbers.
        let mut file: bindings::bin_attribute = unsafe { MaybeUninit::zeroed().assume_init() };
        file.attr.name = as_char_ptr_in_const_context(name);
        file.attr.mode = 0o600;
        file.read = Some(Self::read_raw);
        file.write = Some(Self::write_raw);
        Self { file, read, write }
    }

    /// The name of the file.
    pub(crate) fn name(&'static self) -> &'static CStr {
        // SAFETY: The name came from a static string.
        unsafe { CStr::from_char_ptr(self.file.attr.name) }
    }

    /// The C structure.
    pub(crate) fn as_raw(&'static self) -> *const bindings::bin_attribute {
        &raw const self.file
    }

    /// The attribute and the data of its device.
    ///
    /// # Safety
    ///
    /// As for [`Self::read_raw`].
    unsafe fn target<'a>(
        kobject: *mut bindings::kobject,
        attribute: *const bindings::bin_attribute,
    ) -> (&'a Self, ManuallyDrop<Arc<T>>) {
        // SAFETY: By the safety requirement this is the beginning of a `Self`, which is static.
        let this = unsafe { &*attribute.cast::<Self>() };
        // SAFETY: The kobject is that of a class device, which stays as long as the file is in use.
        let data = unsafe { node::registration(kobject) }.data();
        // SAFETY: The data are a `T`, and stay as long as the device. The reference is not given
        // up.
        let data = ManuallyDrop::new(unsafe { Arc::from_raw(data.as_ptr().cast::<T>()) });
        (this, data)
    }

    /// `bin_attribute::read`.
    ///
    /// # Safety
    ///
    /// Called by sysfs for a file that `ClassDevice::add_file` has made from a `Self`, with a
    /// buffer of `count` bytes.
    unsafe extern "C" fn read_raw(
        _file: *mut bindings::file,
        kobject: *mut bindings::kobject,
        attribute: *const bindings::bin_attribute,
        buffer: *mut c_char,
        offset: bindings::loff_t,
        count: usize,
    ) -> isize {
        // SAFETY: By the safety requirement.
        let (this, data) = unsafe { Self::target(kobject, attribute) };
        let (Some(buffer), Ok(offset)) = (NonNull::new(buffer), u64::try_from(offset)) else {
            return EINVAL.to_errno() as isize;
        };
        // SAFETY: By the safety requirement.
        let mut out = unsafe { SysfsOutput::new(buffer.cast(), count) };
        match (this.read)(&data, offset, &mut out) {
            Ok(()) => out.len() as isize,
            Err(error) => error.to_errno() as isize,
        }
    }

    /// `bin_attribute::write`.
    ///
    /// # Safety
    ///
    /// As for [`Self::read_raw`], with a buffer of `count` bytes to read.
    unsafe extern "C" fn write_raw(
        file: *mut bindings::file,
        kobject: *mut bindings::kobject,
        attribute: *const bindings::bin_attribute,
        buffer: *mut c_char,
        offset: bindings::loff_t,
        count: usize,
    ) -> isize {
        // SAFETY: By the safety requirement.
        let (this, data) = unsafe { Self::target(kobject, attribute) };
        let Ok(offset) = u64::try_from(offset) else {
            return EINVAL.to_errno() as isize;
        };
        // SAFETY: By the safety requirement. The buffer is a copy of the user's bytes.
        let bytes = unsafe { slice::from_raw_parts(buffer.cast_const().cast::<u8>(), count) };
        match (this.write)(&data, OpenFile(file.addr()), offset, bytes) {
            Ok(()) => count as isize,
            Err(error) => error.to_errno() as isize,
        }
    }
}

const _: () = assert!(mem::offset_of!(BinaryAttribute<()>, file) == 0);
