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
/// Has a cache line of its own: each request counts in it, and mostly the CPUs whose requests the
/// connection carries touch it: one CPU, or several with the module parameter `nr_connections`.
#[repr(align(64))]
pub(crate) struct Connection<H: Handler> {
    queue_pair: QueuePair<H>,
    signals: SignalInterval,
    cid: u16,
    max_send_sge: u32,
}

impl<H: Handler> Connection<H> {
    /// Makes connection `cid` of an established queue pair, which takes `max_send_sge` scatter
    /// entries for each work request.
    pub(crate) fn new(
        queue_pair: QueuePair<H>,
        cid: u16,
        signals: SignalInterval,
        max_send_sge: u32,
    ) -> Self {
        Self {
            queue_pair,
            signals,
            cid,
            max_send_sge,
        }
    }

    /// The queue pair.
    pub(crate) fn queue_pair(&self) -> &QueuePair<H> {
        &self.queue_pair
    }

    /// The most scatter entries of a work request.
    pub(crate) fn max_send_sge(&self) -> u32 {
        self.max_send_sge
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
