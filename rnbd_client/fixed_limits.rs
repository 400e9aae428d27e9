// SPDX-License-Identifier: GPL-2.0

//! What a disk was made with and keeps, whatever the server's disk is when it is opened again.

use kernel_ext::prelude::*;
use proto::rnbd::{
    DeviceNews,
    OpenRsp, //
};

use crate::remote_device::{
    device_log,
    RemoteDevice, //
};

/// The part of what the server says of its disk that users of the disk here rely on.
#[derive(PartialEq, Eq)]
pub(crate) struct FixedLimits {
    /// In bytes.
    logical_block_size: u32,
}

impl FixedLimits {
    /// Those of the disk that the server has opened.
    pub(crate) fn of(response: &OpenRsp) -> Self {
        Self {
            logical_block_size: response.logical_block_size,
        }
    }

    /// Those that the server's disk has by now.
    pub(crate) fn of_news(news: &DeviceNews) -> Self {
        Self {
            logical_block_size: news.logical_block_size,
        }
    }

    /// `EINVAL` if `device`, whose disk was made with this, cannot stand for what the server has
    /// now, which is logged.
    pub(crate) fn check(&self, device: &RemoteDevice, now: &Self) -> Result {
        if self == now {
            return Ok(());
        }
        kernel_ext::ratelimited!(device_log!(
            pr_err,
            device,
            "the server's disk has blocks of {} bytes now, this one of {}: \
             unmap it and map it again",
            now.logical_block_size,
            self.logical_block_size
        ));
        Err(EINVAL)
    }
}
