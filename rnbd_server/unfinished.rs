// SPDX-License-Identifier: GPL-2.0

//! Requests that their disks do not finish keep the module loaded.
//!
//! Unloading the module waits for all requests, so a disk that hangs makes `rmmod` wait for ever.
//! While the module has a reference, `rmmod` fails at once instead (`EAGAIN`). A reference for each
//! request would make all requests slower. So a work item looks at all sessions twice a second. The
//! module keeps a reference from the first look that finds a request which the look before has
//! found, too, until a look that finds no such request. Opening, closing and looking for disks hold
//! a reference anyway: see [`Server::kept_loaded()`].
//!
//! A disk that begins to hang less than a second before `rmmod`, or while `rmmod` waits, holds it
//! up.

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
    module::ModuleReference,
    new_delayed_work,
    pr_warn_ratelimited,
    prelude::*,
    workqueue::{
        DelayedWork,
        DelayedWorkItem, //
    }, //
};

use crate::{
    server::Server,
    session::Session,
    session_list::SessionList, //
};

/// The time between two looks, in ms.
const INTERVAL_MS: u32 = 500;

/// How many looks in a row find an old request of a session before the log tells of the session. An
/// old request was there at the look before, too. The looks may find different requests.
const LOGGED_LOOKS: u32 = 4;

/// The number of a session's devices that the log names at most.
const LOGGED_DEVICES: u32 = 8;

/// Keeps the module loaded while requests are not finished.
///
/// # Invariants
///
/// The work is queued, or runs, while there is a session in the list.
#[pin_data]
pub(crate) struct Unfinished {
    /// Sessions that may have requests. `notes` is the number of looks in a row that have found an
    /// old request of the session.
    #[pin]
    sessions: Mutex<SessionList<u32>>,
    #[pin]
    kept: Mutex<Option<ModuleReference>>,
    server: Arc<Server>,
    #[pin]
    work: DelayedWork<Self>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Unfinished { self.work }
}

impl Unfinished {
    /// Makes the list, without sessions. The work runs on the queue of `server`. Sleeps.
    pub(crate) fn new(server: Arc<Server>) -> Result<Arc<Self>> {
        let queue = server.queue().clone();
        Arc::pin_init(
            pin_init!(Self {
                sessions <- new_mutex!(SessionList::new(), "Unfinished::sessions"),
                kept <- new_mutex!(None, "Unfinished::kept"),
                work <- new_delayed_work!(&queue, "Unfinished::work"),
                server,
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a session, which is looked at from now on. Sleeps. `ENOMEM`.
    pub(crate) fn add(
        self: &Arc<Self>,
        session: &Arc<Session>,
        transport: &Arc<rtrs_server::Session>,
    ) -> Result {
        self.sessions.lock().add(session, transport)?;
        self.begin();
        Ok(())
    }

    /// Removes a session that has no requests any more: it is down, or did not come up. Sleeps.
    pub(crate) fn remove(&self, session: &Arc<Session>) {
        let removed = self.sessions.lock().remove(session);
        drop(removed);
    }

    fn begin(self: &Arc<Self>) {
        // If the work is queued already, it will see the session.
        let _ = DelayedWork::<Self>::queue(self.clone(), msecs_to_jiffies(INTERVAL_MS));
    }
}

impl DelayedWorkItem for Unfinished {
    fn run(this: Arc<Self>) {
        let mut has_old = false;
        let mut sessions = this.sessions.lock();
        for listed in sessions.iter_mut() {
            let looks = &mut listed.notes;
            if listed.transport.count_old_requests() == 0 {
                *looks = 0;
                continue;
            }
            has_old = true;
            *looks = looks.wrapping_add(1);
            if *looks == LOGGED_LOOKS {
                log(&listed.session);
            }
        }
        // INVARIANT: The work is queued again if there is a session.
        if !sessions.is_empty() {
            this.begin();
        }
        drop(sessions);
        let mut kept = this.kept.lock();
        if !has_old {
            *kept = None;
        } else if kept.is_none() {
            // This fails if the module is being unloaded: then it is too late.
            *kept = this.server.reference().ok();
        }
    }
}

/// Logs which disks may have the requests of a session. Sleeps, but does not wait for disks.
fn log(session: &Session) {
    pr_warn_ratelimited!(
        "session {:?}: requests are not finished for {} ms: rnbd_server cannot be unloaded until \
         they are\n",
        session.name().as_cstr(),
        LOGGED_LOOKS.wrapping_mul(INTERVAL_MS)
    );
    let mut left = LOGGED_DEVICES;
    session.devices().find(|device| {
        let (name, device_name) = (session.name().as_cstr(), device.name().as_cstr());
        let device_use = device.enter();
        // A device that cannot be entered is being closed, which waits for its requests.
        match device_use.map(|device_use| device_use.disk().requests_in_flight()) {
            Some(Some(count)) => pr_warn_ratelimited!(
                "session {:?}: device {:?} is open, its disk counts {} requests in flight\n",
                name,
                device_name,
                count
            ),
            Some(None) => pr_warn_ratelimited!(
                "session {:?}: device {:?} is open, its disk is a file, which counts no requests \
                 in flight\n",
                name,
                device_name
            ),
            None => pr_warn_ratelimited!(
                "session {:?}: device {:?} is being closed\n",
                name,
                device_name
            ),
        }
        left = left.wrapping_sub(1);
        left == 0
    });
}

/// Ends the looks when it is dropped. All sessions are down by then.
pub(crate) struct StopUnfinished(pub(crate) Arc<Unfinished>);

impl Drop for StopUnfinished {
    fn drop(&mut self) {
        DelayedWork::<Unfinished>::cancel_sync(&self.0);
    }
}
