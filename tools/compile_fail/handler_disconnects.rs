// SPDX-License-Identifier: GPL-2.0

//! A completion handler, which may not sleep, ends the connection and waits for itself.

use kernel_ext::rdma::{Handler, QueuePairRef};

/// The mistake.
pub fn completed<H: Handler>(pair: &QueuePairRef<H>) {
    pair.drain(); //~ E0599
}
