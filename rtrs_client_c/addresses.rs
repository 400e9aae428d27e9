// SPDX-License-Identifier: GPL-2.0

//! Addresses in the form of callers in C (`struct sockaddr`).

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

/// The address in `given`. A link-local address gets its interface, too. `EAFNOSUPPORT` for another
/// family.
pub(crate) fn from_socket(given: &SocketAddress) -> Result<Address> {
    match address(given).ok_or(EAFNOSUPPORT)? {
        Address::V6 { addr, .. } if Ipv6Addr::from(addr).is_unicast_link_local() => {
            let scope = Scope::of_index(given.interface());
            Ok(Address::V6 { addr, scope })
        }
        address => Ok(address),
    }
}

/// The text of an address, in the form of the C modules.
pub(crate) fn text(given: Option<&SocketAddress>) -> Text<PATH_TEXT_LEN> {
    match given.and_then(address) {
        Some(address) => address.to_text(),
        None => Text::of(&"<invalid address family>"),
    }
}

/// The addresses of a caller's paths. `EINVAL` for a bad number of paths, or for another port than
/// `port`. Sleeps. Not inlined, so the stack that it takes is free again afterwards.
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
