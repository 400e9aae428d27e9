// SPDX-License-Identifier: GPL-2.0

//! The established connections of a path.

use kernel::sync::Arc;
use kernel_ext::prelude::*;

use crate::{
    connection::Connection,
    handler::ConnectionHandler,
    incarnation::{
        Incarnation,
        PathEvents, //
    },
    requests::PathRequests, //
};

/// All connections of a path. The IO path finds them through the path's RCU pointer.
pub(crate) struct ConnectionSet<P: PathEvents> {
    // Dropped first: dropping a queue pair ends its completions, which use the incarnation.
    connections: KVec<Connection<ConnectionHandler<P>>>,
    pub(crate) incarnation: Arc<Incarnation<P>>,
}

impl<P: PathEvents> ConnectionSet<P> {
    /// Makes a set of the connections that were established.
    pub(crate) fn new(
        incarnation: Arc<Incarnation<P>>,
        connections: KVec<Connection<ConnectionHandler<P>>>,
    ) -> Self {
        Self {
            connections,
            incarnation,
        }
    }

    /// Connection `cid`.
    #[inline]
    pub(crate) fn get(&self, cid: usize) -> Option<&Connection<ConnectionHandler<P>>> {
        self.connections.get(cid)
    }

    /// Connection `cid`, with the requests that it carries.
    #[inline(always)]
    pub(crate) fn sender(
        &self,
        cid: usize,
    ) -> Option<(&PathRequests, &Connection<ConnectionHandler<P>>)> {
        Some((self.incarnation.requests()?, self.get(cid)?))
    }

    /// All connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection<ConnectionHandler<P>>> {
        self.connections.iter()
    }
}
