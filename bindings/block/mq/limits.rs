// SPDX-License-Identifier: GPL-2.0

//! The limits and features of a disk. Would extend `kernel::block::mq::gen_disk`.

use crate::{
    bindings,
    prelude::*, //
};

/// The unit of positions and sizes of block devices, in bytes.
pub const SECTOR_SIZE: u32 = 512;

/// The most sectors that a disk can have (C: `BLK_DEV_MAX_SECTORS`).
pub const MAX_CAPACITY: u64 = i64::MAX as u64 / SECTOR_SIZE as u64;

/// Limits and features of a disk (C: `struct queue_limits`).
///
/// A field that is zero takes the block layer's default, or says that the disk does not have the
/// operation. Sectors are of 512 bytes, all other sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The smallest unit of a request: a power of two of at least 512.
    pub logical_block_size: u32,
    /// The block size that the device works with: a power of two.
    pub physical_block_size: u32,
    /// The request size with the best performance.
    pub io_opt: u32,
    /// The longest read or write in sectors; at least a page.
    pub max_hw_sectors: u32,
    /// The most segments of a request.
    pub max_segments: u16,
    /// Each segment but the first starts, and each segment but the last ends, at a multiple of this
    /// mask plus one.
    pub virt_boundary_mask: usize,
    /// The longest discard in sectors; zero if the disk has none.
    pub max_discard_sectors: u32,
    /// The unit of discards.
    pub discard_granularity: u32,
    /// The offset of the first unit of discards.
    pub discard_alignment: u32,
    /// The longest secure erase in sectors; zero if the disk has none.
    pub max_secure_erase_sectors: u32,
    /// The longest write of zeroes in sectors; zero if the disk has none.
    pub max_write_zeroes_sectors: u32,
    /// Whether the disk has a volatile write cache. If so, it gets flushes.
    pub write_cache: bool,
    /// Whether the disk can write through its cache. Without a cache this has no effect.
    pub fua: bool,
}

/// The limits of a disk that can change while the disk is used. Unlike [`Limits`], a block size of
/// 0 is not a default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangingLimits {
    /// The block size that the disk works with, in bytes: a power of two.
    pub physical_block_size: u32,
    /// See [`Limits::io_opt`].
    pub io_opt: u32,
    /// See [`Limits::max_discard_sectors`].
    pub max_discard_sectors: u32,
    /// See [`Limits::discard_granularity`].
    pub discard_granularity: u32,
    /// See [`Limits::discard_alignment`].
    pub discard_alignment: u32,
    /// See [`Limits::max_secure_erase_sectors`].
    pub max_secure_erase_sectors: u32,
    /// See [`Limits::max_write_zeroes_sectors`].
    pub max_write_zeroes_sectors: u32,
}

impl ChangingLimits {
    /// Replaces these limits in `raw`. The block layer computes the limits that depend on them when
    /// `raw` is committed. `EINVAL` for a physical block size that is not a power of two, for which
    /// the block layer would print a warning.
    pub(crate) fn replace_in(&self, raw: &mut bindings::queue_limits) -> Result {
        if !self.physical_block_size.is_power_of_two() {
            return Err(EINVAL);
        }
        raw.physical_block_size = self.physical_block_size;
        // The block layer raises `io_min` to the physical block size.
        raw.io_min = 0;
        // The old value was rounded to old physical blocks by the block layer, so it is set anew.
        raw.io_opt = self.io_opt;
        raw.max_hw_discard_sectors = self.max_discard_sectors;
        raw.discard_granularity = self.discard_granularity;
        raw.discard_alignment = self.discard_alignment;
        raw.max_secure_erase_sectors = self.max_secure_erase_sectors;
        raw.max_write_zeroes_sectors = self.max_write_zeroes_sectors;
        Ok(())
    }
}

impl Limits {
    /// Converts the limits. `EINVAL` for values about which the block layer would print a warning,
    /// since limits may come from a peer.
    pub(crate) fn to_raw(self) -> Result<bindings::queue_limits> {
        let page_sectors = bindings::PAGE_SIZE as u32 / SECTOR_SIZE;
        let block_size = self.logical_block_size.max(SECTOR_SIZE);
        let block_sizes_ok = block_size.is_power_of_two()
            && block_size <= bindings::RNBD_BLK_MAX_BLOCK_SIZE
            && (self.physical_block_size == 0 || self.physical_block_size.is_power_of_two());
        let max_hw_sectors_ok = self.max_hw_sectors == 0
            || (self.max_hw_sectors >= page_sectors
                && self.max_hw_sectors >= block_size / SECTOR_SIZE);
        if !block_sizes_ok || !max_hw_sectors_ok {
            return Err(EINVAL);
        }
        let feature = |on: bool, bit| if on { bit } else { 0 };
        Ok(bindings::queue_limits {
            logical_block_size: self.logical_block_size,
            physical_block_size: self.physical_block_size,
            io_opt: self.io_opt,
            max_hw_sectors: self.max_hw_sectors,
            max_segments: self.max_segments,
            virt_boundary_mask: self.virt_boundary_mask,
            max_hw_discard_sectors: self.max_discard_sectors,
            discard_granularity: self.discard_granularity,
            discard_alignment: self.discard_alignment,
            max_secure_erase_sectors: self.max_secure_erase_sectors,
            max_write_zeroes_sectors: self.max_write_zeroes_sectors,
            features: feature(self.write_cache, bindings::RNBD_BLK_FEAT_WRITE_CACHE)
                | feature(self.fua, bindings::RNBD_BLK_FEAT_FUA),
            ..bindings::queue_limits::default()
        })
    }
}
