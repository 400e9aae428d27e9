// SPDX-License-Identifier: GPL-2.0

//! The listeners of users in C.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    c_caller::{
        Handle,
        Handles,
        ServerCallbacks, //
    },
    prelude::*,
    sync::rcu::RcuArc, //
};
use rtrs_server::{
    Listener,
    Needs,
    Server,
    Session,
    SessionHandler, //
};

use crate::sessions::UserSession;

/// The most listeners.
const MAX_LISTENERS: u16 = 64;

/// A listener as its user in C has it. Dropping it closes all sessions.
#[pin_data]
struct Open {
    #[pin]
    listener: Mutex<Option<Listener>>,
}

static LISTENERS: RcuArc<Handles<Open>> = RcuArc::empty();

/// Makes the table of listeners. Sleeps.
pub(crate) fn begin() -> Result {
    drop(LISTENERS.replace(Some(Handles::new(MAX_LISTENERS)?)));
    Ok(())
}

/// Drops the table, which closes the listeners that were left open. Sleeps.
pub(crate) fn end() {
    drop(LISTENERS.replace(None));
}

/// The user of a listener's sessions.
struct User(ServerCallbacks);

impl Server for User {
    /// A user in C gets the address of a request's data, and its callback for a request may sleep.
    fn needs(&self) -> Needs {
        Needs {
            block_chunks: true,
            sleeping_requests: true,
        }
    }

    fn session_up(&self, session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>> {
        Ok(UserSession::new(self.0, session)?)
    }
}

/// Listens on `port`. Sleeps. `ENFILE` if there are too many listeners; errors of
/// [`Listener::open()`].
pub(crate) fn open(callbacks: ServerCallbacks, port: u16) -> Result<Handle> {
    let listeners = LISTENERS.get().ok_or(ENODEV)?;
    // Made first, since clients may come before `Listener::open()` returns.
    let open = Arc::pin_init(
        pin_init!(Open {
            listener <- new_mutex!(None, "rtrs_server_c::Open::listener"),
        }),
        GFP_KERNEL,
    )?;
    let handle = listeners.insert(open.clone())?;
    let user = Arc::new(User(callbacks), GFP_KERNEL);
    let opened = user
        .map_err(Error::from)
        .and_then(|user| Listener::open(user, port));
    match opened {
        Ok(listener) => {
            *open.listener.lock() = Some(listener);
            Ok(handle)
        }
        Err(error) => {
            drop(listeners.remove(handle));
            Err(error)
        }
    }
}

/// Closes a listener and all of its sessions; no callback runs any more when this returns. False if
/// there is no listener of that handle. Sleeps.
pub(crate) fn close(handle: Handle) -> bool {
    let found = LISTENERS.get().and_then(|all| all.remove(handle));
    // The sessions are gone when the listener is dropped.
    let listener = found.and_then(|open| open.listener.lock().take());
    listener.is_some()
}
