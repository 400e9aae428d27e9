// SPDX-License-Identifier: GPL-2.0

//! The address and the queue pair of a peer that requests a connection, checked as far as possible.

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
    /// The peer's address. `None` if the address has no known family, or if it is known to be
    /// false: on RoCE, if it differs from the address in the peer's GID.
    ///
    /// The CM takes the peer's IP address from the request's private data. On RoCE packets to the
    /// peer go to the IP address in the peer's GID. The CM does not compare the two addresses; if
    /// they differ, the peer claims an address that is not its own. On InfiniBand there is no
    /// second address to compare with, so the address is returned unchecked.
    pub fn client(&self) -> Option<HostAddress> {
        let address = self.peer_address().host()?;
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        let path = unsafe { (*self.raw).route.path_rec };
        if path.is_null() {
            // On iWARP the address is that of the TCP connection.
            return Some(address);
        }
        // SAFETY: The id has a path record, which stays as long as the id.
        let path = unsafe { &*path };
        // SAFETY: Both views of the GID are plain bytes.
        let gid = *unsafe { path.dgid.raw };
        (!is_roce(path) || gid == address.to_gid()).then_some(address)
    }

    /// The address to which packets to the peer go, independent of the peer's own word: on RoCE the
    /// IP address in the peer's GID, on InfiniBand its GID, on iWARP the address of the TCP
    /// connection.
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

    /// The number of the peer's queue pair, to which all messages of the connection go; 0 on iWARP,
    /// where a queue pair has no number.
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
    /// Whether the peer learns the number of the queue pair: not on iWARP, where the connection is
    /// one of TCP. The route must be resolved before. Sleeps.
    pub(in crate::rdma) fn tells_queue_pair(&self) -> bool {
        // SAFETY: The id is valid, and its handler mutex is held.
        self.locked(|| unsafe { !(*self.as_raw()).route.path_rec.is_null() })
    }
}

/// Whether the path of the record is a RoCE path.
fn is_roce(path: &bindings::sa_path_rec) -> bool {
    matches!(
        path.rec_type,
        bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V1
            | bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2
    )
}
