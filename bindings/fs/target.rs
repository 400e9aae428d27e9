// SPDX-License-Identifier: GPL-2.0

//! The state of an open file that its requests use. Belongs to [`fs`](super).

use kernel::error::to_result;

use super::{
    backlog::Backlogs,
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

/// The value behind the gate of an open file.
pub(super) struct Target {
    // The order in which these fields are dropped: destroying the queue waits for work that has
    // left the gate but not returned. After that the slots and the file are not used any more.
    pub(super) queue: RawQueue,
    /// Empty when this is dropped: each request in a backlog keeps the target.
    pub(super) backlogs: Backlogs,
    pub(super) slots: Pool,
    pub(super) backing: Backing,
    direct: bool,
    /// The logical block size in bytes, a power of two.
    pub(super) logical_block_size: u32,
    /// The end of the range that requests may reach, in sectors of 512 bytes.
    nr_sectors: Atomic<u64>,
}

impl Target {
    /// The number of requests of a file that are carried out concurrently on each CPU. A file
    /// system that hangs can block as many threads.
    const AT_ONCE: i32 = 64;

    /// Makes a target whose requests are made in `slots`. Sleeps. `EINVAL` if `logical_block_size`
    /// is not a power of two, or is less than 512.
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
            // The queue must not have `WQ_MEM_RECLAIM`: file systems wait in its work for work on
            // queues without that flag, of which the kernel warns (C: `check_flush_dependency`).
            // For example ext4 waits for its discards, and XFS for its flushes when it is full.
            queue: RawQueue::new(c"rnbd_file", QueueFlags::PER_CPU, Self::AT_ONCE)?,
            backlogs: Backlogs::new()?,
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

    /// The present size, rounded down to whole logical blocks, in sectors of 512 bytes.
    fn present_sectors(&self) -> u64 {
        let bytes = match &self.backing {
            Backing::Regular(file) => file.size(),
            Backing::Block(device) => device.nr_sectors() * u64::from(SECTOR_SIZE),
        };
        (bytes & !u64::from(self.logical_block_size - 1)) / u64::from(SECTOR_SIZE)
    }

    /// Lets requests reach up to the present end of the file, and returns that end in sectors.
    pub(super) fn update_size(&self) -> u64 {
        let sectors = self.present_sectors();
        self.nr_sectors.store(sectors, ordering::Relaxed);
        sectors
    }

    /// Checks that a request may reach this range, and returns the offset of the range in the file,
    /// in bytes. `EINVAL` and `EIO` as of [`check_range`].
    pub(super) fn position(&self, sector: u64, len: usize) -> Result<i64> {
        let len = u32::try_from(len)?;
        // The present size counts as well: a write must not extend a file that has become shorter.
        // If the file becomes shorter after `still_has`, a write can extend it all the same.
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

    /// Makes all written data durable, with the metadata that is needed to read it again (C:
    /// `fdatasync`). Sleeps.
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
                // The kernel would write pages of zeroes, however long that takes, and lock out all
                // other users of the device meanwhile.
                return Err(EOPNOTSUPP);
            }
        }
        let fallocate = |mode: u32| {
            let mode = (mode | bindings::RNBD_FALLOC_KEEP_SIZE) as c_int;
            // SAFETY: The file is open. The function checks that the file is open for writing.
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
            // File systems such as tmpfs need two steps for this.
            RangeOp::WriteZeroes { no_unmap: true } => {
                or_else(zero_range(), &|| punch_hole().and_then(|()| fallocate(0)))
            }
            RangeOp::SecureErase => Err(EOPNOTSUPP),
        }
    }
}
