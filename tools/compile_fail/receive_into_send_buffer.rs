// SPDX-License-Identifier: GPL-2.0

//! A receive is posted into a buffer that the device may only read.

use kernel::prelude::*;
use kernel_ext::rdma::{
    message_buffers::{MessageBuffer, Outgoing},
    Handler, QueuePair, WrId,
};

/// The mistake.
pub fn post<H: Handler>(pair: &QueuePair<H>, buffer: &MessageBuffer<Outgoing>) -> Result {
    pair.post_recv(WrId(0), buffer) //~ E0308
}
