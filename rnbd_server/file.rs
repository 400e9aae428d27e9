// SPDX-License-Identifier: GPL-2.0

//! Open files, and block devices through the page cache. The access mode is part of the type.

use kernel::str::CStr;
use kernel_ext::{
    block::{
        disk::{
            Limits,
            Position,
            RangeOp,
            ReadOnly,
            ReadWrite,
            Refused,
            Wait,
            WriteFlags, //
        }, //
    },
    fs::{
        self,
        disk::{
            Backing,
            OpenFile, //
        },
        file::{
            Facts,
            Found,
            RegularFile, //
        }, //
    },
    pr_err_ratelimited,
    prelude::*,
    sync::gate::GateOwner, //
};
use proto::{
    file_disk::{
        Alignment,
        Blocks,
        FileError,
        FileFacts, //
    },
    rnbd::{
        AccessMode,
        IoMode,
        SECTOR_SIZE, //
    }, //
};
use rtrs_core::error::from_errno;

use crate::{
    disk::Disk,
    io_completion::IoCompletion, //
};

/// An open file.
///
/// Dropped in process context; waits for requests.
pub(crate) enum FileHandle {
    /// For a client that may not change the file.
    ReadOnly(OpenFile<IoCompletion, ReadOnly>),
    /// For a client that may change the file.
    ReadWrite(OpenFile<IoCompletion, ReadWrite>),
}

/// The use of an open file, for one request.
pub(crate) enum FileUse {
    ReadOnly(fs::disk::FileUse<IoCompletion, ReadOnly>),
    ReadWrite(fs::disk::FileUse<IoCompletion, ReadWrite>),
}

impl FileHandle {
    /// Opens the regular file that was found by `path`. Sleeps.
    pub(crate) fn open(
        path: &CStr,
        found: &Found,
        mode: AccessMode,
        io_mode: IoMode,
    ) -> Result<Self> {
        let direct = io_mode == IoMode::Direct;
        let blocks = |file: &RegularFile| {
            let blocks = Blocks::of(&facts_of(file.facts()), io_mode);
            blocks
                .map(|blocks| blocks.logical)
                .map_err(|refused| refuse(path, &refused))
        };
        let opened = if mode.is_read_only() {
            OpenFile::open(found, direct, blocks).map(Self::ReadOnly)
        } else {
            OpenFile::open(found, direct, blocks).map(Self::ReadWrite)
        };
        opened.map_err(|error| match error {
            EOPNOTSUPP if direct => refuse(path, &FileError::NoDirectIo),
            error => error,
        })
    }

    /// Opens the block device with the given path, to be used through the page cache. Sleeps.
    pub(crate) fn open_device(path: &CStr, mode: AccessMode) -> Result<Self> {
        Ok(if mode.is_read_only() {
            Self::ReadOnly(OpenFile::open_device(path)?)
        } else {
            Self::ReadWrite(OpenFile::open_device(path)?)
        })
    }

    /// Lets the caller at the file, unless it is closed. Any context.
    #[inline]
    pub(crate) fn enter(&self) -> Option<FileUse> {
        Some(match self {
            Self::ReadOnly(file) => FileUse::ReadOnly(file.enter()?),
            Self::ReadWrite(file) => FileUse::ReadWrite(file.enter()?),
        })
    }

    /// The gate by which requests enter. Any context.
    pub(crate) fn gate(&self) -> &dyn GateOwner {
        match self {
            Self::ReadOnly(file) => file.gate(),
            Self::ReadWrite(file) => file.gate(),
        }
    }
}

/// Logs why a file cannot be a disk; returns the error number.
fn refuse(path: &CStr, refused: &FileError) -> Error {
    let advice = if refused.is_of_direct_io() {
        "; load rnbd_server with file_io_mode=buffered, or map the file with io_mode=buffered"
    } else {
        ""
    };
    pr_err_ratelimited!(
        "file {:?} cannot be a disk: {}{}\n",
        path,
        refused.message().as_str(),
        advice
    );
    from_errno(refused.errno())
}

/// The facts of a file, in the type of the protocol's crate.
pub(crate) fn facts_of(facts: &Facts) -> FileFacts {
    FileFacts {
        size: facts.size,
        block_size: facts.block_size,
        alignment: facts.alignment.map(|alignment| Alignment {
            offset: alignment.offset,
            memory: alignment.memory,
        }),
    }
}

impl FileUse {
    /// The disk itself. Any context.
    pub(crate) fn disk(&self) -> Disk<'_> {
        let backing = match self {
            Self::ReadOnly(file) => file.backing(),
            Self::ReadWrite(file) => file.backing(),
        };
        match backing {
            Backing::Regular(file) => Disk::File(file),
            Backing::Block(device) => Disk::BlockDevice(device),
        }
    }

    /// How the file is read and written.
    pub(crate) fn io_mode(&self) -> IoMode {
        let direct = match self {
            Self::ReadOnly(file) => file.is_direct(),
            Self::ReadWrite(file) => file.is_direct(),
        };
        if direct {
            IoMode::Direct
        } else {
            IoMode::Buffered
        }
    }

    /// The number of sectors of 512 bytes that the file has now. Requests can reach all of them
    /// from now on.
    pub(crate) fn update_size(&self) -> u64 {
        match self {
            Self::ReadOnly(file) => file.update_size(),
            Self::ReadWrite(file) => file.update_size(),
        }
    }

    /// The limits of requests. Any context.
    pub(crate) fn limits(&self) -> Limits {
        let logical_block_size = match self {
            Self::ReadOnly(file) => file.logical_block_size(),
            Self::ReadWrite(file) => file.logical_block_size(),
        };
        // The page cache is a write cache, and single writes can go through it (FUA).
        let cached = Limits {
            logical_block_size,
            max_segments: MAX_SEGMENTS,
            max_sectors: MAX_SECTORS,
            max_hw_sectors: MAX_SECTORS,
            write_cache: true,
            fua: true,
            ..Limits::default()
        };
        match self.disk() {
            Disk::BlockDevice(device) => {
                let device = device.limits();
                // `fallocate` does both, and zeroes without writing where the device can.
                let unmap = device.max_write_zeroes_sectors != 0 && device.max_discard_sectors != 0;
                Limits {
                    physical_block_size: device.physical_block_size,
                    max_write_zeroes_sectors: device.max_write_zeroes_sectors,
                    max_discard_sectors: if unmap { MAX_SECTORS } else { 0 },
                    discard_granularity: device.discard_granularity,
                    discard_alignment: device.discard_alignment,
                    rotational: device.rotational,
                    ..cached
                }
            }
            Disk::File(file) => {
                let facts = file.facts();
                let physical_block_size = Blocks::physical_of(facts.block_size, logical_block_size);
                let range_sectors = if facts.has_fallocate { MAX_SECTORS } else { 0 };
                Limits {
                    physical_block_size,
                    max_write_zeroes_sectors: range_sectors,
                    max_discard_sectors: range_sectors,
                    discard_granularity: physical_block_size,
                    write_cache: facts.has_fsync,
                    ..cached
                }
            }
        }
    }

    /// Reads into the memory of a completion; see [`fs::disk::FileUse::read`].
    pub(crate) fn read(
        self,
        wait: Wait,
        at: Position,
        completion: IoCompletion,
    ) -> Result<(), Refused<IoCompletion>> {
        self.read_only().read(wait, at, completion)
    }

    /// Makes all earlier writes durable; see [`fs::disk::FileUse::flush`].
    pub(crate) fn flush(
        self,
        wait: Wait,
        at: Position,
        completion: IoCompletion,
    ) -> Result<(), Refused<IoCompletion>> {
        self.read_only().flush(wait, at, completion)
    }

    /// Writes the memory of a completion; see [`fs::disk::FileUse::write`]. `EROFS` if the client
    /// may not write.
    pub(crate) fn write(
        self,
        flags: WriteFlags,
        wait: Wait,
        at: Position,
        completion: IoCompletion,
    ) -> Result<(), Refused<IoCompletion>> {
        match self {
            Self::ReadWrite(file) => file.write(flags, wait, at, completion),
            Self::ReadOnly(_) => Err(read_only(completion)),
        }
    }

    /// Changes sectors without data; see [`fs::disk::FileUse::range`]. `EROFS` if the client may
    /// not write.
    pub(crate) fn range(
        self,
        op: RangeOp,
        wait: Wait,
        at: Position,
        len: u32,
        completion: IoCompletion,
    ) -> Result<(), Refused<IoCompletion>> {
        match self {
            Self::ReadWrite(file) => file.range(op, wait, at, len, completion),
            Self::ReadOnly(_) => Err(read_only(completion)),
        }
    }

    fn read_only(self) -> fs::disk::FileUse<IoCompletion, ReadOnly> {
        match self {
            Self::ReadOnly(file) => file,
            Self::ReadWrite(file) => file.read_only(),
        }
    }
}

fn read_only(completion: IoCompletion) -> Refused<IoCompletion> {
    Refused {
        completion,
        error: EROFS,
    }
}

/// The most sectors of a request without data: its length in bytes has 32 bits.
const MAX_SECTORS: u32 = u32::MAX / SECTOR_SIZE;

/// The most segments of a request. File systems have no limit; every client takes this number.
const MAX_SEGMENTS: u32 = 128;
