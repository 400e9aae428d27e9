// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path that is connected.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    rdma::QueuePairRef,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use proto::rtrs::Imm;
use rtrs_core::heartbeat::Action;

use crate::{
    connection::{
        post_immediate,
        ConnectionHandler, //
    },
    path::{
        Path,
        BEAT, //
    },
    work::WorkKind, //
};

/// One of the messages that make a heartbeat, of which one at a time is in the send queue.
pub(crate) struct Beat {
    in_queue: Atomic<bool>,
}

impl Beat {
    /// Sends `immediate`, unless the last one has not been sent yet; calls `posting` before that.
    /// The caller gives the connection up if it fails. Any context.
    fn post(
        &self,
        queue_pair: &QueuePairRef<ConnectionHandler>,
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
pub(crate) struct Beats {
    pub(crate) heartbeat: Beat,
    pub(crate) ack: Beat,
}

impl Beats {
    /// Nothing was sent yet.
    pub(crate) fn new() -> Self {
        let beat = || Beat {
            in_queue: Atomic::new(false),
        };
        Self {
            heartbeat: beat(),
            ack: beat(),
        }
    }

    /// Sends a heartbeat on the service connection, unless one still waits in its send queue: then
    /// the round trip goes on that began when that one was posted. Any context.
    fn beat(
        &self,
        queue_pair: &QueuePairRef<ConnectionHandler>,
        state: &rtrs_core::heartbeat::Heartbeat,
    ) -> Result {
        self.heartbeat
            .post(queue_pair, WorkKind::Heartbeat, Imm::HbMsg, || {
                state.posting()
            })
    }

    /// Answers the server's heartbeat. Any context.
    pub(crate) fn answer(&self, queue_pair: &QueuePairRef<ConnectionHandler>) -> Result {
        self.ack
            .post(queue_pair, WorkKind::HeartbeatAck, Imm::HbAck, || {})
    }
}

impl Path {
    /// Begins an interval, whether or not another one goes on.
    pub(crate) fn restart_beat(self: &Arc<Self>) {
        let _ = DelayedWork::<Path, BEAT>::modify(self.clone(), self.heartbeat.interval());
    }

    /// Waits for the end of the next interval.
    fn schedule_beat(self: &Arc<Self>) {
        let _ = DelayedWork::<Path, BEAT>::queue(self.clone(), self.heartbeat.interval());
    }

    /// The end of a heartbeat interval.
    fn tick(self: &Arc<Self>) {
        if !self.is_connected() {
            return;
        }
        match self.heartbeat.tick() {
            Action::Wait => {}
            Action::Send => {
                let guard = rcu::read_lock();
                let set = self.connections(&guard);
                let sent = match set.as_ref().and_then(|set| Some((set, set.get(0)?))) {
                    Some((set, connection)) => set
                        .incarnation
                        .beats
                        .beat(connection.queue_pair(), &self.heartbeat),
                    None => return,
                };
                drop(guard);
                if sent.is_err() {
                    self.connection_failed();
                    return;
                }
            }
            Action::Fail => {
                pr_err_ratelimited!(
                    "{}: the server does not answer heartbeats\n",
                    self.name_text()
                );
                self.connection_failed();
                return;
            }
        }
        self.schedule_beat();
    }
}

/// The heartbeat.
impl DelayedWorkItem<BEAT> for Path {
    fn run(this: Arc<Self>) {
        this.tick();
    }
}
