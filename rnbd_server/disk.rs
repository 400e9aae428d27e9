// SPDX-License-Identifier: GPL-2.0

//! Open disks, whatever requests go through.

use kernel_ext::{
    block::bdev::BlockDevice,
    fs::file::{
        FileId,
        RegularFile, //
    }, //
};

/// An open disk.
#[derive(Clone, Copy)]
pub(crate) enum Disk<'a> {
    /// A block device.
    BlockDevice(&'a BlockDevice),
    /// A regular file.
    File(&'a RegularFile),
}

/// The identity of a disk on this server, whatever clients call the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The kernel's number of a block device.
    BlockDevice(u32),
    /// The number of a file and of its file system.
    File(FileId),
}

impl Disk<'_> {
    /// Which disk it is. Any context.
    pub(crate) fn identity(&self) -> Identity {
        match self {
            Self::BlockDevice(device) => Identity::BlockDevice(device.number()),
            Self::File(file) => Identity::File(file.facts().id),
        }
    }

    /// Whether the disk has become read-only. Never true of a file: a file system that fails or is
    /// shut down refuses its writes, with an error for each. Any context.
    pub(crate) fn is_read_only(&self) -> bool {
        match self {
            Self::BlockDevice(device) => device.is_read_only(),
            Self::File(_) => false,
        }
    }

    /// Whether the disk was removed. A file stays as long as it is open. Any context.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::BlockDevice(device) => device.is_gone(),
            Self::File(_) => false,
        }
    }
}
