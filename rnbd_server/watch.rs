// SPDX-License-Identifier: GPL-2.0

//! The watch over the disks that clients have open.
//!
//! The kernel does not notify a user of a disk that the disk has grown, was set read-only or has
//! other limits, so the watch looks twice a second. It looks only while a session that takes news
//! has a device open, and rings once at each session in which something has changed.

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
        DelayedWorkItem,
        QueueHandle, //
    }, //
};

use proto::rnbd::FEATURE_DRAIN;

use crate::{
    news,
    session::Session, //
};

/// The time between two looks at the disks, in ms.
const INTERVAL_MS: u32 = 500;

/// A session that takes news.
struct Watched {
    session: Arc<Session>,
    transport: Arc<rtrs_server::Session>,
}

/// Looks at the disks of sessions that take news.
///
/// # Invariants
///
/// The work is queued, or runs, while a session of the list has a device open that was made known
/// before the last call of [`Self::begin`].
#[pin_data]
pub(crate) struct Watch {
    #[pin]
    sessions: Mutex<KVec<Watched>>,
    #[pin]
    work: DelayedWork<Self>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Watch { self.work }
}

impl Watch {
    /// A watch over no session, which works on `queue`. Sleeps.
    pub(crate) fn new(queue: &QueueHandle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                sessions <- new_mutex!(KVec::new(), "Watch::sessions"),
                work <- new_delayed_work!(queue, "Watch::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a session that takes news, unless it is there already. Sleeps.
    pub(crate) fn add(
        &self,
        session: &Arc<Session>,
        transport: &Arc<rtrs_server::Session>,
    ) -> Result {
        let mut sessions = self.sessions.lock();
        if sessions
            .iter()
            .any(|watched| Arc::ptr_eq(&watched.session, session))
        {
            return Ok(());
        }
        let watched = Watched {
            session: session.clone(),
            transport: transport.clone(),
        };
        Ok(sessions.push(watched, GFP_KERNEL)?)
    }

    /// Forgets a session, if it is there. Sleeps.
    pub(crate) fn remove(&self, session: &Arc<Session>) {
        let removed = {
            let mut sessions = self.sessions.lock();
            let index = sessions
                .iter()
                .position(|watched| Arc::ptr_eq(&watched.session, session));
            index.and_then(|index| sessions.remove(index).ok())
        };
        drop(removed);
    }

    /// Has the clients ask for news that know of drains. Sleeps, but does not wait for disks.
    pub(crate) fn tell_of_drain(&self) {
        for Watched { session, transport } in self.sessions.lock().iter() {
            if session.features() & FEATURE_DRAIN != 0 {
                transport.ring(news::call(session));
            }
        }
    }

    /// The number of sessions that know of drains. Sleeps, but does not wait for disks.
    pub(crate) fn sessions_with_drain(&self) -> u32 {
        let sessions = self.sessions.lock();
        let with_drain = sessions
            .iter()
            .filter(|watched| watched.session.features() & FEATURE_DRAIN != 0);
        // There is a session for each MiB of memory at most.
        with_drain.count() as u32
    }

    /// A device may have been opened: goes on looking. Any context.
    pub(crate) fn begin(self: &Arc<Self>) {
        // If it is queued already it will see the device.
        let _ = DelayedWork::queue(self.clone(), msecs_to_jiffies(INTERVAL_MS));
    }
}

impl DelayedWorkItem for Watch {
    fn run(this: Arc<Self>) {
        let mut has_devices = false;
        for Watched { session, transport } in this.sessions.lock().iter() {
            has_devices |= !session.devices().is_empty();
            if let Some(sequence) = news::compare(session) {
                transport.ring(sequence);
            }
        }
        if has_devices {
            this.begin();
        }
    }
}

/// Ends the watch when it is dropped. All sessions are down by then.
pub(crate) struct StopWatch(pub(crate) Arc<Watch>);

impl Drop for StopWatch {
    fn drop(&mut self) {
        DelayedWork::cancel_sync(&self.0);
    }
}
