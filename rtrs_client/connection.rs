// SPDX-License-Identifier: GPL-2.0

//! An established connection of a path: its queue pair, and which work requests are signalled.

use kernel_ext::{
    prelude::*,
    rdma::{
        Handler,
        QueuePair,
        QueuePairRef,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::rtrs::Imm;
use rtrs_core::connection::SignalInterval;

use crate::work::WorkKind;

/// An established connection.
///
/// Has a cache line of its own: each request counts in it, and mostly the CPU whose requests the
/// connection carries touches it.
#[repr(align(64))]
pub(crate) struct Connection<H: Handler> {
    queue_pair: QueuePair<H>,
    signals: SignalInterval,
    cid: u16,
}

impl<H: Handler> Connection<H> {
    /// Makes connection `cid` of an established queue pair.
    pub(crate) fn new(queue_pair: QueuePair<H>, cid: u16, signals: SignalInterval) -> Self {
        Self {
            queue_pair,
            signals,
            cid,
        }
    }

    /// The queue pair.
    pub(crate) fn queue_pair(&self) -> &QueuePair<H> {
        &self.queue_pair
    }

    /// The number of the connection on its path.
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// Whether the next request asks for a send completion.
    pub(crate) fn next_is_signaled(&self) -> bool {
        self.signals.next_is_signaled()
    }
}

/// Sends an immediate that is not a request, on the service connection. Any context.
pub(crate) fn post_immediate<H: Handler>(
    queue_pair: &QueuePairRef<H>,
    kind: WorkKind,
    immediate: Imm,
) -> Result {
    let mut room = SendRoom::<1, 1>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    batch.imm_only(kind.id(), true, immediate.encode())?;
    Ok(queue_pair.post(&mut batch)?)
}
