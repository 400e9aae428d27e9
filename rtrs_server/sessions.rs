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

/// How long to wait for a session to go that has the name of a new one, in ms.
const NAME_TIMEOUT_MS: i64 = 10_000;
/// How often to look meanwhile whether the new one is still wanted, in ms.
const NAME_WAIT_MS: u32 = 100;

/// The sessions of a listener, and the user that they are for.
#[pin_data]
pub(crate) struct Sessions {
    context: Arc<Context>,
    /// `None` once the listener is closed: nothing of its user is kept then.
    #[pin]
    server: Mutex<Option<Arc<dyn Server>>>,
    #[pin]
    list: Mutex<KVec<Arc<Session>>>,
    /// Told of each session that is no longer in the list.
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

    /// What there is once per module.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The session of the client `uuid`. Sleeps.
    pub(crate) fn find(&self, uuid: &Uuid) -> Option<Arc<Session>> {
        find(&self.list.lock(), uuid)
    }

    /// Adds `session`, unless the client got one in the meantime; returns the one that counts.
    /// Sleeps.
    pub(crate) fn add(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let mut list = self.list.lock();
        if let Some(other) = find(&list, session.uuid()) {
            return Ok(other);
        }
        list.push(session.clone(), GFP_KERNEL)?;
        Ok(session)
    }

    /// Closes all sessions, of which no more are made, and waits until they are gone; nothing
    /// refers to the user of the transport afterwards. Sleeps.
    pub(crate) fn close(&self) {
        let mut list = self.list.lock();
        for session in list.iter() {
            session.close();
        }
        // A path may be in the list whose close was begun elsewhere and is not on the queue yet.
        while !list.is_empty() {
            self.gone.wait(&mut list);
        }
        drop(list);
        // What is left of closing them runs on this queue.
        self.context.queue.flush();
        self.context.closing.flush();
        drop(self.server.lock().take());
    }
}

/// The session of the client `uuid`, unless it is gone and only not yet taken out of the list.
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

    /// A session of that name which is being closed is waited for, as long as `path` is wanted: a
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
                    "session name {} is in use by another client\n",
                    name.as_cstr()
                );
                return Err(EPERM);
            }
            // What woke this up is seen at the next look.
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
