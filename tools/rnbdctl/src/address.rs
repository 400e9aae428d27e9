// SPDX-License-Identifier: GPL-2.0

//! Addresses and paths as users write and read them.

use proto::addr::Address;
use proto::addr::PathAddress;

/// Parses the path `[SOURCE@]ADDRESS`; the error is in words.
pub fn parse_path(text: &str) -> Result<PathAddress, String> {
    let (src, dst) = match text.split_once([',', '@']) {
        Some((src, dst)) => (Some(parse(src)?), dst),
        None => (None, text),
    };
    let dst = parse(dst)?;
    Ok(PathAddress { src, dst })
}

/// Parses an address. A text without `ip:` or `gid:` in front is an IP address; an IPv6 address may
/// be in brackets. The error is in words.
pub fn parse(text: &str) -> Result<Address, String> {
    let full = match text.starts_with("ip:") || text.starts_with("gid:") {
        true => text.to_owned(),
        false => format!("ip:{}", without_brackets(text)),
    };
    Address::parse(full.as_bytes()).map_err(|error| error.message().as_str().to_owned())
}

fn without_brackets(text: &str) -> &str {
    let inner = text.strip_prefix('[');
    inner
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text)
}

/// A path as the kernel and the configuration file take it.
pub fn path_text(path: &PathAddress) -> String {
    match &path.src {
        Some(src) => format!("{}@{}", text(src), text(&path.dst)),
        None => text(&path.dst),
    }
}

/// An address, with its interface if it has one. The names of paths in sysfs, and
/// [`Address::to_text`], leave the interface out.
pub fn text(address: &Address) -> String {
    let mut text = address.to_text().as_str().to_owned();
    if let Address::V6 { scope, .. } = address {
        if !scope.is_none() {
            text.push('%');
            text.push_str(&String::from_utf8_lossy(scope.as_bytes()));
        }
    }
    text
}

/// Whether the address needs an interface and has none.
pub fn lacks_interface(address: &Address) -> bool {
    match address {
        Address::V6 { addr, scope } => {
            std::net::Ipv6Addr::from(*addr).is_unicast_link_local() && scope.is_none()
        }
        Address::V4(_) | Address::Gid(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_as_users_write_them() {
        for (given, path) in [
            ("10.0.0.2", "ip:10.0.0.2"),
            ("ip:10.0.0.2", "ip:10.0.0.2"),
            ("10.0.0.1@ip:10.0.0.2", "ip:10.0.0.1@ip:10.0.0.2"),
            ("10.0.0.1,10.0.0.2", "ip:10.0.0.1@ip:10.0.0.2"),
            ("[2001:DB8::0:1]", "ip:2001:db8::1"),
            ("[fe80::1%eth0]@fe80::2%3", "ip:fe80::1%eth0@ip:fe80::2%3"),
            ("gid:fe80::1", "gid:fe80:0000:0000:0000:0000:0000:0000:0001"),
        ] {
            let parsed = parse_path(given).unwrap();
            assert_eq!(path_text(&parsed), path, "{given}");
            assert_eq!(parse_path(path), Ok(parsed), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_says_why() {
        for (given, why) in [
            ("", "\"ip:\" is not an IPv4 or IPv6 address"),
            ("bogus", "\"ip:bogus\" is not an IPv4 or IPv6 address"),
            ("gid:5", "\"gid:5\" is not a GID"),
            ("[::1", "\"ip:[::1\" is not an IPv4 or IPv6 address"),
            ("x@10.0.0.2", "\"ip:x\" is not an IPv4 or IPv6 address"),
            (
                "1::1%eth0",
                "\"ip:1::1%eth0\" has a bad interface: %NAME goes behind a link-local address only",
            ),
        ] {
            assert_eq!(parse_path(given), Err(why.to_owned()), "{given:?}");
        }
    }

    #[test]
    fn only_link_local_addresses_need_an_interface() {
        for (address, lacks) in [
            ("fe80::1", true),
            ("fe80::1%eth0", false),
            ("2001:db8::1", false),
            ("169.254.0.1", false),
            ("gid:fe80::1", false),
        ] {
            assert_eq!(
                lacks_interface(&parse(address).unwrap()),
                lacks,
                "{address}"
            );
        }
    }
}
