// SPDX-License-Identifier: GPL-2.0

//! One establishment of a path's connections, from the first step to the teardown.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::set_once::SetOnce;

use crate::{
    beat::Beats,
    connection::Connection,
    path::Path,
    request::Request,
    transfer::Transfer, //
};

/// What the handlers of all connections of one establishment share.
pub(crate) struct Incarnation {
    pub(crate) path: Arc<Path>,
    /// The number that it has in messages on other paths.
    pub(crate) number: u32,
    transfer: SetOnce<Transfer>,
    /// What of the heartbeat is in the send queue of the service connection.
    pub(crate) beats: Beats,
}

impl Incarnation {
    /// Begins a new establishment, `number` for other paths.
    pub(crate) fn new(path: Arc<Path>, number: u32) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                path,
                number,
                transfer: SetOnce::new(),
                beats: Beats::new(),
            },
            GFP_KERNEL,
        )?)
    }

    /// The requests, once the server has said what it offers.
    #[inline]
    pub(crate) fn transfer(&self) -> Option<&Transfer> {
        self.transfer.as_ref()
    }

    /// Sets the requests; `EEXIST` if there are some.
    pub(crate) fn set_transfer(&self, transfer: Transfer) -> Result<&Transfer> {
        if !self.transfer.populate(transfer) {
            return Err(EEXIST);
        }
        self.transfer.as_ref().ok_or(EINVAL)
    }

    /// Gives a finished request back to the session. Completion context.
    #[inline(always)]
    pub(crate) fn finish(&self, request: KBox<Request>) {
        self.path.session.finish(request);
    }
}

/// All connections of a path; the IO path finds them through the path's RCU pointer.
pub(crate) struct ConnectionSet {
    // Dropped first: a queue pair's drop ends its completions, which use the incarnation.
    connections: KVec<Connection>,
    pub(crate) incarnation: Arc<Incarnation>,
}

impl ConnectionSet {
    /// Makes a set of the connections that were established.
    pub(crate) fn new(incarnation: Arc<Incarnation>, connections: KVec<Connection>) -> Self {
        Self {
            connections,
            incarnation,
        }
    }

    /// Connection `cid`.
    pub(crate) fn get(&self, cid: usize) -> Option<&Connection> {
        self.connections.get(cid)
    }

    /// All connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }
}
