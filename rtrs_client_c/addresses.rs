// SPDX-License-Identifier: GPL-2.0

//! Addresses as callers in C have them (`struct sockaddr`).

use core::net::Ipv6Addr;
use kernel_ext::{
    net::socket_address::SocketAddress,
    prelude::*, //
};
use proto::{
    addr::{
        Address,
        Scope,
        PATH_TEXT_LEN, //
    },
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
