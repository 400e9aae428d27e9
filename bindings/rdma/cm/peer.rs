// SPDX-License-Identifier: GPL-2.0

//! How far the address of a peer that wants a connection is to be believed, and which queue pair
//! it has.

use super::{
    event::NewId,
    EventHandler,
    Id, //
};
use crate::{
    bindings,
    net::socket_address::HostAddress, //
};

impl NewId<'_> {
    /// The peer's address as far as it is more than what the peer says of itself; `None` if it is
    /// not.
    ///
    /// The CM takes the peer's IP address from the request's private data. On RoCE a packet goes
    /// to the IP address in its GID, and the CM does not compare the two: if they differ, a peer
    /// that has one address claims another one. On InfiniBand there is nothing to compare an IP
    /// address with.
    pub fn client(&self) -> Option<HostAddress> {
        let address = self.peer_address().host()?;
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        let path = unsafe { (*self.raw).route.path_rec };
        if path.is_null() {
            // iWARP: the address is that of the TCP connection.
            return Some(address);
        }
        // SAFETY: The id has a path record, which stays as long as the id.
        let path = unsafe { &*path };
        // SAFETY: Both views of the GID are plain bytes.
        let gid = *unsafe { path.dgid.raw };
        (!is_roce(path) || gid == address.to_gid()).then_some(address)
    }

    /// The address that answers to the peer go to, whatever the peer says of itself: on RoCE the IP
    /// address in its GID, on InfiniBand its GID, on iWARP that of the TCP connection.
    pub fn answered_at(&self) -> Option<HostAddress> {
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        let path = unsafe { (*self.raw).route.path_rec };
        if path.is_null() {
            return self.peer_address().host();
        }
        // SAFETY: The id has a path record, which stays as long as the id.
        let path = unsafe { &*path };
        // SAFETY: Both views of the GID are plain bytes.
        let gid = *unsafe { path.dgid.raw };
        Some(match is_roce(path) {
            true => HostAddress::of_gid(gid),
            false => HostAddress::Gid(gid),
        })
    }

    /// The number of the peer's queue pair, to which everything goes that is sent by the
    /// connection; 0 on iWARP, where a connection has none.
    pub fn queue_pair(&self) -> u32 {
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        let path = unsafe { (*self.raw).route.path_rec };
        if path.is_null() {
            0
        } else {
            self.queue_pair
        }
    }
}

impl<H: EventHandler> Id<H> {
    /// Whether the peer learns the number of the queue pair, once the route is resolved: not on
    /// iWARP, where a connection is one of TCP. Sleeps.
    pub(in crate::rdma) fn tells_queue_pair(&self) -> bool {
        // SAFETY: The id is valid, and its handler mutex is held.
        self.locked(|| unsafe { !(*self.as_raw()).route.path_rec.is_null() })
    }
}

/// Whether the path of the record is one of Ethernet.
fn is_roce(path: &bindings::sa_path_rec) -> bool {
    matches!(
        path.rec_type,
        bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V1
            | bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2
    )
}
