// SPDX-License-Identifier: GPL-2.0

//! Taking a path's connections down, and what becomes of the requests in flight.

use kernel::sync::Arc;
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
