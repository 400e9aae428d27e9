// SPDX-License-Identifier: GPL-2.0

//! What a disk was made with and keeps, whatever the server's disk is when it is opened again.

use kernel::prelude::*;
use proto::rnbd::OpenRsp;

use crate::device::{
    device_log,
    Device, //
};

/// The part of what the server says of its disk that users of ours rely on.
pub(crate) struct Shape {
    logical_block_size: u32,
}

impl Shape {
    /// That of the disk that the server has opened.
    pub(crate) fn of(answer: &OpenRsp) -> Self {
        Self {
            logical_block_size: answer.logical_block_size,
        }
    }

    /// `EINVAL` if `device`, which was made with this, cannot stand for what the server has opened
    /// now. Says so.
    pub(crate) fn check(&self, device: &Device, now: &OpenRsp) -> Result {
        let now = Self::of(now);
        if now.logical_block_size != self.logical_block_size {
            kernel_ext::ratelimited!(device_log!(
                pr_err,
                device,
                "the server's disk has blocks of {} bytes now, this one of {}: \
                 unmap it and map it again",
                now.logical_block_size,
                self.logical_block_size
            ));
            return Err(EINVAL);
        }
        Ok(())
    }
}
