// SPDX-License-Identifier: GPL-2.0

//! The heartbeats of a path, and their acknowledgements.

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

/// One kind of message: heartbeats or acknowledgements. At most one is in the send queue.
pub(crate) struct HeartbeatMessage {
    in_queue: Atomic<bool>,
}

impl HeartbeatMessage {
    /// Sends `immediate`, unless the last message is still in the send queue. Calls `posting`
    /// before it sends. The caller gives the connection up on an error. Any context.
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

    /// Notes that the peer's device has the last message. Completion context.
    pub(crate) fn sent(&self) {
        self.in_queue.store(false, ordering::Release);
    }
}

/// The heartbeats of a path, and their acknowledgements.
///
/// There is at most one message of each kind in the send queue: if the device waits because an
/// earlier message was lost, more messages would not get through either. soft-RoCE would even wait
/// for ever: it only repeats unacknowledged messages when nothing has been posted for a while.
pub(crate) struct HeartbeatMessages {
    pub(crate) heartbeat: HeartbeatMessage,
    pub(crate) ack: HeartbeatMessage,
}

impl HeartbeatMessages {
    /// Makes an object; no message was sent yet.
    pub(crate) fn new() -> Self {
        let message = || HeartbeatMessage {
            in_queue: Atomic::new(false),
        };
        Self {
            heartbeat: message(),
            ack: message(),
        }
    }

    /// Sends a heartbeat on the service connection, unless the last one is still in the send queue.
    /// Then the round trip goes on that began when that heartbeat was posted. Any context.
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
