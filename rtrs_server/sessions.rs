// SPDX-License-Identifier: GPL-2.0

//! The sessions of a listener.

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::prelude::*;
use proto::{
    name::SessName,
    path_state::ServerState,
    rtrs::Uuid, //
};

use crate::{
    context::Context,
    path::Path,
    session::{
        Server,
        Session,
        SessionOwner, //
    }, //
};

/// How long to wait until another session that has the name of a new one is gone, in ms.
const NAME_TIMEOUT_MS: i64 = 10_000;
/// How often to check meanwhile whether the new session is still wanted, in ms.
const NAME_WAIT_MS: u32 = 100;

/// The sessions of a listener, and the listener's user.
#[pin_data]
pub(crate) struct Sessions {
    context: Arc<Context>,
    /// `None` once the listener is closed: then the listener does not keep its user.
    #[pin]
    server: Mutex<Option<Arc<dyn Server>>>,
    #[pin]
    list: Mutex<KVec<Arc<Session>>>,
    /// Notified of each session that is taken out of the list.
    #[pin]
    gone: CondVar,
}

impl Sessions {
    /// No sessions yet. Sleeps.
    pub(crate) fn new(context: Arc<Context>, server: Arc<dyn Server>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                context,
                server <- new_mutex!(Some(server), "rtrs_server::Sessions::server"),
                list <- new_mutex!(KVec::new(), "rtrs_server::Sessions::list"),
                gone <- new_condvar!("rtrs_server::Sessions::gone"),
            }),
            GFP_KERNEL,
        )
    }

    /// The module's context.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The session of the client with this `uuid`. Sleeps.
    pub(crate) fn find(&self, uuid: &Uuid) -> Option<Arc<Session>> {
        find(&self.list.lock(), uuid)
    }

    /// Adds `session`, unless the client got a session in the meantime. Returns the client's
    /// session. Sleeps.
    pub(crate) fn add(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let mut list = self.list.lock();
        if let Some(other) = find(&list, session.uuid()) {
            return Ok(other);
        }
        list.push(session.clone(), GFP_KERNEL)?;
        Ok(session)
    }

    /// Closes all sessions and waits until they are gone; no more are made. Nothing refers to the
    /// user of the transport afterwards. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for session in list.iter() {
            session.close();
        }
        // A path may still be in the list that another task is closing and that is not on the queue
        // yet.
        while !list.is_empty() {
            self.gone.wait(&mut list);
        }
        drop(list);
        // The rest of closing the sessions runs on these queues.
        self.context.queue.flush();
        self.context.closing.flush();
        drop(self.server.lock().take());
    }
}

/// The session of the client with this `uuid`, unless the session is gone and only not yet taken
/// out of the list.
fn find(sessions: &[Arc<Session>], uuid: &Uuid) -> Option<Arc<Session>> {
    sessions
        .iter()
        .find(|session| session.uuid() == uuid && !session.is_gone())
        .cloned()
}

impl SessionOwner for Sessions {
    fn server(&self) -> Result<Arc<dyn Server>> {
        self.server.lock().clone().ok_or(ESHUTDOWN)
    }

    /// Waits for another session of that name which is being closed, as long as `path` is wanted: a
    /// client that unmaps its last device and maps it again is faster than the close.
    fn set_name(&self, session: &Session, name: &SessName, path: &Path) -> Result {
        let mut list = self.list.lock();
        let began = Instant::<Monotonic>::now();
        while let Some(other) = list
            .iter()
            .find(|other| other.uuid() != session.uuid() && other.sessname() == Some(name))
        {
            if began.elapsed().as_millis() >= NAME_TIMEOUT_MS
                || !other.is_closing()
                || path.core().state() != ServerState::Connecting
            {
                kernel_ext::pr_err_ratelimited!(
                    "session name {} is in use by another client: choose another sessname=, or \
                     wait until that client's paths are closed\n",
                    name.as_cstr()
                );
                return Err(EPERM);
            }
            // The next look finds out why this task was woken.
            let _ = self
                .gone
                .wait_interruptible_timeout(&mut list, msecs_to_jiffies(NAME_WAIT_MS));
        }
        session.name_once(name)
    }

    fn remove(&self, session: &Arc<Session>) {
        self.list
            .lock()
            .retain(|other| !Arc::ptr_eq(other, session));
        self.gone.notify_all();
    }
}
