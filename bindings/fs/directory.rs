// SPDX-License-Identifier: GPL-2.0

//! Small files that a module keeps in a directory. Each file is written as a whole.
//!
//! All functions sleep: process context. Their allocations do not wait for IO (`GFP_NOIO`), to
//! avoid a deadlock: a client that is short of memory may write to a disk of this server to free
//! memory, and that write may wait for the file that is written here.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/namei.h`](srctree/include/linux/namei.h)

use core::ptr::NonNull;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    str::CStr, //
};

use crate::{
    bindings,
    fs::file::RegularFile,
    mm::without_io,
    prelude::*, //
};

/// An open directory. Its file system stays mounted as long as this value exists. Must be dropped
/// in process context.
///
/// # Invariants
///
/// `file` is a directory, and this object holds a reference to it. Calls keep no further reference.
pub struct Directory {
    file: NonNull<bindings::file>,
}

// SAFETY: Files are not tied to a task.
unsafe impl Send for Directory {}
// SAFETY: Through a shared reference files in the directory are opened, renamed and removed, which
// file systems allow in any task, also concurrently.
unsafe impl Sync for Directory {}

/// The failure to replace or to remove a file.
pub struct Failed {
    /// The error of the file system.
    pub error: Error,
    /// Whether the change may have happened nevertheless: the file system was asked for the change,
    /// but has not confirmed that it is done and on stable storage.
    pub may_be_done: bool,
}

impl Failed {
    /// Makes the failure for an error before any change.
    pub fn before(error: Error) -> Self {
        Self {
            error,
            may_be_done: false,
        }
    }

    /// Makes the failure for an error after which the file may have changed, for good or not, if
    /// the change has `begun`.
    fn after(error: Error, begun: bool) -> Self {
        Self {
            error,
            may_be_done: begun,
        }
    }
}

impl Directory {
    /// Opens a directory, with the kernel's credentials. Links in the path are followed. The path
    /// starts at the root of the init process; before Linux 7.3 at the root of the caller.
    ///
    /// Errors are those of the lookup, among them `ENOENT` and `ENOTDIR`. `EINVAL` if the file
    /// system cannot write a directory to stable storage (`fsync`), as tmpfs. A file system whose
    /// `fsync` reports success without doing it (FUSE) is not detected.
    pub fn open(path: &CStr) -> Result<Self> {
        without_io(|| {
            // SAFETY: The path is a C string, which the function only reads.
            let file = unsafe { bindings::rnbd_helper_directory_open(path.as_char_ptr()) };
            // INVARIANT: The reference came with the file, which is a directory.
            let this = Self {
                file: NonNull::new(from_err_ptr(file)?).ok_or(ENXIO)?,
            };
            this.sync()?;
            Ok(this)
        })
    }

    /// Reads a file up to its end or until the buffer is full. Returns the number of bytes.
    ///
    /// `EINVAL` if the file is not a regular file or `name` is not the name of a file, `ELOOP` if
    /// the file is a link, `ENOENT` if there is no such file, and errors of the file system.
    pub fn read(&self, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
        check(name)?;
        // SAFETY: The directory is open by the type invariant, the name is a C string, and the
        // buffer is valid for writes of its length.
        let len = without_io(|| unsafe {
            bindings::rnbd_helper_directory_read(
                self.as_file(),
                name.as_char_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        });
        usize::try_from(len).map_err(|_| Error::from_errno(len as i32))
    }

    /// Replaces the file `name` by a file that consists of `bytes`, or creates the file. The new
    /// file is on stable storage when this returns. If the machine stops before, the directory has
    /// the whole old file or the whole new file.
    ///
    /// The bytes are first written to a new file `temporary`; an existing file of this name is
    /// removed. Must not be called concurrently with the same names. Errors as of [`Self::read`],
    /// `ENOSPC`, `EROFS` and more.
    pub fn replace(&self, name: &CStr, temporary: &CStr, bytes: &[u8]) -> Result<(), Failed> {
        check(name).map_err(Failed::before)?;
        check(temporary).map_err(Failed::before)?;
        without_io(|| {
            // SAFETY: The directory is open by the type invariant, the names are C strings, and the
            // bytes are valid for reads of their length.
            to_result(unsafe {
                bindings::rnbd_helper_directory_write(
                    self.as_file(),
                    temporary.as_char_ptr(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                )
            })
            .map_err(Failed::before)?;
            let mut begun = false;
            // SAFETY: As above; the flag is valid for writes.
            to_result(unsafe {
                bindings::rnbd_helper_directory_rename(
                    self.as_file(),
                    temporary.as_char_ptr(),
                    name.as_char_ptr(),
                    &raw mut begun,
                )
            })
            .and_then(|()| self.sync())
            .map_err(|error| Failed::after(error, begun))
        })
    }

    /// Removes a file. The removal is on stable storage when this returns. Returns whether there
    /// was a file. Errors as of [`Self::replace`].
    pub fn remove(&self, name: &CStr) -> Result<bool, Failed> {
        check(name).map_err(Failed::before)?;
        without_io(|| {
            let mut begun = false;
            // SAFETY: The directory is open by the type invariant, the name is a C string, the flag
            // is valid for writes.
            let removed = to_result(unsafe {
                bindings::rnbd_helper_directory_remove(
                    self.as_file(),
                    name.as_char_ptr(),
                    &raw mut begun,
                )
            });
            let was_there = match removed {
                Ok(()) => true,
                Err(ENOENT) => false,
                Err(error) => return Err(Failed::after(error, begun)),
            };
            // If there is no such file, it may have been removed before, but not yet on stable
            // storage.
            self.sync().map_err(|error| Failed::after(error, true))?;
            Ok(was_there)
        })
    }

    /// Whether the directory has `file` under the name by which `file` was opened. Sleeps.
    pub fn holds(&self, file: &RegularFile) -> bool {
        // SAFETY: Both are open by their type invariants.
        unsafe { bindings::rnbd_helper_directory_holds(self.as_file(), file.as_file()) }
    }

    /// Waits until the names of all files are on stable storage. Sleeps. Errors are those of the
    /// file system.
    pub fn sync(&self) -> Result {
        // SAFETY: The directory is open by the type invariant.
        to_result(unsafe { bindings::rnbd_helper_directory_sync(self.as_file()) })
    }

    fn as_file(&self) -> *mut bindings::file {
        self.file.as_ptr()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // When this returns, the file system can be unmounted.
        // SAFETY: The reference is ours by the type invariant and is not used again.
        unsafe { bindings::__fput_sync(self.file.as_ptr()) };
    }
}

/// `EINVAL` unless `name` is the name of a file in a directory: a path would lead to another
/// directory.
fn check(name: &CStr) -> Result {
    match name.to_bytes() {
        b"" | b"." | b".." => Err(EINVAL),
        name if name.contains(&b'/') => Err(EINVAL),
        _ => Ok(()),
    }
}
