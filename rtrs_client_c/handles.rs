// SPDX-License-Identifier: GPL-2.0

//! What callers in C have of their sessions: handles, by which a session that was closed is not
//! found any more.

use kernel::sync::{
    rcu,
    Arc, //
};
use kernel_ext::{
    c_caller::{
        Handle,
        Handles, //
    },
    prelude::*,
    sync::rcu::RcuArc, //
};

use crate::client::Client;

/// The most sessions at a time.
const MAX_SESSIONS: u16 = 4096;

static SESSIONS: RcuArc<Handles<Client>> = RcuArc::empty();

/// Makes room for sessions. Sleeps.
pub(crate) fn begin() -> Result {
    drop(SESSIONS.replace(Some(Handles::new(MAX_SESSIONS)?)));
    Ok(())
}

/// Takes it away, and closes sessions that were left open. Sleeps.
pub(crate) fn end() {
    drop(SESSIONS.replace(None));
}

/// Makes a handle of `client`. Sleeps. `ENODEV` while the module is being loaded or unloaded,
/// `ENFILE` if there are too many.
pub(crate) fn insert(client: Client) -> Result<Handle> {
    let sessions = SESSIONS.get().ok_or(ENODEV)?;
    sessions.insert(Arc::new(client, GFP_KERNEL)?)
}

/// The session of a handle. Any context.
pub(crate) fn client(session: Handle) -> Option<Arc<Client>> {
    let guard = rcu::read_lock();
    let found = SESSIONS.load_ref(&guard)?.get(session, &guard)?;
    Some(found.into())
}

/// Calls `use_it` with a session. `ENODEV` if it is closed. Any context; `use_it` does not sleep.
#[inline]
pub(crate) fn with_client<R>(
    session: Handle,
    use_it: impl FnOnce(&Client) -> Result<R>,
) -> Result<R> {
    let guard = rcu::read_lock();
    let found = SESSIONS
        .load_ref(&guard)
        .and_then(|sessions| sessions.get(session, &guard));
    let found = found.ok_or(ENODEV)?;
    use_it(&found)
}

/// Closes a session, if it is open. Sleeps.
///
/// Until all permits were given back functions find the session, which is what confirmations and
/// those that hold permits need.
pub(crate) fn close(session: Handle) {
    if let Some(client) = client(session) {
        client.close();
    }
    if let Some(sessions) = SESSIONS.get() {
        // Of several callers one gets it.
        drop(sessions.remove(session));
    }
}
