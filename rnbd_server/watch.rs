// SPDX-License-Identifier: GPL-2.0

//! The watch over the disks that clients have open.
//!
//! The kernel does not notify a user of a disk that the disk has grown, was set read-only or has
//! other limits, so the watch looks twice a second. It looks only while a session that takes news
//! has a device open, and rings once at each session in which something has changed. It also rings
//! when the server begins to drain, and when that ends.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};
use kernel_ext::{
    impl_has_delayed_work,
    new_delayed_work,
    prelude::*,
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};
use proto::rnbd::FEATURE_DRAIN;

use crate::{
    news,
    server::Server,
    session::Session,
    session_list::SessionList, //
};

/// The time between two looks at the disks, in ms.
const INTERVAL_MS: u32 = 500;

/// The work item that ends a drain.
const DRAIN_END: u64 = 1;

/// Looks at the disks of sessions that take news.
///
/// # Invariants
///
/// The work is queued, or runs, while a session of the list has a device open that was made known
/// before the last call of [`Self::begin`].
#[pin_data]
pub(crate) struct Watch {
    #[pin]
    sessions: Mutex<SessionList<()>>,
    #[pin]
    work: DelayedWork<Self>,
    server: Arc<Server>,
    /// Ends a drain when its time is over.
    #[pin]
    drain_end: DelayedWork<Self, DRAIN_END>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Watch { self.work }
    impl HasDelayedWork<Self, DRAIN_END> for Watch { self.drain_end }
}

impl Watch {
    /// A watch over no session of `server`, which works on the queue of `server`. Sleeps.
    pub(crate) fn new(server: Arc<Server>) -> Result<Arc<Self>> {
        let queue = server.queue().clone();
        Arc::pin_init(
            pin_init!(Self {
                sessions <- new_mutex!(SessionList::new(), "Watch::sessions"),
                work <- new_delayed_work!(&queue, "Watch::work"),
                drain_end <- new_delayed_work!(&queue, "Watch::drain_end"),
                server,
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a session that takes news, unless it is in the list already. Sleeps.
    pub(crate) fn add(
        &self,
        session: &Arc<Session>,
        transport: &Arc<rtrs_server::Session>,
    ) -> Result {
        self.sessions.lock().add(session, transport)
    }

    /// Removes a session, if it is in the list. Sleeps.
    pub(crate) fn remove(&self, session: &Arc<Session>) {
        let removed = self.sessions.lock().remove(session);
        drop(removed);
    }

    /// Begins to drain the server for `seconds`, in place of an earlier drain, and tells the
    /// clients. Returns the length of the drain in ms. Sleeps, but does not wait for disks.
    pub(crate) fn begin_drain(self: &Arc<Self>, seconds: u32) -> u32 {
        let ms = self.server.drain().begin(seconds);
        self.end_drain_in(ms);
        self.tell_of_drain();
        ms
    }

    /// Ends the drain, and tells the clients. Returns whether the server drained. Sleeps, but does
    /// not wait for disks.
    pub(crate) fn end_drain(&self) -> bool {
        let was_on = self.server.drain().end();
        if was_on {
            self.tell_of_drain();
        }
        was_on
    }

    /// Has the drain end in `ms`. Any context.
    fn end_drain_in(self: &Arc<Self>, ms: u32) {
        // If the work item runs already, it looks again.
        let _ = DelayedWork::<Self, DRAIN_END>::modify(self.clone(), msecs_to_jiffies(ms));
    }

    /// Has the clients that know of drains ask for news.
    fn tell_of_drain(&self) {
        for listed in self.sessions.lock().iter() {
            if listed.session.features() & FEATURE_DRAIN != 0 {
                listed.transport.ring(news::call(&listed.session));
            }
        }
    }

    /// Goes on looking, since a device may have been opened. Any context.
    pub(crate) fn begin(self: &Arc<Self>) {
        // If the work is queued already, it will see the device.
        let _ = DelayedWork::<Self>::queue(self.clone(), msecs_to_jiffies(INTERVAL_MS));
    }
}

impl DelayedWorkItem for Watch {
    fn run(this: Arc<Self>) {
        let mut has_devices = false;
        for listed in this.sessions.lock().iter() {
            has_devices |= !listed.session.devices().is_empty();
            if let Some(sequence) = news::compare(&listed.session) {
                listed.transport.ring(sequence);
            }
        }
        if has_devices {
            this.begin();
        }
    }
}

impl DelayedWorkItem<DRAIN_END> for Watch {
    fn run(this: Arc<Self>) {
        let drain = this.server.drain();
        if let Some(left_ms) = drain.left_ms() {
            this.end_drain_in(left_ms);
        } else if drain.end_if_over() {
            pr_info!("drain: the time is over, clients are let in again\n");
            this.tell_of_drain();
        }
    }
}

/// Ends the watch when it is dropped. All sessions are down by then.
pub(crate) struct StopWatch(pub(crate) Arc<Watch>);

impl Drop for StopWatch {
    fn drop(&mut self) {
        DelayedWork::<Watch>::cancel_sync(&self.0);
        DelayedWork::<Watch, DRAIN_END>::cancel_sync(&self.0);
    }
}
