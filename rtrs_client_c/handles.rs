// SPDX-License-Identifier: GPL-2.0

//! The handles by which callers in C name their sessions. The handle of a closed session finds
//! nothing.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::{
        Handle,
        HandleTable, //
    },
    prelude::*, //
};

use crate::client::Client;

/// The most sessions at a time.
const MAX_SESSIONS: u16 = 4096;

static SESSIONS: HandleTable<Client> = HandleTable::new();

/// Makes room for sessions. Sleeps.
pub(crate) fn begin() -> Result {
    SESSIONS.begin(MAX_SESSIONS)
}

/// Takes the room away, and closes sessions that were left open. Sleeps.
pub(crate) fn end() {
    SESSIONS.end();
}

/// Makes a handle of `client`. Sleeps. `ENODEV` while the module is being loaded or unloaded,
/// `ENFILE` if there are too many sessions.
pub(crate) fn insert(client: Client) -> Result<Handle> {
    SESSIONS.insert(Arc::new(client, GFP_KERNEL)?)
}

/// The session of a handle. Any context.
pub(crate) fn client(session: Handle) -> Option<Arc<Client>> {
    SESSIONS.find(session)
}

/// Calls `use_it` with a session. `ENODEV` if it is closed. Any context; `use_it` must not sleep.
#[inline]
pub(crate) fn with_client<R>(
    session: Handle,
    use_it: impl FnOnce(&Client) -> Result<R>,
) -> Result<R> {
    SESSIONS.with(session, use_it)
}

/// Removes the handle, so that functions do not find the session any more. Sleeps.
pub(crate) fn forget(session: Handle) {
    drop(SESSIONS.remove(session));
}

/// Closes a session, if it is open. Sleeps.
///
/// Until all permits were given back functions still find the session. Confirmations and callers
/// that hold permits need that.
pub(crate) fn close(session: Handle) {
    if let Some(client) = client(session) {
        client.close();
    }
    // If several callers close the session, one of them takes it out.
    forget(session);
}
