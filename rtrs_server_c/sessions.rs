// SPDX-License-Identifier: GPL-2.0

//! Sessions of a user in C.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::{
    c_caller::{
        Handle,
        Handles,
        Private,
        PrivateCell,
        ServerCallbacks, //
    },
    pr_err_ratelimited,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu::RcuArc, //
    }, //
};
use rtrs_server::{
    Operation,
    Session,
    SessionHandler, //
};

use crate::{
    operations::Operations,
    tickets, //
};

/// The most sessions, of all listeners.
const MAX_SESSIONS: u16 = 4096;

/// C: `enum rtrs_srv_link_ev`.
const CONNECTED: c_uint = 0;
const DISCONNECTED: c_uint = 1;

/// The largest errno of C.
const MAX_ERRNO: c_int = 4095;

static SESSIONS: RcuArc<Handles<UserSession>> = RcuArc::empty();

/// Makes the table of sessions. Sleeps.
pub(crate) fn begin() -> Result {
    drop(SESSIONS.replace(Some(Handles::new(MAX_SESSIONS)?)));
    Ok(())
}

/// Drops the table, which has no sessions. Sleeps.
pub(crate) fn end() {
    drop(SESSIONS.replace(None));
}

/// A session of a user in C.
///
/// # Invariants
///
/// - `handle` leads to the session from before the user is told of the session until the user was
///   told that it is gone; before and afterwards the handle is in no place of [`SESSIONS`].
/// - Only calls of the transport call `callbacks`, and the listener is not dropped yet then.
pub(crate) struct UserSession {
    callbacks: ServerCallbacks,
    transport: Arc<Session>,
    private: PrivateCell,
    handle: Atomic<u64>,
    /// The user was not told yet that the session is gone.
    is_up: Atomic<bool>,
    operations: Operations,
}

impl UserSession {
    /// Tells the user of a session. Sleeps. `ENFILE` if there are too many sessions, otherwise the
    /// user's error.
    pub(crate) fn new(callbacks: ServerCallbacks, transport: &Arc<Session>) -> Result<Arc<Self>> {
        let sessions = SESSIONS.get().ok_or(ENODEV)?;
        let session = Self {
            callbacks,
            transport: transport.clone(),
            private: PrivateCell::new(),
            handle: Atomic::new(0),
            is_up: Atomic::new(true),
            operations: Operations::new(transport.queue_depth())?,
        };
        let session = Arc::new(session, GFP_KERNEL)?;
        let handle = sessions.insert(session.clone())?;
        session.handle.store(handle.number(), ordering::Relaxed);
        match callbacks.event(handle, CONNECTED, Private::NULL) {
            0 => Ok(session),
            errno => {
                pr_err!(
                    "<{}>: the user of the listener refuses the session, err: {}\n",
                    transport.name(),
                    errno
                );
                drop(sessions.remove(handle));
                Err(error_of(errno))
            }
        }
    }

    /// Calls `use_it` with the session that the user knows as `handle`. `None` if there is no such
    /// session. Any context; `use_it` does not sleep.
    pub(crate) fn with<R>(handle: Handle, use_it: impl FnOnce(&Self) -> R) -> Option<R> {
        let guard = rcu::read_lock();
        let session = SESSIONS.load_ref(&guard)?.get(handle, &guard)?;
        Some(use_it(&session))
    }

    /// Keeps the user's pointer. Any context.
    pub(crate) fn set_private(&self, private: Private) {
        self.private.set(private);
    }

    /// The name; `None` once the user was told that the session is gone. Any context.
    pub(crate) fn name(&self) -> Option<&CStr> {
        (self.is_up.load(ordering::Relaxed)).then(|| self.transport.name())
    }

    /// The number of requests in flight that the session has room for. Any context.
    pub(crate) fn queue_depth(&self) -> u32 {
        self.transport.queue_depth()
    }

    fn handle(&self) -> Handle {
        Handle::new(self.handle.load(ordering::Relaxed))
    }

    /// Hands an operation to the user. Sleeps.
    fn hand_over(&self, operation: Operation, message: &[u8]) {
        let handle = self.handle();
        let place = Handles::<Self>::place(handle);
        let Some(told) = self.operations.keep(place, operation, message) else {
            return;
        };
        let private = self.private.get();
        let errno = (self.callbacks).request(private, told.handle, told.data, told.message);
        if errno != 0 {
            self.failed(told.handle, errno);
        }
    }

    /// Responds to an operation that the user has refused.
    #[cold]
    fn failed(&self, handle: Handle, errno: c_int) {
        let found = tickets::read(handle);
        match found.and_then(|(_, chunk)| self.operations.take(chunk, handle)) {
            Some(operation) => operation.respond(Err(error_of(errno))),
            None => pr_err_ratelimited!(
                "<{}>: the user of the listener has responded to a request and then refused it, \
                 err: {}\n",
                self.transport.name(),
                errno
            ),
        }
    }
}

/// Responds to an operation, with an errno or 0. `EINVAL` if the user has no such operation. Any
/// context.
pub(crate) fn respond(handle: Handle, errno: c_int) -> Result {
    let (place, chunk) = tickets::read(handle).ok_or(EINVAL)?;
    let operation = {
        let guard = rcu::read_lock();
        let sessions = SESSIONS.load_ref(&guard).ok_or(EINVAL)?;
        let session = sessions.at(place, &guard);
        session.and_then(|session| session.operations.take(chunk, handle))
    };
    let operation = operation.ok_or(EINVAL)?;
    let result = match errno {
        // A read gives the client as many bytes as the client asked for.
        0 => Ok(operation.data_len()),
        errno => Err(error_of(errno)),
    };
    operation.respond(result);
    Ok(())
}

/// The error that a user in C means by a number other than 0. The number is negative as a rule; C
/// takes a positive one for the same error.
fn error_of(errno: c_int) -> Error {
    match errno.checked_abs() {
        Some(positive @ 1..=MAX_ERRNO) => Error::from_errno(positive.wrapping_neg()),
        _ => EIO,
    }
}

impl SessionHandler for UserSession {
    /// An operation that would hold up the service connection goes to the session's worker: the
    /// operation may take long, and that connection has the heartbeats.
    fn request(&self, operation: Operation, message: &[u8]) {
        if operation.is_on_service_connection() {
            operation.defer(message);
        } else {
            self.hand_over(operation, message);
        }
    }

    fn deferred(&self, operation: Operation, message: &[u8]) {
        self.hand_over(operation, message);
    }

    fn session_down(&self) {
        self.is_up.store(false, ordering::Relaxed);
        let (handle, private) = (self.handle(), self.private.get());
        // The result is of no use, as in C.
        let _ = self.callbacks.event(handle, DISCONNECTED, private);
        if let Some(sessions) = SESSIONS.get() {
            drop(sessions.remove(handle));
        }
    }
}
