// SPDX-License-Identifier: GPL-2.0

//! Types for requests to a disk of this machine, which is a block device or a file: access, limits,
//! and the parts of a request. Would be a new part of `kernel::block`.

use super::{
    memory::Memory,
    mq::limits::SECTOR_SIZE, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// The mode in which a disk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The kinds of identifiers that may be stored in a disk (C: `enum blk_unique_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum UniqueIdKind {
    /// The name by IEEE's registration authority.
    Naa = bindings::blk_unique_id_BLK_UID_NAA,
    /// The extended unique identifier.
    Eui = bindings::blk_unique_id_BLK_UID_EUI64,
}

/// The length of the longest identifier of a disk, in bytes.
pub const UNIQUE_ID_LEN: usize = 16;

/// The limits of a disk for requests.
///
/// Block sizes, granularity and alignment are in bytes, the rest in sectors of 512 bytes. A maximum
/// of zero means that the disk does not have the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The smallest unit of a request.
    pub logical_block_size: u32,
    /// The smallest unit that the disk can write without reading.
    pub physical_block_size: u32,
    /// The most segments of one request.
    pub max_segments: u32,
    /// The largest request that the administrator allows.
    pub max_sectors: u32,
    /// The largest request that the hardware takes.
    pub max_hw_sectors: u32,
    /// The largest write of zeroes.
    pub max_write_zeroes_sectors: u32,
    /// The largest discard.
    pub max_discard_sectors: u32,
    /// The largest secure erase.
    pub max_secure_erase_sectors: u32,
    /// The unit of discards.
    pub discard_granularity: u32,
    /// The offset of the first unit of discards.
    pub discard_alignment: u32,
    /// Whether the disk has a volatile write cache.
    pub write_cache: bool,
    /// Whether the disk can write through its cache.
    pub fua: bool,
    /// Whether the disk rotates.
    pub rotational: bool,
}

/// Whether a submission may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The submission never sleeps. A request that would sleep is refused with `EAGAIN`, or ends by
    /// [`Completion::again`].
    Never,
    /// The submission may sleep: process context.
    Allowed,
}

/// The allowed use of a disk; see [`ReadOnly`] and [`ReadWrite`].
pub trait Access: sealed::Sealed + Send + Sync + 'static {
    /// The mode in which the disk is opened.
    const MODE: Mode;
}

/// Reading and flushing.
pub enum ReadOnly {}

/// All operations.
pub enum ReadWrite {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ReadOnly {}
    impl Sealed for super::ReadWrite {}
}

impl Access for ReadOnly {
    const MODE: Mode = Mode::Read;
}

impl Access for ReadWrite {
    const MODE: Mode = Mode::ReadWrite;
}

/// An IO priority that the schedulers know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority(u16);

impl Priority {
    /// No priority: that of the submitting thread counts.
    pub const NONE: Self = Self(0);

    /// The priority with this value; `None` if the value is not valid.
    ///
    /// The upper three bits are the class. Only four classes exist, and mq-deadline uses the class
    /// as an index without a check. A real-time priority becomes the highest priority of the
    /// best-effort class if `realtime` returns false. `realtime` is only called for a real-time
    /// priority.
    #[inline(always)]
    pub fn granted(value: u16, realtime: impl FnOnce() -> bool) -> Option<Self> {
        match value >> bindings::IOPRIO_CLASS_SHIFT {
            Self::CLASS_REALTIME if !realtime() => Some(Self(Self::best_effort(value))),
            0..=Self::CLASS_IDLE => Some(Self(value)),
            _ => None,
        }
    }

    /// `value` with the highest level of the best-effort class; its hints stay.
    #[cold]
    const fn best_effort(value: u16) -> u16 {
        let hints = value & ((1 << bindings::IOPRIO_CLASS_SHIFT) - (1 << Self::LEVEL_BITS));
        Self::CLASS_BEST_EFFORT << bindings::IOPRIO_CLASS_SHIFT | hints
    }

    /// The value.
    #[inline(always)]
    pub(crate) const fn as_raw(self) -> u16 {
        self.0
    }

    /// `IOPRIO_CLASS_RT`.
    const CLASS_REALTIME: u16 = 1;
    /// `IOPRIO_CLASS_BE`.
    const CLASS_BEST_EFFORT: u16 = 2;
    /// The last class (`IOPRIO_CLASS_IDLE`).
    const CLASS_IDLE: u16 = 3;
    /// The lowest bits, which are the level (`IOPRIO_LEVEL_NR_BITS`).
    const LEVEL_BITS: u32 = 3;
}

/// The position and the priority of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// The priority.
    pub priority: Priority,
}

/// The durability of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// The data must be durable before this write ends (`REQ_FUA`).
    pub fua: bool,
    /// All earlier writes must be durable before this write begins (`REQ_PREFLUSH`).
    pub preflush: bool,
}

/// An operation on a range of sectors, without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOp {
    /// The sectors are not needed any more.
    Discard,
    /// The data of the sectors must not be recoverable.
    SecureErase,
    /// The sectors must read as zeroes.
    WriteZeroes {
        /// Whether the sectors must stay allocated (`REQ_NOUNMAP`).
        no_unmap: bool,
    },
}

/// A request that was not accepted. The completion is returned with the error.
pub struct Refused<C> {
    /// The completion that was passed in.
    pub completion: C,
    /// The cause.
    pub error: Error,
}

/// Checks that a request for the `len` bytes from `sector` on is valid for a disk with `nr_sectors`
/// sectors of 512 bytes, and a block size of `logical_block_size` bytes.
///
/// `EINVAL` if the range is empty or not of whole blocks, `EIO` if it reaches beyond the end of the
/// disk. The block layer itself checks only whole blocks, and logs a line for each failure.
#[inline]
pub(crate) fn check_range(
    logical_block_size: u32,
    nr_sectors: u64,
    sector: u64,
    len: u32,
) -> Result {
    // The block size is a power of two.
    let below_block = u64::from(logical_block_size).wrapping_sub(1);
    let aligned = |bytes: u64| bytes & below_block == 0;
    let start = sector.checked_mul(u64::from(SECTOR_SIZE)).ok_or(EINVAL)?;
    if len == 0 || !aligned(start | u64::from(len)) {
        return Err(EINVAL);
    }
    // The sum cannot overflow: both numbers are far below 2^63.
    let end = sector + u64::from(len / SECTOR_SIZE);
    if end > nr_sectors {
        return Err(EIO);
    }
    Ok(())
}

/// The receiver of a request's result. It owns the request's memory until the request ends.
pub trait Completion: Send + 'static {
    /// The memory of the data, borrowed from the completion.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The memory of the data; `None` if there is none.
    ///
    /// The memory can be used until the completion is dropped: before the request ends there are
    /// only shared references to the completion.
    fn memory(&self) -> Option<Self::Memory<'_>>;

    /// Called before a request is carried out, if the calling work item, or the next one on this
    /// CPU, carries out further requests at once. So the messages about their ends can be
    /// collected. Process context; must not sleep.
    fn requests_follow(&self) {}

    /// Called exactly once for an accepted request, when the disk does not use the memory any
    /// more. Any context: it must not sleep.
    fn done(self, result: Result);

    /// Called instead of [`Self::done`] for a request with [`Wait::Never`] that would have slept:
    /// the whole request is to be submitted again, with [`Wait::Allowed`]. A part of it may have
    /// been carried out. Any context.
    fn again(self);
}
