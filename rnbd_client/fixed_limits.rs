// SPDX-License-Identifier: GPL-2.0

//! The limits that a disk was made with and keeps, whatever the server's disk is when it is opened
//! again.

use kernel_ext::prelude::*;
use proto::rnbd::{
    DeviceNews,
    Wwid, //
};

use crate::{
    remote_device::{
        device_log,
        RemoteDevice, //
    },
    server::Opened, //
};

/// The limits that users of the disk here rely on.
pub(crate) struct FixedLimits {
    /// In bytes.
    logical_block_size: u32,
    /// The disk's wwid, which may be empty; `None` if the server has not told it.
    wwid: Option<Wwid>,
}

impl FixedLimits {
    /// The limits of the disk that the server has opened.
    pub(crate) fn of(opened: &Opened) -> Self {
        Self {
            logical_block_size: opened.response.logical_block_size,
            wwid: opened.identity.map(|identity| identity.wwid),
        }
    }

    /// The limits that the server's disk has by now.
    pub(crate) fn of_news(news: &DeviceNews) -> Self {
        Self {
            logical_block_size: news.logical_block_size,
            wwid: None,
        }
    }

    /// `EINVAL`, which is logged, if `device`, whose disk was made with these limits, cannot stand
    /// for a disk of the server with the limits `now`.
    pub(crate) fn check(&self, device: &RemoteDevice, now: &Self) -> Result {
        match (self.wwid, now.wwid) {
            // A disk may get a wwid that it did not have, as when its driver reads it again.
            (Some(was), Some(is)) if !was.is_empty() && was != is => {
                kernel_ext::ratelimited!(device_log!(
                    pr_err,
                    device,
                    "the server has another disk by this device path now, {:?} and not {:?}: give \
                     the first disk its path on the server again and write 1 to remap_device, or \
                     unmap the device",
                    is,
                    was
                ));
                return Err(EINVAL);
            }
            _ => {}
        }
        if self.logical_block_size == now.logical_block_size {
            return Ok(());
        }
        kernel_ext::ratelimited!(device_log!(
            pr_err,
            device,
            "the server's disk has blocks of {} bytes now, and the device has blocks of {}: unmap \
             the device and map it again",
            now.logical_block_size,
            self.logical_block_size
        ));
        Err(EINVAL)
    }
}
