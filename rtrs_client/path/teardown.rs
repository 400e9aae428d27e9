// SPDX-License-Identifier: GPL-2.0

//! Taking a path's connections down, and what becomes of the requests in flight.

use kernel::{
    pr_info,
    sync::Arc,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::workqueue::DelayedWork;

use super::{
    Control,
    Path,
    BEAT, //
};
use crate::{
    incarnation::ConnectionSet,
    permit::FAIL_OVER_PAUSES,
    transfer::Outstanding, //
};

impl Path {
    /// Takes the connections away from the IO path, ends them, and sends what was in flight on
    /// another path or fails it.
    ///
    /// The state is not `connected`, so nobody sets them again.
    pub(super) fn take_down(self: &Arc<Self>, control: &mut Control) {
        DelayedWork::<Path, BEAT>::cancel_sync(self);
        let set = self.connections.replace(None);
        if let Some(set) = &set {
            for connection in set.iter() {
                connection.queue_pair().disconnect();
            }
            for connection in set.iter() {
                connection.queue_pair().drain();
            }
            self.wait_for_server(set);
            self.settle(set);
        }
        if core::mem::replace(&mut control.up, false) {
            let settings = &self.session.settings;
            self.backoff.lost(settings.reconnect_delay_ms());
            self.session.path_down();
        }
        // Last, as the end of a connection may wait some seconds for a peer that is gone.
        drop(set);
    }

    /// Waits until the server has ended the connections, too, if there are requests that it has not
    /// answered: from then on it begins with none of them any more. Otherwise one that is still on its
    /// way could be carried out after its copy on another path, and after what was written since.
    fn wait_for_server(&self, set: &ConnectionSet) {
        let transfer = set.incarnation.transfer();
        if transfer.is_none_or(|transfer| transfer.in_flight() == 0) {
            return;
        }
        let timeout = i64::from(self.heartbeat.disconnect_timeout_ms());
        let began = Instant::<Monotonic>::now();
        for connection in set.iter() {
            while !connection.queue_pair().handler().has_ended() {
                let left = timeout.saturating_sub(began.elapsed().as_millis());
                let left = u32::try_from(left).unwrap_or(0);
                if left == 0 || self.wake.wait_timeout(left).is_err() {
                    self.server_unheard(timeout);
                    return;
                }
            }
        }
    }

    /// The server has not confirmed the end of the connections within `timeout` ms.
    fn server_unheard(&self, timeout: i64) {
        // One that was given up for its silence was not waited for.
        if timeout != 0 {
            pr_info!(
                "{}: the server has not confirmed the disconnection within {} ms\n",
                self.name_text(),
                timeout
            );
        }
    }

    /// Finishes all requests that the failed connections leave behind.
    fn settle(&self, set: &ConnectionSet) {
        let Some(transfer) = set.incarnation.transfer() else {
            return;
        };
        let mut pauses = FAIL_OVER_PAUSES;
        let mut tag = 0;
        while let Some(outstanding) = transfer.take_outstanding(&mut tag) {
            match outstanding {
                Outstanding::Answered(request) => self.session.finish(request),
                Outstanding::Unanswered(request) => {
                    self.session.fail_over(self, request, &mut pauses)
                }
            }
        }
    }
}
