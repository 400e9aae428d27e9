// SPDX-License-Identifier: GPL-2.0

//! The disk that stands for a device of a server.

use kernel::{
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    block::{
        major::Major,
        mq::{
            gen_disk::{
                DiskParams,
                GenDisk, //
            },
            limits::{
                Limits,
                SECTOR_SIZE, //
            },
            tag_set::TagSet, //
        }, //
    },
    prelude::*, //
};
use proto::rnbd::{
    DiskLimits,
    OpenRsp, //
};

use crate::{
    queue::Queue,
    remote_device::{
        device_log,
        RemoteDevice, //
    }, //
};

/// The minor numbers of a disk: itself and 63 partitions.
const MINORS: u16 = 1 << PART_BITS;
const PART_BITS: u32 = 6;
/// The bits of a minor number.
const MINOR_BITS: u32 = 20;
/// The largest index of a disk.
pub(crate) const MAX_INDEX: u32 = (1 << (MINOR_BITS - PART_BITS)) - 1;

/// All segments of a request but the first start at a multiple of this plus one, and all but the
/// last end there.
const VIRT_BOUNDARY_MASK: usize = 4096 - 1;

/// Makes the disk of number `index`, at most [`MAX_INDEX`]. Its partitions are read before this
/// returns. Sleeps.
pub(crate) fn add(
    device: &Arc<RemoteDevice>,
    tag_set: &Arc<TagSet<Queue>>,
    major: &Arc<Major>,
    index: u32,
    response: &OpenRsp,
) -> Result<GenDisk<Queue>> {
    let name = CString::try_from_fmt(fmt!("rnbd{}", index))?;
    let limits = limits(device, response);
    if limits.logical_block_size > limits.io_opt {
        device_log!(
            pr_err,
            device,
            "map_device: the server's disk has blocks of {} bytes, and a request carries at most \
             {} bytes: load rtrs_server with a larger max_chunk_size",
            limits.logical_block_size,
            limits.io_opt
        );
        return Err(EINVAL);
    }
    let disk = GenDisk::add(
        tag_set,
        &DiskParams {
            name: &name,
            major,
            first_minor: index.checked_mul(u32::from(MINORS)).ok_or(EINVAL)?,
            minors: MINORS,
            capacity: response.nsectors,
            read_only: device.access_mode.is_read_only(),
            limits,
        },
        device.clone(),
    )?;
    device_log!(
        pr_info,
        device,
        "map_device: Device mapped as {} (nsectors: {}, logical_block_size: {}, \
             physical_block_size: {}, max_write_zeroes_sectors: {}, max_discard_sectors: {}, \
             discard_granularity: {}, discard_alignment: {}, secure_discard: {}, \
             max_segments: {}, max_hw_sectors: {}, wc: {}, fua: {})",
        &*name,
        response.nsectors,
        limits.logical_block_size,
        limits.physical_block_size,
        limits.max_write_zeroes_sectors,
        limits.max_discard_sectors,
        limits.discard_granularity,
        limits.discard_alignment,
        u8::from(response.secure_discard),
        limits.max_segments,
        limits.max_hw_sectors,
        u8::from(response.cache_policy.writeback),
        u8::from(response.cache_policy.fua)
    );
    Ok(disk)
}

/// The limits of requests: what the server's device can do, and what the transport carries.
fn limits(device: &RemoteDevice, response: &OpenRsp) -> Limits {
    let max_io_size = device.server.transport.max_io_size();
    let changing = DiskLimits::of_open(response);
    Limits {
        logical_block_size: response.logical_block_size,
        physical_block_size: changing.physical_block_size,
        io_opt: max_io_size,
        max_hw_sectors: max_io_size / SECTOR_SIZE,
        max_segments: device.server.transport.max_segments(),
        virt_boundary_mask: VIRT_BOUNDARY_MASK,
        max_discard_sectors: changing.max_discard_sectors,
        discard_granularity: changing.discard_granularity,
        discard_alignment: changing.discard_alignment,
        max_secure_erase_sectors: changing.max_secure_erase_sectors,
        max_write_zeroes_sectors: changing.max_write_zeroes_sectors,
        // Offered whatever the server's disk has today: see `queue::message` for flushes. A FUA
        // write is right on any disk, since the server's block layer writes through, flushes, or
        // has nothing to do.
        write_cache: true,
        fua: true,
    }
}
