// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_socket_address)]
mod tests {
    use super::*;
    use crate::net::{
        socket_address::{
            HostAddress,
            SocketAddress, //
        },
        Namespace, //
    };

    /// `fe80::1`, a link-local address.
    const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    #[test]
    fn a_callers_address_is_read() -> Result {
        for address in [
            SocketAddress::v4([192, 168, 1, 2], 1234),
            SocketAddress::v6(LINK_LOCAL, 1234),
            SocketAddress::ib(LINK_LOCAL, 0x13f_0000 | 1234),
        ] {
            // SAFETY: The pointer is that of a `struct sockaddr_storage`.
            let read = unsafe { SocketAddress::from_sockaddr(address.as_bytes().as_ptr()) }?;
            assert!(read.same_host(&address));
            assert_eq!(read.port(), Some(1234));
            assert_eq!(read.interface(), 0);
        }
        let unknown = [0u8; 128];
        // SAFETY: The bytes begin with a family, which has no address.
        let read = unsafe { SocketAddress::from_sockaddr(unknown.as_ptr()) };
        assert_eq!(read.err(), Some(EAFNOSUPPORT));
        Ok(())
    }

    #[test]
    fn what_was_put_in_comes_back() {
        let v4 = SocketAddress::v4([192, 168, 1, 2], 1234);
        assert!(v4.host() == Some(HostAddress::V4([192, 168, 1, 2])));
        let v6 = SocketAddress::v6(LINK_LOCAL, 1234);
        assert!(v6.host() == Some(HostAddress::V6(LINK_LOCAL)));
        let gid = SocketAddress::ib(LINK_LOCAL, 1234);
        assert!(gid.host() == Some(HostAddress::Gid(LINK_LOCAL)));
    }

    #[test]
    fn the_layout_is_that_of_c() {
        let address = SocketAddress::v4([192, 168, 1, 2], 0x1234);
        // SAFETY: A `SocketAddress` has more than 8 bytes.
        let bytes: [u8; 8] = unsafe { address.as_raw().cast::<[u8; 8]>().read() };
        assert_eq!(bytes, [2, 0, 0x12, 0x34, 192, 168, 1, 2]);
    }

    #[test]
    fn an_interface_is_looked_up() -> Result {
        let at = |interface| SocketAddress::v6_at(Namespace::init(), LINK_LOCAL, interface, 1);
        // The loopback device has number 1 on every machine.
        let named = at(b"lo")?;
        let numbered = at(b"1")?;
        // SAFETY: A `SocketAddress` has more than 28 bytes. An IPv6 address has its scope in the
        // last word of these.
        let scope = |of: &SocketAddress| unsafe { of.as_raw().cast::<[u32; 7]>().read()[6] };
        assert_eq!(scope(&named), 1);
        assert_eq!(scope(&numbered), 1);
        assert!(named.same_host(&SocketAddress::v6(LINK_LOCAL, 2)));
        assert_eq!(at(b"nonesuch").err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn ports_make_no_other_host() {
        let address = SocketAddress::v4([10, 0, 0, 1], 1);
        assert!(address.same_host(&SocketAddress::v4([10, 0, 0, 1], 2)));
        assert!(!address.same_host(&SocketAddress::v4([10, 0, 0, 2], 1)));
        let mapped = HostAddress::V4([10, 0, 0, 1]).to_gid();
        assert!(!address.same_host(&SocketAddress::v6(mapped, 1)));
        let gid = SocketAddress::ib(LINK_LOCAL, 1);
        assert!(!SocketAddress::v6(LINK_LOCAL, 1).same_host(&gid));
    }
}
