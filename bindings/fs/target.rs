// SPDX-License-Identifier: GPL-2.0

//! What an open file is to its requests. Belongs to [`fs`](super).

use kernel::error::to_result;

use super::{
    file::RegularFile,
    pool::Pool, //
};
use crate::{
    bindings,
    block::{
        bdev::BlockDevice,
        disk::{
            check_range,
            RangeOp, //
        },
        mq::limits::SECTOR_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    workqueue::{
        QueueFlags,
        RawQueue, //
    }, //
};

/// The file or block device that requests read and write.
pub enum Backing {
    /// A regular file.
    Regular(RegularFile),
    /// A block device, through the page cache.
    Block(BlockDevice),
}

/// What the gate of an open file guards.
pub(super) struct Target {
    // Dropped in this order: work that has let the file be closed returns; then nothing needs the
    // slots and the file any more.
    pub(super) queue: RawQueue,
    pub(super) slots: Pool,
    pub(super) backing: Backing,
    direct: bool,
    /// In bytes, a power of two.
    pub(super) logical_block_size: u32,
    /// How many sectors of 512 bytes requests may reach.
    nr_sectors: Atomic<u64>,
}

impl Target {
    /// How many requests of a file are carried out at the same time on each CPU, which is how many
    /// threads a file system that hangs can take.
    const AT_ONCE: i32 = 64;

    /// Makes it ready for requests, which are made in `slots`. Sleeps. `EINVAL` if
    /// `logical_block_size` is no power of two, or less than 512.
    pub(super) fn new(
        backing: Backing,
        direct: bool,
        logical_block_size: u32,
        slots: Pool,
    ) -> Result<Self> {
        if !logical_block_size.is_power_of_two() || logical_block_size < SECTOR_SIZE {
            return Err(EINVAL);
        }
        let this = Self {
            // Not one of memory reclaim: file systems wait here for work on queues that are not, as
            // ext4 for its discards and XFS for its flushes when they are full, which the kernel
            // warns of (C: `check_flush_dependency`).
            queue: RawQueue::new(c"rnbd_file", QueueFlags::PER_CPU, Self::AT_ONCE)?,
            slots,
            backing,
            direct,
            logical_block_size,
            nr_sectors: Atomic::new(0),
        };
        this.update_size();
        Ok(this)
    }

    /// The raw file, valid as long as `self`.
    pub(super) fn as_file(&self) -> *mut bindings::file {
        match &self.backing {
            Backing::Regular(file) => file.as_file(),
            Backing::Block(device) => device.as_file(),
        }
    }

    /// Whether requests go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// How many sectors of 512 bytes the whole logical blocks have that are there at present.
    fn present_sectors(&self) -> u64 {
        let bytes = match &self.backing {
            Backing::Regular(file) => file.size(),
            Backing::Block(device) => device.nr_sectors() * u64::from(SECTOR_SIZE),
        };
        (bytes & !u64::from(self.logical_block_size - 1)) / u64::from(SECTOR_SIZE)
    }

    /// Has requests reach as far as the file does now, and says how far that is, in sectors.
    pub(super) fn update_size(&self) -> u64 {
        let sectors = self.present_sectors();
        self.nr_sectors.store(sectors, ordering::Relaxed);
        sectors
    }

    /// Whether a request may reach this range, and where it begins in the file. `EINVAL` and `EIO`
    /// as [`check_range`].
    pub(super) fn position(&self, sector: u64, len: usize) -> Result<i64> {
        let len = u32::try_from(len)?;
        // A write does not make a file longer that has become shorter, unless that happens after
        // `still_has`.
        let told = self.nr_sectors.load(ordering::Relaxed);
        let end = told.min(self.present_sectors());
        check_range(self.logical_block_size, end, sector, len)?;
        // The range is within the file, and the size of a file fits.
        Ok(i64::try_from(sector * u64::from(SECTOR_SIZE))?)
    }

    /// Whether the file still has these bytes: `EIO` if it has become shorter since
    /// [`Self::position`].
    pub(super) fn still_has(&self, position: i64, len: usize) -> Result {
        let end = position.unsigned_abs() + len as u64;
        if end > self.present_sectors() * u64::from(SECTOR_SIZE) {
            return Err(EIO);
        }
        Ok(())
    }

    /// Makes what was written durable, with what is needed to read it again (C: `fdatasync`).
    /// Sleeps.
    pub(super) fn sync(&self) -> Result {
        if matches!(&self.backing, Backing::Regular(file) if !file.facts().has_fsync) {
            return Ok(());
        }
        // SAFETY: The file is open.
        to_result(unsafe { bindings::vfs_fsync(self.as_file(), 1) })
    }

    /// Changes `len` bytes without data. Sleeps.
    pub(super) fn change(&self, op: RangeOp, position: i64, len: u32) -> Result {
        if let (Backing::Block(device), RangeOp::WriteZeroes { .. }) = (&self.backing, op) {
            if device.limits().max_write_zeroes_sectors == 0 {
                // The kernel would write pages of zeroes for as long as it takes, and lock out all
                // other users of the device.
                return Err(EOPNOTSUPP);
            }
        }
        let fallocate = |mode: u32| {
            let mode = (mode | bindings::RNBD_FALLOC_KEEP_SIZE) as c_int;
            // SAFETY: The file is open; the function checks that it is for writing.
            to_result(unsafe {
                bindings::vfs_fallocate(self.as_file(), mode, position, i64::from(len))
            })
        };
        let punch_hole = || fallocate(bindings::RNBD_FALLOC_PUNCH_HOLE);
        let zero_range = || fallocate(bindings::RNBD_FALLOC_ZERO_RANGE);
        let or_else = |first: Result, second: &dyn Fn() -> Result| match first {
            Err(EOPNOTSUPP) => second(),
            result => result,
        };
        match op {
            RangeOp::Discard => punch_hole(),
            RangeOp::WriteZeroes { no_unmap: false } => or_else(punch_hole(), &zero_range),
            // File systems such as tmpfs can only do it in two steps.
            RangeOp::WriteZeroes { no_unmap: true } => {
                or_else(zero_range(), &|| punch_hole().and_then(|()| fallocate(0)))
            }
            RangeOp::SecureErase => Err(EOPNOTSUPP),
        }
    }
}
