// SPDX-License-Identifier: GPL-2.0

//! Addresses as text.

use proto::{
    addr::{
        AddrErrorKind,
        Address,
        PathAddress,
        Scope, //
    },
    Errno, //
};

#[track_caller]
fn address(text: &str) -> Address {
    match Address::parse(text.as_bytes()) {
        Ok(address) => address,
        Err(error) => panic!("{text}: {error}"),
    }
}

// The texts are those of the kernel's %pI4, %pI6c and %pI6.
#[test]
fn addresses_are_shown_as_c_shows_them() {
    let cases = [
        ("ip:192.168.122.1", "ip:192.168.122.1"),
        ("ip:0.0.0.0", "ip:0.0.0.0"),
        ("ip:::", "ip:::"),
        ("ip:::1", "ip:::1"),
        ("ip:1::", "ip:1::"),
        ("ip:FE80::200:5AEE:feaa:20a2", "ip:fe80::200:5aee:feaa:20a2"),
        ("ip:1:2:3:4:5:6:7:8", "ip:1:2:3:4:5:6:7:8"),
        ("ip:0001:0020:0300:4000:5:6:7:8", "ip:1:20:300:4000:5:6:7:8"),
        // A single zero is not shortened.
        ("ip:1:0:3:4:5:6:7:8", "ip:1:0:3:4:5:6:7:8"),
        // The longest run is shortened; of two equally long runs the first.
        ("ip:1:0:0:4:0:0:0:8", "ip:1:0:0:4::8"),
        ("ip:1:0:0:4:5:0:0:8", "ip:1::4:5:0:0:8"),
        ("ip:0:0:3:4:5:6:0:0", "ip:::3:4:5:6:0:0"),
        ("ip:1:2:3:4:5:6:0:0", "ip:1:2:3:4:5:6::"),
        ("ip:::ffff:10.0.0.1", "ip:::ffff:10.0.0.1"),
        ("ip:::ffff:a00:1", "ip:::ffff:10.0.0.1"),
        // This address is not mapped, so it is not shown so, however it was written.
        ("ip:::10.0.0.1", "ip:::a00:1"),
        // ISATAP.
        ("ip:fe80::5efe:10.0.0.1", "ip:fe80::5efe:10.0.0.1"),
        ("ip:fe80::200:5efe:a00:1", "ip:fe80::200:5efe:10.0.0.1"),
        ("gid:fe80::1", "gid:fe80:0000:0000:0000:0000:0000:0000:0001"),
        (
            "gid:fe80:0000:0000:0000:0002:c903:0045:e3c1",
            "gid:fe80:0000:0000:0000:0002:c903:0045:e3c1",
        ),
    ];
    for (text, shown) in cases {
        assert_eq!(address(text).to_text().as_str(), shown, "{text}");
    }
}

#[test]
fn addresses_are_in_network_order() {
    assert_eq!(address("ip:1.2.3.4"), Address::V4([1, 2, 3, 4]));
    let Address::Gid(gid) = address("gid:102::f") else {
        panic!("not a GID");
    };
    assert_eq!(gid, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15]);
}

#[test]
fn octets_are_decimal_with_zeroes_in_front_too() {
    for (text, octets) in [
        ("ip:192.168.001.010", [192, 168, 1, 10]),
        ("ip:008.00.000.0255", [8, 0, 0, 255]),
        ("ip:0000000001.2.3.4", [1, 2, 3, 4]),
    ] {
        assert_eq!(address(text), Address::V4(octets), "{text}");
    }
}

#[test]
fn link_local_addresses_can_name_an_interface() {
    let Address::V6 { addr, scope } = address("ip:fe80::1%eth0") else {
        panic!("not IPv6");
    };
    assert_eq!((addr[0], addr[1], addr[15]), (0xfe, 0x80, 1));
    assert_eq!((scope.as_bytes(), scope.index()), (&b"eth0"[..], None));

    let Address::V6 { scope, .. } = address("ip:fe80::1%12") else {
        panic!("not IPv6");
    };
    assert_eq!(scope.index(), Some(12));

    let Address::V6 { scope, .. } = address("ip:fe80::1") else {
        panic!("not IPv6");
    };
    assert!(scope.is_none());
}

#[test]
fn an_interface_can_be_made_of_its_number() {
    assert!(Scope::of_index(0).is_none());
    for number in [1, 12, u32::MAX] {
        assert_eq!(Scope::of_index(number).index(), Some(number));
        assert_eq!(
            Scope::of_index(number).as_bytes(),
            number.to_string().as_bytes()
        );
    }
}

#[test]
fn the_interface_is_not_part_of_the_address() {
    let (a, b) = (address("ip:fe80::1%eth0"), address("ip:fe80::1%eth1"));
    assert_ne!(a, b);
    assert!(a.same_as(&b));
    assert_eq!(a.to_text().as_str(), "ip:fe80::1");
    assert!(!a.same_as(&address("gid:fe80::1")));
    assert!(!a.same_as(&address("ip:fe80::2%eth0")));
}

#[test]
fn bad_addresses_are_refused_with_the_errno_of_c() {
    use AddrErrorKind::*;
    let cases = [
        ("", UnknownFamily),
        ("1.2.3.4", UnknownFamily),
        ("IP:1.2.3.4", UnknownFamily),
        (" ip:1.2.3.4", UnknownFamily),
        ("tcp:1.2.3.4", UnknownFamily),
        ("ip:", BadIp),
        ("ip:1.2.3", BadIp),
        ("ip:1.2.3.4.5", BadIp),
        ("ip:1.2.3.256", BadIp),
        ("ip:1.2.3.0256", BadIp),
        ("ip:1.2.3.", BadIp),
        ("ip:.2.3.4", BadIp),
        ("ip:1..3.4", BadIp),
        ("ip:1.2.3.0x4", BadIp),
        // This text is longer than the longest that C takes.
        ("ip:00000000001.2.3.4", BadIp),
        ("ip:1.2.3.-4", BadIp),
        ("ip:1.2.3.4 ", BadIp),
        ("ip:1.2.3.4\n", BadIp),
        // C ignores what follows the colon.
        ("ip:1.2.3.4:1234", BadIp),
        ("ip:host", BadIp),
        ("ip:1:2:3:4:5:6:7", BadIp),
        ("ip:1:2:3:4:5:6:7:8:9", BadIp),
        ("ip:1::2::3", BadIp),
        ("ip:12345::", BadIp),
        ("ip:[::1]", BadIp),
        ("ip:\u{e9}::1", BadIp),
        ("ip:fe80::1%", BadScope),
        ("ip:fe80::1%a_name_too_long_", BadScope),
        ("ip:fe80::1%a b", BadScope),
        ("ip:::1%lo", BadScope),
        ("ip:1.2.3.4%eth0", BadIp),
        ("gid:", BadGid),
        ("gid:1.2.3.4", BadGid),
        ("gid:fe80::1%eth0", BadGid),
        ("gid:fe80", BadGid),
    ];
    for (text, reason) in cases {
        let error = Address::parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.reason, reason, "{text:?}");
        assert_eq!(error.text, text.as_bytes());
        let errno = match reason {
            UnknownFamily => Errno::EPROTONOSUPPORT,
            _ => Errno::EINVAL,
        };
        assert_eq!(error.errno(), errno, "{text:?}");
    }
    assert!(Address::parse(b"ip:\xff").is_err());
}

#[test]
fn paths_have_an_optional_source() {
    let (a, b) = (address("ip:1.1.1.1"), address("ip:1.1.1.2"));
    let cases = [
        ("ip:1.1.1.2", None, "ip:1.1.1.2"),
        ("ip:1.1.1.1@ip:1.1.1.2", Some(a), "ip:1.1.1.1@ip:1.1.1.2"),
        ("ip:1.1.1.1,ip:1.1.1.2", Some(a), "ip:1.1.1.1@ip:1.1.1.2"),
    ];
    for (text, src, shown) in cases {
        let path = PathAddress::parse(text.as_bytes()).unwrap();
        assert_eq!(path, PathAddress { src, dst: b }, "{text}");
        assert_eq!(path.to_text().as_str(), shown);
    }
}

#[test]
fn paths_are_the_same_if_both_ends_are() {
    let path = |text: &str| PathAddress::parse(text.as_bytes()).unwrap();
    let cases = [
        ("ip:1.1.1.2", "ip:1.1.1.2", true),
        ("ip:1.1.1.2", "ip:1.1.1.3", false),
        ("ip:1.1.1.1@ip:1.1.1.2", "ip:1.1.1.1,ip:1.1.1.2", true),
        ("ip:1.1.1.1@ip:1.1.1.2", "ip:1.1.1.3@ip:1.1.1.2", false),
        ("ip:1.1.1.1@ip:1.1.1.2", "ip:1.1.1.1@ip:1.1.1.3", false),
        ("ip:1.1.1.1@ip:1.1.1.2", "ip:1.1.1.2", false),
        ("ip:fe80::1%a@ip:fe80::2%a", "ip:fe80::1%b@ip:fe80::2", true),
        ("ip:fe80::1", "gid:fe80::1", false),
    ];
    for (a, b, same) in cases {
        assert_eq!(path(a).same_as(&path(b)), same, "{a} {b}");
        assert_eq!(path(b).same_as(&path(a)), same, "{b} {a}");
    }
}

#[test]
fn the_longest_path_fits_its_text() {
    let gid = "gid:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let text = format!("{gid}@{gid}");
    let path = PathAddress::parse(text.as_bytes()).unwrap();
    assert_eq!(path.to_text().as_str(), text);
    assert!(!path.to_text().is_cut());
}

#[test]
fn bad_paths_say_which_end_is_bad() {
    let cases = [
        ("@ip:1.1.1.2", "\"\" is not a source address", Errno::EINVAL),
        (
            "1.1.1.1@ip:1.1.1.2",
            "\"1.1.1.1\" is not a source address",
            Errno::EINVAL,
        ),
        (
            "ip:1.1.1.1@",
            "\"\" does not start with ip: or gid:",
            Errno::EPROTONOSUPPORT,
        ),
        (
            "ip:1.1.1.1@1.1.1.2",
            "\"1.1.1.2\" does not start with ip: or gid:",
            Errno::EPROTONOSUPPORT,
        ),
        (
            "ip:1.1.1.1@ip:1.1.1.2@ip:1.1.1.3",
            "\"ip:1.1.1.2@ip:1.1.1.3\" is not an IPv4 or IPv6 address",
            Errno::EINVAL,
        ),
        (
            "ip:1.1.1.1@ip:1.1.1.2,ip:1.1.1.3",
            "\"ip:1.1.1.1@ip:1.1.1.2\" is not a source address",
            Errno::EINVAL,
        ),
        (
            "gid:x\u{1b}[2J",
            "\"gid:x\\x1b[2J\" is not a GID",
            Errno::EINVAL,
        ),
    ];
    for (text, message, errno) in cases {
        let error = PathAddress::parse(text.as_bytes()).expect_err(text);
        assert_eq!(error.message().as_str(), message, "{text}");
        assert_eq!(error.errno(), errno, "{text}");
    }
}
