// SPDX-License-Identifier: GPL-2.0

//! Sessions of users in C that join a group of `rtrs_group_c`, which then sends their requests.

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

/// A session that is about to join a group. No caller gets a permit of it any more. Dropping this
/// object leaves the session as it was.
///
/// # Invariants
///
/// All permits of `client` are taken by this object, or by the group that the session has joined.
pub struct JoiningSession {
    handle: Handle,
    client: Arc<Client>,
    has_joined: bool,
}

/// A session that has joined a group. Dropping this object closes the session, and sleeps.
pub struct JoinedSession(Arc<Client>);

impl JoiningSession {
    /// Begins to join, with the session of `handle`. `ENODEV` if the session is closed. `EBUSY` if
    /// a permit of it is out, if a task waits for a permit, or if the session is joining already.
    /// Any context.
    pub fn new(handle: Handle) -> Result<Self> {
        let client = handles::client(handle).ok_or(ENODEV)?;
        client.permits().take_all()?;
        // INVARIANT: The permits were just taken.
        Ok(Self {
            handle,
            client,
            has_joined: false,
        })
    }

    /// The session itself. From now on only the group that it joins sends requests by it.
    pub fn transport(&self) -> &Arc<Session> {
        self.client.transport()
    }

    /// Has the session call `events` for its requests. The functions of its user do not find it any
    /// more. Sleeps.
    pub fn join(mut self, events: Arc<dyn SessionEvents>) -> JoinedSession {
        // INVARIANT: The permits stay taken. So no other task joins the session to a group, and
        // `joined` was not set before.
        self.has_joined = true;
        self.client.events().joined.populate(events);
        handles::forget(self.handle);
        JoinedSession(self.client.clone())
    }
}

impl JoinedSession {
    /// Ends all requests, and closes the session. When it returns, no callback runs or will run.
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
