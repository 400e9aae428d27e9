// SPDX-License-Identifier: GPL-2.0

//! Addresses of paths, between the protocol's form and the connection manager's.

use kernel::fmt;
use kernel_ext::{
    net::{
        socket_address::{
            HostAddress,
            SocketAddress, //
        },
        Namespace, //
    },
    prelude::*, //
};
use proto::addr::{
    Address,
    Scope,
    IB_SERVICE_ID_PREFIX, //
};

/// The name under which the RDMA core lists the resources of both ends (`rdma resource show`).
pub const RESOURCE_OWNER: &CStr = c"rtrs";

/// `address` with a port.
///
/// The interface of a link-local IPv6 address is looked up in the initial network namespace, where
/// both ends are. `EINVAL` if there is no interface of that name. On InfiniBand the port becomes
/// the service id, as in the C modules. Sleeps.
pub fn socket_address(address: &Address, port: u16) -> Result<SocketAddress> {
    Ok(match address {
        Address::V4(addr) => SocketAddress::v4(*addr, port),
        Address::V6 { addr, scope } if scope.is_none() => SocketAddress::v6(*addr, port),
        Address::V6 { addr, scope } => {
            SocketAddress::v6_at(Namespace::init(), *addr, scope.as_bytes(), port)?
        }
        Address::Gid(gid) => SocketAddress::ib(*gid, IB_SERVICE_ID_PREFIX | u64::from(port)),
    })
}

/// The address in `from`, without port and interface. `None` if it is of another family.
pub fn address(from: &SocketAddress) -> Option<Address> {
    from.host().map(host_address)
}

/// `host` in the protocol's form.
pub fn host_address(host: HostAddress) -> Address {
    match host {
        HostAddress::V4(addr) => Address::V4(addr),
        HostAddress::V6(addr) => Address::V6 {
            addr,
            scope: Scope::NONE,
        },
        HostAddress::Gid(gid) => Address::Gid(gid),
    }
}

/// Shows an address as the C modules do, without port.
pub struct Shown(pub SocketAddress);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match address(&self.0) {
            Some(address) => write!(f, "{address}"),
            None => f.write_str("<invalid address family>"),
        }
    }
}
