// SPDX-License-Identifier: GPL-2.0

//! Limits of a disk that may change while clients have it open.

use core::fmt;

use super::{
    DeviceNews,
    OpenRsp, //
};

/// The limits that a client's disk takes over from the server's disk whenever they change.
///
/// Sectors are of 512 bytes; block size, granularity and alignment in bytes. A maximum of 0 means
/// that the disk does not have the operation.
///
/// [`OpenRsp`] and [`DeviceNews`] give equal limits for the same disk: a value that does not fit
/// into an open response is reduced to the largest that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// The block size that the disk works with; a power of two, at most 32 KiB.
    pub physical_block_size: u32,
    /// The longest discard.
    pub max_discard_sectors: u32,
    /// The unit of discards.
    pub discard_granularity: u32,
    /// The offset of the first unit of discards.
    pub discard_alignment: u32,
    /// The longest secure erase: the same as the longest discard, or 0.
    pub max_secure_erase_sectors: u32,
    /// The longest write of zeroes.
    pub max_write_zeroes_sectors: u32,
}

impl DiskLimits {
    /// The largest physical block size that an open response has room for.
    const MAX_BLOCK_SIZE: u32 = 1 << 15;

    /// The limits in the response to an open message.
    pub fn of_open(response: &OpenRsp) -> Self {
        Self {
            physical_block_size: response.physical_block_size.min(Self::MAX_BLOCK_SIZE),
            max_discard_sectors: response.max_discard_sectors,
            discard_granularity: response.discard_granularity,
            discard_alignment: response.discard_alignment,
            max_secure_erase_sectors: if response.secure_discard {
                response.max_discard_sectors
            } else {
                0
            },
            max_write_zeroes_sectors: response.max_write_zeroes_sectors,
        }
    }

    /// The limits in a device's news.
    pub fn of_news(news: &DeviceNews) -> Self {
        Self {
            physical_block_size: news.physical_block_size.min(Self::MAX_BLOCK_SIZE),
            max_discard_sectors: news.max_discard_sectors,
            discard_granularity: news.discard_granularity,
            discard_alignment: news.discard_alignment,
            max_secure_erase_sectors: if news.max_secure_erase_sectors != 0 {
                news.max_discard_sectors
            } else {
                0
            },
            max_write_zeroes_sectors: news.max_write_zeroes_sectors,
        }
    }

    /// The limits that a disk with these limits takes over when the server reports `told`.
    /// `lost_zeroes`: the disk has lost its writes of zeroes since the server opened the device.
    ///
    /// Writes of zeroes do not come back to a disk that has lost them. The block layer reads that
    /// limit twice without a lock, and a task that finds 0 the second time does not end (as with
    /// local disks). With this rule a server that changes its limits all the time has only one
    /// chance to cause that.
    pub fn follow(&self, told: &Self, lost_zeroes: bool) -> Self {
        let mut after = *told;
        if lost_zeroes {
            after.max_write_zeroes_sectors = 0;
        }
        after
    }

    /// Whether a disk with these limits loses writes of zeroes when it gets `after`.
    pub fn loses_zeroes(&self, after: &Self) -> bool {
        self.max_write_zeroes_sectors != 0 && after.max_write_zeroes_sectors == 0
    }

    /// The limits that differ in `after`, with the old and the new values, for a log line.
    pub fn changes(&self, after: &Self) -> impl fmt::Display {
        Changes(*self, *after)
    }

    fn values(&self) -> [(&'static str, u32); 6] {
        [
            ("physical_block_size", self.physical_block_size),
            ("max_discard_sectors", self.max_discard_sectors),
            ("discard_granularity", self.discard_granularity),
            ("discard_alignment", self.discard_alignment),
            ("max_secure_erase_sectors", self.max_secure_erase_sectors),
            ("max_write_zeroes_sectors", self.max_write_zeroes_sectors),
        ]
    }
}

/// Limits before and after.
struct Changes(DiskLimits, DiskLimits);

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for ((name, before), (_, after)) in self.0.values().into_iter().zip(self.1.values()) {
            if before != after {
                write!(f, "{separator}{name} from {before} to {after}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
