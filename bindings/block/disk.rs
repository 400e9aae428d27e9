// SPDX-License-Identifier: GPL-2.0

//! What a disk of this machine is asked for, be it a block device or a file: access, limits, and
//! the parts of a request. Would be a new part of `kernel::block`.

use super::{
    memory::Memory,
    mq::limits::SECTOR_SIZE, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// What a disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// The kinds of identifiers that a disk may have in itself (C: `enum blk_unique_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum UniqueIdKind {
    /// Of IEEE's registration authority.
    Naa = bindings::blk_unique_id_BLK_UID_NAA,
    /// The extended unique identifier.
    Eui = bindings::blk_unique_id_BLK_UID_EUI64,
}

/// The longest such identifier in bytes.
pub const UNIQUE_ID_LEN: usize = 16;

/// What requests a disk takes.
///
/// Block sizes, granularity and alignment are in bytes, the rest in sectors of 512 bytes. A maximum
/// of zero means that the disk does not have the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The smallest unit it can be asked for.
    pub logical_block_size: u32,
    /// The smallest unit it can write without reading.
    pub physical_block_size: u32,
    /// The most segments of one request.
    pub max_segments: u32,
    /// The largest request as set by the administrator.
    pub max_sectors: u32,
    /// The largest request that the hardware takes.
    pub max_hw_sectors: u32,
    /// The largest write of zeroes.
    pub max_write_zeroes_sectors: u32,
    /// The largest discard.
    pub max_discard_sectors: u32,
    /// The largest secure erase.
    pub max_secure_erase_sectors: u32,
    /// The unit in which it discards.
    pub discard_granularity: u32,
    /// Where the first such unit begins.
    pub discard_alignment: u32,
    /// Whether it has a volatile write cache.
    pub write_cache: bool,
    /// Whether it can write through that cache.
    pub fua: bool,
    /// Whether it is a rotating disk.
    pub rotational: bool,
}

/// Whether a submission may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It never sleeps: what would is refused with `EAGAIN`, or ends by [`Completion::again`].
    Never,
    /// It may sleep: process context.
    Allowed,
}

/// What a disk may be used for; see [`ReadOnly`] and [`ReadWrite`].
pub trait Access: sealed::Sealed + Send + Sync + 'static {
    /// How the disk is opened.
    const MODE: Mode;
}

/// Reading and flushing.
pub enum ReadOnly {}

/// Everything.
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
    /// None: that of the submitting thread.
    pub const NONE: Self = Self(0);

    /// The priority with this value, `None` if there is none.
    ///
    /// The upper three bits are the class, of which four exist. mq-deadline uses the class as an
    /// index without looking. A real-time priority that `realtime` does not grant becomes the
    /// highest one of the best-effort class. `realtime` is only asked for such a priority.
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

/// Where a request goes, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// Its priority.
    pub priority: Priority,
}

/// When written data has to be on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Before this write is done (`REQ_FUA`).
    pub fua: bool,
    /// All earlier writes are made durable before this write begins (`REQ_PREFLUSH`).
    pub preflush: bool,
}

/// What to do with sectors without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOp {
    /// They are not needed any more.
    Discard,
    /// They must not be recoverable.
    SecureErase,
    /// They shall read as zeroes.
    WriteZeroes {
        /// Whether they stay allocated (`REQ_NOUNMAP`).
        no_unmap: bool,
    },
}

/// A request that was not accepted: its completion comes back.
pub struct Refused<C> {
    /// The completion that was passed in.
    pub completion: C,
    /// Why.
    pub error: Error,
}

/// Whether a disk with these blocks, in bytes, and so many sectors of 512 bytes has the `len` bytes
/// from `sector` on, and can be asked for them.
///
/// `EINVAL` if they are not whole blocks or none, `EIO` if they reach beyond the end. The block
/// layer checks the first only, and logs a line for each failure.
#[inline]
pub(crate) fn check_range(
    logical_block_size: u32,
    nr_sectors: u64,
    sector: u64,
    len: u32,
) -> Result {
    // A power of two.
    let below_block = u64::from(logical_block_size).wrapping_sub(1);
    let aligned = |bytes: u64| bytes & below_block == 0;
    let start = sector.checked_mul(u64::from(SECTOR_SIZE)).ok_or(EINVAL)?;
    if len == 0 || !aligned(start | u64::from(len)) {
        return Err(EINVAL);
    }
    // Cannot wrap around: both are far below 2^63.
    let end = sector + u64::from(len / SECTOR_SIZE);
    if end > nr_sectors {
        return Err(EIO);
    }
    Ok(())
}

/// The receiver of a request's result, which has the request's memory until then.
pub trait Completion: Send + 'static {
    /// The memory of the data, borrowed from the completion.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The memory of the data; `None` if there is none.
    ///
    /// It can be used until the completion is dropped: nobody gets another than a shared reference
    /// to the completion before it is done.
    fn memory(&self) -> Option<Self::Memory<'_>>;

    /// Called exactly once for an accepted request, when the disk does not use the memory any
    /// more. Any context: it must not sleep.
    fn done(self, result: Result);

    /// Called instead of [`Self::done`] for a request with [`Wait::Never`] that would have slept:
    /// the whole request is to be submitted again, with [`Wait::Allowed`]. A part of it may have
    /// been carried out. Any context.
    fn again(self);
}
