// SPDX-License-Identifier: GPL-2.0

//! The names in a folder. Belongs to [`fs`](super).
//!
//! C header: [`include/linux/fs.h`](srctree/include/linux/fs.h)

use core::slice;
use kernel::{
    error::to_result,
    str::CStr, //
};

use crate::{
    bindings,
    prelude::*, //
};

/// The kind of an entry of a folder, as the folder reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// Any other kind.
    Other,
    /// The file system does not say.
    Unknown,
}

impl Entry {
    fn of(raw: bindings::rnbd_entry) -> Self {
        match raw {
            bindings::rnbd_entry_RNBD_ENTRY_FOLDER => Self::Folder,
            bindings::rnbd_entry_RNBD_ENTRY_LINK => Self::Link,
            bindings::rnbd_entry_RNBD_ENTRY_FILE => Self::File,
            bindings::rnbd_entry_RNBD_ENTRY_BLOCK_DEVICE => Self::BlockDevice,
            bindings::rnbd_entry_RNBD_ENTRY_UNKNOWN => Self::Unknown,
            _ => Self::Other,
        }
    }
}

/// The most names of a folder that are read.
const MAX_NAMES: c_uint = 1 << 20;

/// Calls `visit` for each name in the folder `path`, in the order of the file system; `.` and `..`
/// are among them. All links of the path are followed, from the root of the init process.
///
/// Process context; sleeps. `visit` may be called with the folder locked: it must not use the file
/// system, and not sleep for long. `EFBIG` if the folder has more than 2^20 names, after `visit`
/// was called for 2^20 of them. Otherwise errors of the lookup and of the file system.
pub fn for_each_name<F: FnMut(&[u8], Entry)>(path: &CStr, mut visit: F) -> Result {
    // SAFETY: The path is a C string. `take::<F>` is called only while the function runs, with the
    // pointer that is passed here. No other code uses `visit` meanwhile.
    to_result(unsafe {
        bindings::rnbd_helper_list_folder(
            path.as_char_ptr(),
            MAX_NAMES,
            Some(take::<F>),
            (&raw mut visit).cast(),
        )
    })
}

/// Calls a visitor.
///
/// # Safety
///
/// `visit` must point to an `F` that no other code uses meanwhile, and `name` to `len` bytes.
unsafe extern "C" fn take<F: FnMut(&[u8], Entry)>(
    visit: *mut c_void,
    name: *const c_char,
    len: c_int,
    entry: bindings::rnbd_entry,
) {
    let Ok(len) = usize::try_from(len) else {
        return;
    };
    // SAFETY: By the safety requirement.
    let (visit, name) = unsafe {
        (
            &mut *visit.cast::<F>(),
            slice::from_raw_parts(name.cast::<u8>(), len),
        )
    };
    visit(name, Entry::of(entry));
}
