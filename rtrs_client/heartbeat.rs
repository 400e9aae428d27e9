// SPDX-License-Identifier: GPL-2.0

//! The messages that make the heartbeat of a path.

use kernel_ext::{
    prelude::*,
    rdma::{
        Handler,
        QueuePairRef, //
    },
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::rtrs::Imm;
use rtrs_core::heartbeat::Heartbeat;

use crate::{
    connection::post_immediate,
    work::WorkKind, //
};

/// One of the messages that make a heartbeat, of which one at a time is in the send queue.
pub(crate) struct HeartbeatMessage {
    in_queue: Atomic<bool>,
}

impl HeartbeatMessage {
    /// Sends `immediate`, unless the last one has not been sent yet; calls `posting` before that.
    /// The caller gives the connection up if it fails. Any context.
    fn post<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        kind: WorkKind,
        immediate: Imm,
        posting: impl FnOnce(),
    ) -> Result {
        if self.in_queue.xchg(true, ordering::Full) {
            return Ok(());
        }
        posting();
        post_immediate(queue_pair, kind, immediate)
    }

    /// The peer's device has the last one. Completion context.
    pub(crate) fn sent(&self) {
        self.in_queue.store(false, ordering::Release);
    }
}

/// The messages that make the heartbeat of a path.
///
/// If the device waits, because something before them was lost, more of them would not get through
/// either. soft-RoCE would even wait for ever: it only repeats what is not acknowledged when
/// nothing has been posted for a while.
pub(crate) struct HeartbeatMessages {
    pub(crate) heartbeat: HeartbeatMessage,
    pub(crate) ack: HeartbeatMessage,
}

impl HeartbeatMessages {
    /// Nothing was sent yet.
    pub(crate) fn new() -> Self {
        let message = || HeartbeatMessage {
            in_queue: Atomic::new(false),
        };
        Self {
            heartbeat: message(),
            ack: message(),
        }
    }

    /// Sends a heartbeat on the service connection, unless one still waits in its send queue: then
    /// the round trip goes on that began when that one was posted. Any context.
    pub(crate) fn beat<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        state: &Heartbeat,
    ) -> Result {
        self.heartbeat
            .post(queue_pair, WorkKind::Heartbeat, Imm::HbMsg, || {
                state.posting()
            })
    }

    /// Acknowledges the server's heartbeat. Any context.
    pub(crate) fn acknowledge<H: Handler>(&self, queue_pair: &QueuePairRef<H>) -> Result {
        self.ack
            .post(queue_pair, WorkKind::HeartbeatAck, Imm::HbAck, || {})
    }
}
