// SPDX-License-Identifier: GPL-2.0

//! Files that are opened by path.
//!
//! Would extend: `rust/kernel/fs/file.rs`, which has the files of processes.
//!
//! C headers: [`include/linux/namei.h`](srctree/include/linux/namei.h),
//! [`include/linux/fs.h`](srctree/include/linux/fs.h)

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
    block::disk::Mode,
    prelude::*, //
};

/// The kind of inode to which a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
    /// A directory, a character device, a FIFO or a socket.
    Other,
}

/// An inode that was found by a path. The inode stays the same if the path leads to another one
/// later.
///
/// # Invariants
///
/// This object owns one reference to `path`, which leads to an inode.
pub struct Found {
    path: bindings::path,
}

// SAFETY: A `struct path` is not tied to a task.
unsafe impl Send for Found {}
// SAFETY: Through a shared reference the path is only read.
unsafe impl Sync for Found {}

impl Found {
    /// Follows a path, including all links, from the root of the init process.
    ///
    /// Process context; sleeps. Does not open the file, so a FIFO does not block. Errors are those
    /// of the lookup: `ENOENT`, `ENOTDIR`, `ELOOP` and more.
    pub fn look_up(path: &CStr) -> Result<Self> {
        let mut found = bindings::path::default();
        // SAFETY: The path is a C string, which the function only reads; `found` is valid for
        // writes.
        to_result(unsafe { bindings::rnbd_helper_kern_path(path.as_char_ptr(), &raw mut found) })?;
        // INVARIANT: The reference came with the path; `kern_path` finds no negative dentry.
        Ok(Self { path: found })
    }

    /// The type of the inode. Any context.
    pub fn kind(&self) -> Kind {
        // SAFETY: By the type invariant the path is valid and leads to an inode.
        let mode = unsafe { bindings::rnbd_helper_path_mode(&raw const self.path) };
        match mode & bindings::S_IFMT {
            bindings::S_IFREG => Kind::Regular,
            bindings::S_IFBLK => Kind::BlockDevice,
            _ => Kind::Other,
        }
    }

    /// Whether the inode cannot be written to: its file system is read-only, or the inode is
    /// immutable. Any context.
    pub fn is_read_only(&self) -> bool {
        // SAFETY: By the type invariant the path is valid and leads to an inode.
        unsafe { bindings::rnbd_helper_path_is_read_only(&raw const self.path) }
    }

    /// The identity of the inode; for a block device that of its device node. Process context; may
    /// sleep. Errors are those of `statx`.
    pub fn file_id(&self) -> Result<FileId> {
        let mut id = FileId::default();
        // SAFETY: By the type invariant the path is valid and leads to an inode; the places are
        // valid for writes.
        to_result(unsafe {
            bindings::rnbd_helper_path_id(&raw const self.path, &raw mut id.dev, &raw mut id.ino)
        })?;
        Ok(id)
    }

    /// The kernel's number of the block device (C: `dev_t`); `None` if the inode is not a block
    /// device. Any context.
    pub fn device_number(&self) -> Option<u32> {
        // SAFETY: By the type invariant the path is valid and leads to an inode.
        let number = unsafe { bindings::rnbd_helper_path_rdev(&raw const self.path) };
        (self.kind() == Kind::BlockDevice).then_some(number)
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours. It is not used again.
        unsafe { bindings::path_put(&raw const self.path) };
    }
}

/// The identity of a file, independent of its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The number of its file system (C: `st_dev`).
    pub dev: u32,
    /// The number of the file in its file system (C: `st_ino`).
    pub ino: u64,
}

/// The alignment that a file system requires for direct IO (`STATX_DIOALIGN`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    /// The alignment of a request's beginning and end in the file; 0 if the file takes no direct
    /// IO.
    pub offset: u32,
    /// The alignment of a request's memory.
    pub memory: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The identity of the file.
    pub id: FileId,
    /// The UUID of its file system. Zeroes if the file system has none, or if UUID, number and
    /// generation do not identify a file for good.
    pub fs_uuid: [u8; 16],
    /// The generation, which differs from that of an earlier file with the same number.
    pub generation: u32,
    /// Its size in bytes.
    pub size: u64,
    /// The block size of its file system in bytes.
    pub block_size: u32,
    /// The alignment for direct IO; `None` if the file system does not report one.
    pub alignment: Option<DirectAlignment>,
    /// Whether the file system has `fallocate`, of any kind.
    pub has_fallocate: bool,
    /// Whether the file system has `fsync`. A file system that cannot be written to has none.
    pub has_fsync: bool,
}

/// An open regular file, which is closed when this value is dropped.
///
/// Opening and dropping sleep. The file is closed when the drop returns.
///
/// # Invariants
///
/// `file` is a regular file that has `read_iter`, and `write_iter` if it is open for writing. This
/// object holds the only reference to it that outlives a call.
pub struct RegularFile {
    file: NonNull<bindings::file>,
    facts: Facts,
}

// SAFETY: Files are not tied to a task.
unsafe impl Send for RegularFile {}
// SAFETY: Through a shared reference attributes are read and requests submitted, which the file
// systems allow in any task, also concurrently.
unsafe impl Sync for RegularFile {}

impl RegularFile {
    /// The longest path in bytes, with its NUL.
    pub const PATH_MAX: usize = bindings::PATH_MAX as usize;

    /// Opens the found inode, for direct IO or for IO through the page cache, with the caller's
    /// credentials: those of the kernel in a kernel thread.
    ///
    /// Process context; sleeps. `ENOTBLK` if the inode is not a regular file, if it is an interface
    /// of the kernel rather than data, if it has no read and write by `kiocb`, or if the kernel
    /// ignores devices on its file system, as on proc, sysfs and all mounts made in another user
    /// namespace. `ETXTBSY` if the machine swaps to the file, or, for writing, if the file is a
    /// running program. For writing also `EROFS` on a read-only file system and `EPERM` for an
    /// immutable file. `EOPNOTSUPP` if the file takes no direct IO. Otherwise errors of the file
    /// system and of `statx`.
    pub fn open(found: &Found, mode: Mode, direct: bool) -> Result<Self> {
        let write = mode == Mode::ReadWrite;
        // SAFETY: By the type invariant of `Found` the path is valid and leads to an inode.
        let file = unsafe {
            bindings::rnbd_helper_open_regular(&raw const found.path, write, direct)
            //
        };
        // INVARIANT: The reference came with the file. Its kind and functions are checked below.
        let mut this = Self {
            file: NonNull::new(from_err_ptr(file)?).ok_or(ENXIO)?,
            facts: Facts::default(),
        };
        // SAFETY: The file is open.
        if !unsafe { bindings::rnbd_helper_file_has_data(this.as_file()) } {
            return Err(ENOTBLK);
        }
        this.facts = this.read_facts()?;
        Ok(this)
    }

    /// The attributes of the file when it was opened. Any context.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The present size in bytes. Any context.
    pub fn size(&self) -> u64 {
        // SAFETY: The file is open by the type invariant.
        unsafe { bindings::rnbd_helper_file_size(self.as_file()) }
    }

    /// The raw file, valid as long as `self`.
    pub(super) fn as_file(&self) -> *mut bindings::file {
        self.file.as_ptr()
    }

    /// The present attributes of the file. Process context; may sleep. Errors are those of `statx`.
    fn read_facts(&self) -> Result<Facts> {
        let mut raw = bindings::rnbd_file_facts::default();
        // SAFETY: The file is open by the type invariant, `raw` is valid for writes.
        to_result(unsafe { bindings::rnbd_helper_file_facts(self.as_file(), &raw mut raw) })?;
        Ok(Facts {
            id: FileId {
                dev: raw.dev,
                ino: raw.ino,
            },
            fs_uuid: raw.fs_uuid,
            generation: raw.generation,
            size: raw.size,
            block_size: raw.block_size,
            alignment: raw.says_alignment.then_some(DirectAlignment {
                offset: raw.offset_alignment,
                memory: raw.memory_alignment,
            }),
            has_fallocate: raw.has_fallocate,
            has_fsync: raw.has_fsync,
        })
    }

    /// The path of the file as the init process sees it, without links. For a deleted file its last
    /// path with ` (deleted)` appended.
    ///
    /// Process context. `ENAMETOOLONG` if the buffer is too short; [`Self::PATH_MAX`] bytes are
    /// enough for nearly all paths.
    pub fn path<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a CStr> {
        let size = i32::try_from(buffer.len())?;
        // SAFETY: The file is open by the type invariant, the buffer has the size given.
        let path = unsafe {
            bindings::rnbd_helper_file_path(self.as_file(), buffer.as_mut_ptr().cast(), size)
        };
        if path.is_null() {
            return Err(ENAMETOOLONG);
        }
        let start = path.addr() - buffer.as_ptr().addr();
        let path = buffer.get(start..).ok_or(ENAMETOOLONG)?;
        CStr::from_bytes_until_nul(path).map_err(|_| ENAMETOOLONG)
    }
}

impl Drop for RegularFile {
    fn drop(&mut self) {
        // The file must be closed when this returns, as for a block device: an administrator who
        // has unmapped a file may want to unmount its file system.
        // SAFETY: The reference is ours by the type invariant and is not used again.
        unsafe { bindings::__fput_sync(self.file.as_ptr()) };
    }
}
