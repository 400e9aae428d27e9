// SPDX-License-Identifier: GPL-2.0

use kernel::prelude::*;

#[kunit_tests(rnbd_socket_address)]
mod tests {
    use super::*;
    use crate::net::socket_address::SocketAddress;
    use kernel::str::CString;
    use proto::addr::Address;

    fn parse(text: &str, port: u16) -> Result<SocketAddress> {
        let address = Address::parse(text.as_bytes()).map_err(|_| EPROTO)?;
        SocketAddress::new(&address, port)
    }

    #[test]
    fn text_and_port_come_back() -> Result {
        for text in [
            "ip:192.168.1.2",
            "ip:2001:db8::1",
            "ip:::ffff:10.0.0.1",
            "gid:fe80:0000:0000:0000:0002:c903:0000:0001",
        ] {
            let address = parse(text, 1234)?;
            let shown = CString::try_from_fmt(fmt!("{address}"))?;
            assert_eq!(shown.to_bytes(), text.as_bytes());
            assert_eq!(address.port(), 1234);
        }
        Ok(())
    }

    #[test]
    fn the_layout_is_that_of_c() -> Result {
        let address = parse("ip:192.168.1.2", 0x1234)?;
        // SAFETY: A `SocketAddress` is longer than that.
        let bytes: [u8; 8] = unsafe { address.as_raw().cast::<[u8; 8]>().read() };
        assert_eq!(bytes, [2, 0, 0x12, 0x34, 192, 168, 1, 2]);
        Ok(())
    }

    #[test]
    fn an_interface_is_looked_up() -> Result {
        // The loopback device is the first one everywhere.
        let named = parse("ip:fe80::1%lo", 1)?;
        let numbered = parse("ip:fe80::1%1", 1)?;
        // SAFETY: That is where an IPv6 address has its scope, within a `SocketAddress`.
        let scope = |of: &SocketAddress| unsafe { of.as_raw().cast::<[u32; 7]>().read()[6] };
        assert_eq!(scope(&named), 1);
        assert_eq!(scope(&numbered), 1);
        assert_eq!(parse("ip:fe80::1%nonesuch", 1).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn ports_make_no_other_address() -> Result {
        let address = parse("ip:10.0.0.1", 1)?;
        assert!(address.same_address(&parse("ip:10.0.0.1", 2)?));
        assert!(!address.same_address(&parse("ip:10.0.0.2", 1)?));
        assert!(!address.same_address(&parse("ip:::ffff:10.0.0.1", 1)?));
        assert!(!parse("ip:fe80::1", 1)?.same_address(&parse("gid:fe80::1", 1)?));
        Ok(())
    }

    #[test]
    fn listening_is_on_any_address() -> Result {
        assert_eq!(SocketAddress::any_ip(5)?.port(), 5);
        assert!(SocketAddress::any_ip(5)?.same_address(&parse("ip:::", 0)?));
        assert!(SocketAddress::any_ib(5)?.same_address(&parse("gid:::", 0)?));
        Ok(())
    }
}
