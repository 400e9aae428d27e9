// SPDX-License-Identifier: GPL-2.0

//! Files as disks: the block sizes of a file.

use core::fmt;

use crate::{
    rnbd::{
        IoMode,
        SECTOR_SIZE, //
    },
    text::impl_error, //
};

/// The alignment that direct IO to a file needs, as the file system tells (`STATX_DIOALIGN`), in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// The unit of a request's beginning and end in the file; 0: the file takes no direct IO.
    pub offset: u32,
    /// The alignment of a request's memory.
    pub memory: u32,
}

/// The properties of a regular file that its file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The size of the file in bytes.
    pub size: u64,
    /// The block size of the file system in bytes.
    pub block_size: u32,
    /// The alignment for direct IO; `None` if the file system does not tell.
    pub alignment: Option<Alignment>,
}

/// The block sizes of a file that is a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The smallest block of a request, in bytes: a power of two from 512 to [`Self::MAX`].
    pub logical: u32,
    /// The smallest block that is written without reading, in bytes: a power of two, not less than
    /// `logical`.
    pub physical: u32,
}

/// Why a file cannot be a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The file system takes no direct IO to this file.
    NoDirectIo,
    /// The file system takes direct IO only in units of this many bytes.
    Offset(u32),
    /// The file system takes direct IO only from memory that is aligned to this many bytes.
    Memory(u32),
    /// The file is smaller than a block.
    TooSmall {
        /// The size of the file.
        size: u64,
        /// The size of a block.
        block: u32,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDirectIo => f.write_str("its file system does no direct IO to it"),
            Self::Offset(unit) => write!(
                f,
                "direct IO to it needs units of {unit} bytes, and a disk's blocks are powers of \
                 two up to {} bytes",
                Blocks::MAX
            ),
            Self::Memory(unit) => write!(
                f,
                "direct IO to it needs memory aligned to {unit} bytes, and the server's is aligned \
                 to {}",
                Blocks::MEMORY
            ),
            Self::TooSmall { size, block } => {
                write!(f, "it has {size} bytes, and a block has {block}")
            }
        }
    }
}

impl_error!(FileError, EINVAL);

impl FileError {
    /// Whether the file could be a disk through the page cache.
    pub const fn is_of_direct_io(&self) -> bool {
        !matches!(self, Self::TooSmall { .. })
    }
}

impl Blocks {
    /// The largest logical block in bytes: its field in the open response has 16 bits.
    pub const MAX: u32 = 1 << 15;

    /// The alignment of the memory of requests, in bytes: the memory begins with a page, which has
    /// at least 4 KiB.
    pub const MEMORY: u32 = 4096;

    /// The block sizes of a file.
    ///
    /// With direct IO the logical block is the unit that the file system asks for. If the file
    /// system does not tell, it is a block of the file system, at most 4 KiB: larger blocks are
    /// those of network file systems, to which blocks mean nothing. Through the page cache the
    /// logical block is a sector.
    pub fn of(facts: &FileFacts, mode: IoMode) -> Result<Self, FileError> {
        let fs_block = fs_block(facts.block_size);
        let logical = match (mode, facts.alignment) {
            (IoMode::Buffered, _) => SECTOR_SIZE,
            (IoMode::Direct, None) => fs_block.min(Self::MEMORY),
            (IoMode::Direct, Some(Alignment { offset: 0, .. })) => {
                return Err(FileError::NoDirectIo);
            }
            (IoMode::Direct, Some(alignment)) => direct_block(alignment)?,
        };
        let blocks = Self {
            logical,
            physical: Self::physical_of(facts.block_size, logical),
        };
        match blocks.nr_sectors(facts.size) {
            0 => Err(FileError::TooSmall {
                size: facts.size,
                block: logical,
            }),
            _ => Ok(blocks),
        }
    }

    /// The physical block of a file with this logical block, on a file system with blocks of
    /// `block_size` bytes.
    pub fn physical_of(block_size: u32, logical: u32) -> u32 {
        fs_block(block_size).max(logical)
    }

    /// The number of sectors of 512 bytes in the whole logical blocks of a file of `size` bytes.
    pub const fn nr_sectors(&self, size: u64) -> u64 {
        const SECTOR: u64 = SECTOR_SIZE as u64;
        // The logical block is a power of two, and so not 0.
        let below = (self.logical as u64).wrapping_sub(1);
        (size & !below) / SECTOR
    }
}

/// The block size of a file system, in the range of a disk's blocks.
fn fs_block(block_size: u32) -> u32 {
    if block_size.is_power_of_two() {
        block_size.clamp(SECTOR_SIZE, Blocks::MAX)
    } else {
        SECTOR_SIZE
    }
}

/// The logical block of direct IO with this alignment.
fn direct_block(alignment: Alignment) -> Result<u32, FileError> {
    let Alignment { offset, memory } = alignment;
    if !offset.is_power_of_two() || offset > Blocks::MAX {
        return Err(FileError::Offset(offset));
    }
    if memory > Blocks::MEMORY || (memory != 0 && !memory.is_power_of_two()) {
        return Err(FileError::Memory(memory));
    }
    Ok(offset.max(SECTOR_SIZE))
}
