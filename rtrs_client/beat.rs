// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path that is connected.

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::workqueue::{
    DelayedWork,
    DelayedWorkItem, //
};
use proto::rtrs::Imm;
use rtrs_core::heartbeat::Action;

use crate::{
    connection::post_immediate,
    path::{
        Path,
        BEAT, //
    }, //
};

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
                    Some((set, connection)) => post_immediate(
                        connection.queue_pair(),
                        Imm::HbMsg,
                        &set.incarnation.service_signals,
                    ),
                    None => return,
                };
                drop(guard);
                if sent.is_err() {
                    self.connection_failed();
                    return;
                }
            }
            Action::Fail => {
                pr_err!(
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
