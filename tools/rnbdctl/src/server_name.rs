// SPDX-License-Identifier: GPL-2.0

//! Servers and remote disks as users name them: `storage1`, `192.0.2.10`, `storage1:nvme0n1`.

use std::fmt;

use proto::addr::Address;
use proto::addr::PathAddress;

use crate::address;

/// The longest host name in bytes (RFC 1035).
const MAX_NAME: usize = 253;

/// The longest label of a host name in bytes.
const MAX_LABEL: usize = 63;

/// A server, and perhaps the address of this machine from which it is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    /// This machine's address; `None` if the kernel shall choose it.
    pub src: Option<Address>,
    /// The server.
    pub host: Host,
}

/// The name of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(Address),
    /// A host name, in small letters, which has to be looked up and may have several addresses.
    Name(String),
}

impl ServerName {
    /// The server `[SOURCE@]HOST`, where HOST is an address or a host name. The error is in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (src, host) = match text.split_once([',', '@']) {
            Some((src, host)) => (Some(address::parse(src)?), host),
            None => (None, text),
        };
        let host = host_of(host)?;
        Ok(Self { src, host })
    }

    /// The path to this server, if it is given by its address.
    pub fn path(&self) -> Option<PathAddress> {
        match self.host {
            Host::Address(dst) => Some(PathAddress { src: self.src, dst }),
            Host::Name(_) => None,
        }
    }
}

impl From<PathAddress> for ServerName {
    fn from(path: PathAddress) -> Self {
        Self {
            src: path.src,
            host: Host::Address(path.dst),
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(src) = &self.src {
            write!(f, "{}@", address::text(src))?;
        }
        write!(f, "{}", self.host)
    }
}

/// As the user would write it: an IP address without `ip:`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => {
                let text = address::text(address);
                f.write_str(text.strip_prefix("ip:").unwrap_or(&text))
            }
        }
    }
}

fn host_of(text: &str) -> Result<Host, String> {
    let error = match address::parse(text) {
        Ok(address) => return Ok(Host::Address(address)),
        Err(error) => error,
    };
    if is_host_name(text) {
        return Ok(Host::Name(text.to_ascii_lowercase()));
    }
    // For a text that was meant as an address, the error says what is wrong with it.
    let is_address = text.starts_with("ip:")
        || text.starts_with("gid:")
        || text.contains([':', '%', '['])
        || text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match is_address && !text.is_empty() {
        true => Err(error),
        false => Err(format!("{text:?} is neither an address nor a host name")),
    }
}

/// Whether the text is a host name: labels of letters, digits, `-` and `_` between dots. The last
/// label is not a number: an incomplete address, such as 10.0.2, would be looked up as another
/// address (10.0.0.2).
fn is_host_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_NAME
        && text.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// A disk of a server, `[SERVER:]DISK`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskName {
    /// The server; `None` if the text does not say.
    pub server: Option<ServerName>,
    /// The path of the disk at the server.
    pub disk: String,
}

impl DiskName {
    /// Parses the name of a disk. An IPv6 address, a GID, and a source with such an address stand
    /// in brackets. A text with a slash before its first colon is only the path of a disk. The
    /// error is in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((server, disk)) = split_server(text)? else {
            return Ok(Self {
                server: None,
                disk: text.to_owned(),
            });
        };
        let before = text.rsplit_once(':').map_or("", |(before, _)| before);
        if disk.starts_with(':') || before.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(format!("{text:?}: write the IPv6 address in brackets"));
        }
        if disk.is_empty() {
            return Err(format!("{text:?} names a server, but no disk"));
        }
        Ok(Self {
            server: Some(ServerName::parse(&server)?),
            disk: disk.to_owned(),
        })
    }
}

/// The server without its brackets, and the disk; `None` if there is no server.
fn split_server(text: &str) -> Result<Option<(String, &str)>, String> {
    let mut server = String::new();
    let mut rest = text;
    loop {
        if let Some(inner) = rest.strip_prefix('[') {
            let (address, behind) = inner
                .split_once(']')
                .ok_or_else(|| format!("{text:?} has a bracket that is not closed"))?;
            server.push_str(address);
            rest = behind;
        }
        let Some(end) = rest.find([':', '@', ',', '/']) else {
            return Ok(None);
        };
        let (before, behind) = rest.split_at(end);
        server.push_str(before);
        let mut behind = behind.chars();
        match behind.next() {
            Some(':') => return Ok(Some((server, behind.as_str()))),
            Some('/') | None => return Ok(None),
            Some(_) => server.push('@'),
        }
        rest = behind.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_as_users_write_them() {
        for (given, shown) in [
            ("storage1", "storage1"),
            ("Storage1.Example.COM", "storage1.example.com"),
            ("10.0.0.2", "10.0.0.2"),
            ("ip:10.0.0.2", "10.0.0.2"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("gid:fe80::1", "gid:fe80:0000:0000:0000:0000:0000:0000:0001"),
            ("10.0.0.1@storage1", "ip:10.0.0.1@storage1"),
            ("10.0.0.1,10.0.0.2", "ip:10.0.0.1@10.0.0.2"),
            ("a_b-c", "a_b-c"),
            ("7up", "7up"),
        ] {
            let parsed = ServerName::parse(given);
            assert_eq!(parsed.map(|name| name.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn what_is_no_server_says_why() {
        for (given, why) in [
            ("", "\"\" is neither an address nor a host name"),
            ("a b", "\"a b\" is neither an address nor a host name"),
            ("a..b", "\"a..b\" is neither an address nor a host name"),
            ("-a", "\"-a\" is neither an address nor a host name"),
            ("10.0.2", "\"ip:10.0.2\" is not an IPv4 or IPv6 address"),
            (
                "167772162",
                "\"ip:167772162\" is not an IPv4 or IPv6 address",
            ),
            (
                "10.0.0.256",
                "\"ip:10.0.0.256\" is not an IPv4 or IPv6 address",
            ),
            ("::x", "\"ip:::x\" is not an IPv4 or IPv6 address"),
            ("gid:5", "\"gid:5\" is not a GID"),
            (
                "1::1%eth0",
                "\"ip:1::1%eth0\" has a bad interface: %NAME goes behind a link-local address only",
            ),
            ("x@10.0.0.2", "\"ip:x\" is not an IPv4 or IPv6 address"),
        ] {
            assert_eq!(ServerName::parse(given), Err(why.to_owned()), "{given:?}");
        }
        let long = format!("{}.{}", "a".repeat(63), "b".repeat(200));
        assert!(ServerName::parse(&long).is_err());
    }

    #[test]
    fn disks_with_and_without_their_server() {
        for (given, server, disk) in [
            ("storage1:nvme0n1", Some("storage1"), "nvme0n1"),
            ("storage1:/dev/vg/a", Some("storage1"), "/dev/vg/a"),
            ("10.0.0.2:sda", Some("10.0.0.2"), "sda"),
            ("[fe80::1%eth0]:sda", Some("fe80::1%eth0"), "sda"),
            ("[10.0.0.2]:a:b", Some("10.0.0.2"), "a:b"),
            ("10.0.0.1@storage1:sda", Some("ip:10.0.0.1@storage1"), "sda"),
            ("[fe80::2]@[fe80::1]:sda", Some("ip:fe80::2@fe80::1"), "sda"),
            (
                "[gid:fe80::1]:sda",
                Some("gid:fe80:0000:0000:0000:0000:0000:0000:0001"),
                "sda",
            ),
            ("nvme0n1", None, "nvme0n1"),
            ("/dev/nvme0n1", None, "/dev/nvme0n1"),
            ("vg/a:b", None, "vg/a:b"),
            (
                "/dev/disk/by-path/pci-0000:00:1f.2",
                None,
                "/dev/disk/by-path/pci-0000:00:1f.2",
            ),
            ("a@b", None, "a@b"),
        ] {
            let parsed = DiskName::parse(given).unwrap();
            let shown = parsed.server.map(|server| server.to_string());
            assert_eq!(shown.as_deref(), server, "{given}");
            assert_eq!(parsed.disk, disk, "{given}");
        }
        for given in [
            "storage1:",
            ":sda",
            "[::1:sda",
            "fe80::1:sda",
            "2001:db8:0:0:0:0:0:1:sda",
            "a b:sda",
        ] {
            assert!(DiskName::parse(given).is_err(), "{given}");
        }
    }
}
