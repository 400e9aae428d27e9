// SPDX-License-Identifier: GPL-2.0

//! Sessions of users in C that become part of something else, which then sends their requests: a
//! group of `rtrs_group_c`.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::Handle,
    prelude::*, //
};
use rtrs_client::{
    Session,
    SessionEvents, //
};

use crate::{
    client::Client,
    handles, //
};

/// A session that is about to join something. Nobody gets a permit of it any more. Dropping this
/// leaves the session as it was.
///
/// # Invariants
///
/// All permits of `client` are taken by this, or by what the session has joined.
pub struct JoiningSession {
    handle: Handle,
    client: Arc<Client>,
    has_joined: bool,
}

/// A session that has joined something. Dropping this closes it, and sleeps.
pub struct JoinedSession(Arc<Client>);

impl JoiningSession {
    /// The session of `handle`. `ENODEV` if it is closed; `EBUSY` if a permit of it is out, if a
    /// task waits for one, or if the session is joining already. Any context.
    pub fn new(handle: Handle) -> Result<Self> {
        let client = handles::client(handle).ok_or(ENODEV)?;
        client.permits().take_all()?;
        // INVARIANT: They were just taken.
        Ok(Self {
            handle,
            client,
            has_joined: false,
        })
    }

    /// The session itself. While it is joining, and when it has joined, it sends requests only for
    /// what it joins.
    pub fn transport(&self) -> &Arc<Session> {
        self.client.transport()
    }

    /// Has the session tell `events` of its requests, and its user's functions find it closed.
    /// Sleeps.
    pub fn join(mut self, events: Arc<dyn SessionEvents>) -> JoinedSession {
        // INVARIANT: The permits stay taken. So nobody else joins the session to something, and
        // there are no other events.
        self.has_joined = true;
        self.client.events().joined.populate(events);
        handles::forget(self.handle);
        JoinedSession(self.client.clone())
    }
}

impl JoinedSession {
    /// Ends all requests, and closes the session; nothing is called any more when this returns.
    /// Sleeps.
    pub fn close(&self) {
        self.0.transport().close();
    }
}

impl Drop for JoiningSession {
    fn drop(&mut self) {
        if !self.has_joined {
            self.client.permits().give_all_back();
        }
    }
}

impl Drop for JoinedSession {
    fn drop(&mut self) {
        self.close();
    }
}
