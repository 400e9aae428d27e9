// SPDX-License-Identifier: GPL-2.0

//! The heartbeat of a path that is connected.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::{
    pr_err_ratelimited,
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use rtrs_core::heartbeat::Action;

use super::{
    Path,
    HEARTBEAT, //
};

impl Path {
    /// Begins an interval, in place of one that goes on.
    pub(crate) fn restart_heartbeat(self: &Arc<Self>) {
        let _ = DelayedWork::<Path, HEARTBEAT>::modify(self.clone(), self.heartbeat.interval());
    }

    /// Waits for the end of the next interval.
    fn schedule_heartbeat(self: &Arc<Self>) {
        let _ = DelayedWork::<Path, HEARTBEAT>::queue(self.clone(), self.heartbeat.interval());
    }

    /// Handles the end of a heartbeat interval.
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
                        .heartbeat
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
                    "{}: the server does not respond to heartbeats\n",
                    self.name_text()
                );
                self.connection_failed();
                return;
            }
        }
        self.schedule_heartbeat();
    }
}

/// The heartbeat.
impl DelayedWorkItem<HEARTBEAT> for Path {
    fn run(this: Arc<Self>) {
        this.tick();
    }
}
