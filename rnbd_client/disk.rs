// SPDX-License-Identifier: GPL-2.0

//! The disk that stands for a device of a server.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use kernel_ext::block::mq::{
    gen_disk::{
        DiskParams,
        GenDisk, //
    },
    limits::{
        Limits,
        SECTOR_SIZE, //
    }, //
};
use proto::rnbd::OpenRsp;

use crate::{
    client::{
        Client,
        MINORS, //
    },
    device::{
        device_log,
        Device, //
    },
    queue::Queue, //
};

/// Segments of a request but the first start, and but the last end, at a multiple of this plus one.
const VIRT_BOUNDARY_MASK: usize = 4096 - 1;

impl Device {
    /// Makes the disk. Its partitions are read before this returns.
    pub(crate) fn add_disk(
        self: &Arc<Self>,
        client: &Arc<Client>,
        answer: &OpenRsp,
    ) -> Result<GenDisk<Queue>> {
        let index = self.index();
        let name = CString::try_from_fmt(fmt!("rnbd{}", index))?;
        let limits = self.limits(answer);
        if limits.logical_block_size > limits.io_opt {
            device_log!(
                pr_err,
                self,
                "map_device: the server's disk has blocks of {} bytes, its requests only up to {}",
                limits.logical_block_size,
                limits.io_opt
            );
            return Err(EINVAL);
        }
        let disk = GenDisk::add(
            &self.session.tag_set,
            &DiskParams {
                name: &name,
                major: &client.major,
                first_minor: index.saturating_mul(u32::from(MINORS)),
                minors: MINORS,
                capacity: answer.nsectors,
                read_only: self.access_mode.is_read_only(),
                limits,
            },
            self.clone(),
        )?;
        device_log!(
            pr_info,
            self,
            "map_device: Device mapped as {} (nsectors: {}, logical_block_size: {}, \
             physical_block_size: {}, max_write_zeroes_sectors: {}, max_discard_sectors: {}, \
             discard_granularity: {}, discard_alignment: {}, secure_discard: {}, \
             max_segments: {}, max_hw_sectors: {}, wc: {}, fua: {})",
            &*name,
            answer.nsectors,
            limits.logical_block_size,
            limits.physical_block_size,
            limits.max_write_zeroes_sectors,
            limits.max_discard_sectors,
            limits.discard_granularity,
            limits.discard_alignment,
            u8::from(answer.secure_discard),
            limits.max_segments,
            limits.max_hw_sectors,
            u8::from(answer.cache_policy.writeback),
            u8::from(answer.cache_policy.fua)
        );
        Ok(disk)
    }

    /// The limits of requests: what the server's device can do, and what the transport carries.
    fn limits(&self, answer: &OpenRsp) -> Limits {
        let max_io_size = self.session.transport.max_io_size();
        Limits {
            logical_block_size: answer.logical_block_size,
            physical_block_size: answer.physical_block_size,
            io_opt: max_io_size,
            max_hw_sectors: max_io_size.checked_div(SECTOR_SIZE).unwrap_or(0),
            max_segments: self.session.transport.max_segments(),
            virt_boundary_mask: VIRT_BOUNDARY_MASK,
            max_discard_sectors: answer.max_discard_sectors,
            discard_granularity: answer.discard_granularity,
            discard_alignment: answer.discard_alignment,
            max_secure_erase_sectors: if answer.secure_discard {
                answer.max_discard_sectors
            } else {
                0
            },
            max_write_zeroes_sectors: answer.max_write_zeroes_sectors,
            // Whatever the disk has today: see `queue::message` for flushes. A FUA write is right
            // on any disk, as the server's block layer writes through, flushes, or has nothing to
            // do.
            write_cache: true,
            fua: true,
        }
    }
}
