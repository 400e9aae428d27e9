// SPDX-License-Identifier: GPL-2.0

//! Addresses as callers in C have them (`struct sockaddr`).

use core::net::Ipv6Addr;
use kernel_ext::{
    c_caller::AddressPairs,
    net::socket_address::SocketAddress,
    prelude::*, //
};
use proto::{
    addr::{
        Address,
        PathAddress,
        Scope,
        PATH_TEXT_LEN, //
    },
    rtrs::MAX_PATHS_NUM,
    text::Text, //
};
use rtrs_core::address::address;

/// The address in `given`, with the interface of a link-local one. `EAFNOSUPPORT` if it is of
/// another family.
pub(crate) fn from_socket(given: &SocketAddress) -> Result<Address> {
    match address(given).ok_or(EAFNOSUPPORT)? {
        Address::V6 { addr, .. } if Ipv6Addr::from(addr).is_unicast_link_local() => {
            let scope = Scope::of_index(given.interface());
            Ok(Address::V6 { addr, scope })
        }
        address => Ok(address),
    }
}

/// The text of an address, as the C modules show it.
pub(crate) fn text(given: Option<&SocketAddress>) -> Text<PATH_TEXT_LEN> {
    match given.and_then(address) {
        Some(address) => address.to_text(),
        None => Text::of(&"<invalid address family>"),
    }
}

/// The addresses of a caller's paths. `EINVAL` for a bad number of them, or another port than
/// `port`. Sleeps. Its room on the stack is this function's alone.
#[inline(never)]
pub(crate) fn of_paths(given: &AddressPairs<'_>, port: u16) -> Result<KVec<PathAddress>> {
    let count = given.count();
    if count == 0 || count > MAX_PATHS_NUM {
        return Err(EINVAL);
    }
    let mut addresses = KVec::with_capacity(count, GFP_KERNEL)?;
    for index in 0..count {
        let (source, destination) = given.read(index)?;
        let destination = destination?;
        if destination.port() != Some(port) {
            pr_err!(
                "rtrs_clt_open: a path leads to port {}, but the session is on port {}\n",
                destination.port().map_or(0, u32::from),
                port
            );
            return Err(EINVAL);
        }
        let src = source
            .transpose()?
            .map(|source| from_socket(&source))
            .transpose()?;
        let dst = from_socket(&destination)?;
        addresses.push(PathAddress { src, dst }, GFP_KERNEL)?;
    }
    Ok(addresses)
}
