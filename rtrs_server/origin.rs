// SPDX-License-Identifier: GPL-2.0

//! Where a path comes from.

use kernel_ext::rdma::cm::NewId;
use proto::addr::Address;
use rtrs_core::address::{
    address,
    host_address, //
};

use crate::path::Path;

/// The addresses by which the clients of paths are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The address that the connection comes from.
    peer: Option<Address>,
    /// The client's address; `None` if the address is only the client's word. See
    /// [`NewId::client`].
    client: Option<Address>,
}

impl Origin {
    /// The origin of a connection that is asked for.
    pub(crate) fn of_request(id: &NewId<'_>) -> Self {
        Self {
            peer: address(&id.peer_address()),
            client: id.client().map(host_address),
        }
    }

    /// The origin of a path.
    pub(crate) fn of_path(path: &Path) -> Self {
        Self {
            peer: address(path.core().peer()),
            client: path.client(),
        }
    }
}
