// SPDX-License-Identifier: GPL-2.0

//! Open disks: block devices and files. The access mode is part of the type.

use kernel::{
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    block::{
        bio::{
            BioSet,
            DeviceUse,
            OpenDevice, //
        },
        disk::{
            Limits,
            ReadOnly,
            ReadWrite, //
        }, //
    },
    fs::file::{
        Found,
        Kind, //
    },
    pr_err_ratelimited,
    prelude::*,
    sync::gate::GateOwner, //
};
use proto::{
    rnbd::{
        AccessMode,
        IoMode, //
    }, //
};

use crate::{
    disk::Disk,
    file::{
        FileHandle,
        FileUse, //
    },
    io_completion::IoCompletion,
    params::{
        BLOCK_IO_MODE,
        FILE_IO_MODE, //
    }, //
};

/// An open disk.
///
/// Dropped in process context; waits for requests.
pub(crate) enum Handle {
    /// A block device, for a client that may not change it.
    ReadOnly(OpenDevice<IoCompletion, ReadOnly>),
    /// A block device, for a client that may change it.
    ReadWrite(OpenDevice<IoCompletion, ReadWrite>),
    /// A file, or a block device through the page cache.
    File(FileHandle),
}

/// The use of an open disk, for one request.
pub(crate) enum HandleUse {
    ReadOnly(DeviceUse<IoCompletion, ReadOnly>),
    ReadWrite(DeviceUse<IoCompletion, ReadWrite>),
    File(FileUse),
}

// Two words, so that requests pass it in registers.
const _: () = assert!(size_of::<HandleUse>() == 2 * size_of::<usize>());

impl Handle {
    /// Opens the disk that was found by `path`; a regular file only with `gives_file`. Without
    /// `io_mode` the module's parameters say how the disk is read and written. Sleeps.
    ///
    /// `ENOTBLK` if the path leads to neither a block device nor a regular file with data, and for
    /// a regular file without `gives_file`. The C server gives no files.
    pub(crate) fn open(
        path: &CStr,
        found: &Found,
        gives_file: bool,
        mode: AccessMode,
        io_mode: Option<IoMode>,
        bios: &Arc<BioSet<IoCompletion>>,
    ) -> Result<Self> {
        let opened = match found.kind() {
            Kind::BlockDevice => {
                let io_mode = io_mode.unwrap_or(BLOCK_IO_MODE.get().0);
                Self::open_device(path, mode, io_mode, bios)
            }
            Kind::Regular if !gives_file => {
                pr_err_ratelimited!(
                    "file {:?} is not exported: set dev_search_path to a folder of images, or load \
                     an export policy\n",
                    path
                );
                return Err(ENOTBLK);
            }
            Kind::Regular => {
                let io_mode = io_mode.unwrap_or(FILE_IO_MODE.get().0);
                FileHandle::open(path, found, mode, io_mode).map(Self::File)
            }
            Kind::Other => Err(ENOTBLK),
        };
        opened.inspect_err(|error| {
            if *error == ENOTBLK {
                pr_err_ratelimited!(
                    "{:?} is neither a block device nor a regular file with data\n",
                    path
                );
            }
        })
    }

    /// Opens the block device with the given path. Sleeps.
    fn open_device(
        path: &CStr,
        mode: AccessMode,
        io_mode: IoMode,
        bios: &Arc<BioSet<IoCompletion>>,
    ) -> Result<Self> {
        Ok(match io_mode {
            IoMode::Buffered => Self::File(FileHandle::open_device(path, mode)?),
            IoMode::Direct if mode.is_read_only() => Self::ReadOnly(OpenDevice::open(path, bios)?),
            IoMode::Direct => Self::ReadWrite(OpenDevice::open(path, bios)?),
        })
    }

    /// Lets the caller at the disk, unless it is closed. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<HandleUse> {
        Some(match self {
            Self::ReadOnly(device) => HandleUse::ReadOnly(device.enter()?),
            Self::ReadWrite(device) => HandleUse::ReadWrite(device.enter()?),
            Self::File(file) => HandleUse::File(file.enter()?),
        })
    }

    /// The gate by which requests enter. Any context.
    pub(crate) fn gate(&self) -> &dyn GateOwner {
        match self {
            Self::ReadOnly(device) => device.gate(),
            Self::ReadWrite(device) => device.gate(),
            Self::File(file) => file.gate(),
        }
    }
}

impl HandleUse {
    /// The disk itself. Any context.
    pub(crate) fn disk(&self) -> Disk<'_> {
        match self {
            Self::ReadOnly(device) => Disk::BlockDevice(device.device()),
            Self::ReadWrite(device) => Disk::BlockDevice(device.device()),
            Self::File(file) => file.disk(),
        }
    }

    /// How the disk is read and written.
    pub(crate) fn io_mode(&self) -> IoMode {
        match self {
            Self::ReadOnly(_) | Self::ReadWrite(_) => IoMode::Direct,
            Self::File(file) => file.io_mode(),
        }
    }

    /// The number of sectors of 512 bytes that the disk has now. From now on the requests of a file
    /// can reach that many, and no more if the file grows.
    pub(crate) fn update_size(&self) -> u64 {
        match self {
            Self::ReadOnly(device) => device.device().nr_sectors(),
            Self::ReadWrite(device) => device.device().nr_sectors(),
            Self::File(file) => file.update_size(),
        }
    }

    /// The limits of requests. Any context.
    pub(crate) fn limits(&self) -> Limits {
        match self {
            Self::ReadOnly(device) => device.device().limits(),
            Self::ReadWrite(device) => device.device().limits(),
            Self::File(file) => file.limits(),
        }
    }
}
