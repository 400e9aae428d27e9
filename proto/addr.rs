// SPDX-License-Identifier: GPL-2.0

//! Addresses of paths as text: `ip:` and an IPv4 or IPv6 address, or `gid:` and an InfiniBand GID.
//! A path is `[source@]destination`; on input `,` may stand for `@`.

use core::{
    fmt,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

use crate::{
    number,
    text::{
        impl_error,
        split_once,
        Text,
        Untrusted, //
    },
    Errno, //
};

/// The service id of a port on an InfiniBand GID is the port plus this (C: `RDMA_IB_IP_PS_IB`).
pub const IB_SERVICE_ID_PREFIX: u64 = 0x0000_0000_013f_0000;

/// The buffer size for the text of the longest path: two GIDs.
pub const PATH_TEXT_LEN: usize = 96;

/// The interface of a link-local address: its name or its number, as written.
///
/// # Invariants
///
/// `len <= MAX_LEN`, `name[..len]` is printable ASCII without spaces, `name[len..]` is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    name: [u8; Self::MAX_LEN],
    len: u8,
}

impl Scope {
    /// The most bytes, as for the name of an interface (C: `IFNAMSIZ - 1`).
    pub const MAX_LEN: usize = 15;

    /// No scope.
    pub const NONE: Self = Self {
        name: [0; Self::MAX_LEN],
        len: 0,
    };

    /// Whether there is no scope.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// The name or number; empty without a scope.
    pub fn as_bytes(&self) -> &[u8] {
        self.name.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// The interface's number, if the scope is written as a number. An interface whose name is that
    /// number takes precedence.
    pub fn index(&self) -> Option<u32> {
        parse_as(self.as_bytes())
    }

    /// The interface of this number; no scope for 0.
    pub fn of_index(index: u32) -> Self {
        if index == 0 {
            return Self::NONE;
        }
        // At most ten digits.
        Self::new(Text::<{ Self::MAX_LEN }>::of(&index).as_str().as_bytes()).unwrap_or(Self::NONE)
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let mut name = [0; Self::MAX_LEN];
        name.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let printable = bytes.iter().all(u8::is_ascii_graphic);
        (len > 0 && printable).then_some(Self { name, len })
    }
}

/// One end of a path. Bytes are in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6 {
        /// The address.
        addr: [u8; 16],
        /// The interface of a link-local address, if one was given.
        scope: Scope,
    },
    /// InfiniBand.
    Gid([u8; 16]),
}

/// Why a text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrError<'a> {
    /// The text.
    pub text: &'a [u8],
    /// The reason.
    pub reason: AddrErrorKind,
}

/// The reason of an [`AddrError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrErrorKind {
    /// The text starts with neither `ip:` nor `gid:`.
    UnknownFamily,
    /// `ip:` is not followed by an IPv4 or IPv6 address.
    BadIp,
    /// `gid:` is not followed by a GID.
    BadGid,
    /// `%` is not followed by an interface, or the address is not link-local.
    BadScope,
    /// The source is wrong for a reason above, or is missing.
    BadSource,
}

impl AddrError<'_> {
    /// The error number that the C modules return.
    pub const fn errno(&self) -> Errno {
        match self.reason {
            AddrErrorKind::UnknownFamily => Errno::EPROTONOSUPPORT,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for AddrError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            AddrErrorKind::UnknownFamily => "does not start with ip: or gid:",
            AddrErrorKind::BadIp => "is not an IPv4 or IPv6 address",
            AddrErrorKind::BadGid => "is not a GID",
            AddrErrorKind::BadScope => {
                "has a bad interface: %NAME goes behind a link-local address only"
            }
            AddrErrorKind::BadSource => "is not a source address",
        };
        write!(f, "\"{}\" {reason}", Untrusted(self.text))
    }
}

impl_error!(AddrError<'a>);

impl Address {
    /// Parses an address with its prefix and nothing around it.
    pub fn parse(text: &[u8]) -> Result<Self, AddrError<'_>> {
        let fail = |reason| AddrError { text, reason };
        if let Some(gid) = text.strip_prefix(b"gid:") {
            let gid: Ipv6Addr = parse_as(gid).ok_or(fail(AddrErrorKind::BadGid))?;
            return Ok(Self::Gid(gid.octets()));
        }
        let ip = text.strip_prefix(b"ip:");
        let ip = ip.ok_or(fail(AddrErrorKind::UnknownFamily))?;
        if let Some(addr) = parse_v4(ip) {
            return Ok(Self::V4(addr));
        }
        let (addr, scope) = match split_once(ip, b'%') {
            Some((addr, scope)) => (addr, Some(scope)),
            None => (ip, None),
        };
        let addr: Ipv6Addr = parse_as(addr).ok_or(fail(AddrErrorKind::BadIp))?;
        let scope = match scope {
            None => Some(Scope::NONE),
            Some(scope) if addr.is_unicast_link_local() => Scope::new(scope),
            Some(_) => None,
        };
        Ok(Self::V6 {
            addr: addr.octets(),
            scope: scope.ok_or(fail(AddrErrorKind::BadScope))?,
        })
    }

    /// Whether both are the same address, whatever their scopes (C: `sockaddr_cmp`).
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V6 { addr: a, .. }, Self::V6 { addr: b, .. }) => a == b,
            _ => self == other,
        }
    }

    /// The GID of the address on RoCE: an IPv4 address as an IPv6 one.
    pub fn to_gid(&self) -> [u8; 16] {
        match self {
            Self::V4(addr) => Ipv4Addr::from(*addr).to_ipv6_mapped().octets(),
            Self::V6 { addr, .. } | Self::Gid(addr) => *addr,
        }
    }

    /// The address as text.
    pub fn to_text(&self) -> Text<PATH_TEXT_LEN> {
        Text::of(self)
    }
}

/// Displays the address exactly as the C modules show it (C: `sockaddr_to_str`): without scope, a
/// GID in full.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(addr) => write!(f, "ip:{}", Ipv4Addr::from(*addr)),
            Self::V6 { addr, .. } => {
                f.write_str("ip:")?;
                fmt_v6(f, Ipv6Addr::from(*addr))
            }
            Self::Gid(gid) => {
                f.write_str("gid")?;
                let mut words = Ipv6Addr::from(*gid).segments().into_iter();
                words.try_for_each(|word| write!(f, ":{word:04x}"))
            }
        }
    }
}

/// Both ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAddress {
    /// The source; `None` if the RDMA layer shall choose it.
    pub src: Option<Address>,
    /// The destination.
    pub dst: Address,
}

impl PathAddress {
    /// Parses a path: `[source@]destination` or `[source,]destination`, with nothing around it (C:
    /// `rtrs_addr_to_sockaddr`).
    pub fn parse(text: &[u8]) -> Result<Self, AddrError<'_>> {
        // As in C, an '@' counts only where there is no comma.
        let pair = split_once(text, b',').or_else(|| split_once(text, b'@'));
        let (src, dst) = match pair {
            Some((src, dst)) => (Some(src), dst),
            None => (None, text),
        };
        let src = src.map(Address::parse).transpose();
        Ok(Self {
            src: src.map_err(|error| AddrError {
                reason: AddrErrorKind::BadSource,
                ..error
            })?,
            dst: Address::parse(dst)?,
        })
    }

    /// Whether both paths have the same ends, whatever their scopes. A path without a source
    /// differs from each path with a source.
    pub fn same_as(&self, other: &Self) -> bool {
        self.dst.same_as(&other.dst)
            && match (&self.src, &other.src) {
                (Some(a), Some(b)) => a.same_as(b),
                (None, None) => true,
                _ => false,
            }
    }

    /// The path as text.
    pub fn to_text(&self) -> Text<PATH_TEXT_LEN> {
        Text::of(self)
    }
}

/// Displays the path as the C modules name its sysfs directory (C: `rtrs_addr_to_str`):
/// `source@destination`.
impl fmt::Display for PathAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(src) = &self.src {
            write!(f, "{src}@")?;
        }
        write!(f, "{}", self.dst)
    }
}

/// Parses an IPv4 address. Octets with a leading zero are decimal, as in C (`inet4_pton`); other
/// parsers take them for octal.
fn parse_v4(text: &[u8]) -> Option<[u8; 4]> {
    /// `INET_ADDRSTRLEN`
    const MAX_LEN: usize = 16;
    if text.len() > MAX_LEN {
        return None;
    }
    let mut octets = text.split(|&byte| byte == b'.').map(number::from_digits);
    let mut addr = [0; 4];
    for octet in &mut addr {
        *octet = octets.next()??;
    }
    octets.next().is_none().then_some(addr)
}

fn parse_as<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// Writes an address as the kernel's `%pI6c` does. That is as `Ipv6Addr` does, too, except that an
/// ISATAP address ends in the IPv4 address that it embeds. A mapped address ends so in both.
fn fmt_v6(f: &mut fmt::Formatter<'_>, addr: Ipv6Addr) -> fmt::Result {
    let [a, b, c, d, e, g, high, low] = addr.segments();
    // The universal/local bit does not matter.
    if e & !0x0200 != 0 || g != 0x5efe {
        return write!(f, "{addr}");
    }
    // `::` must not reach into the last two words, so other words than zeroes stand in for them.
    let prefix = Text::<PATH_TEXT_LEN>::of(&Ipv6Addr::new(a, b, c, d, e, g, 1, 1));
    let prefix = prefix.as_str().strip_suffix("1:1").unwrap_or("");
    let v4 = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    write!(f, "{prefix}{v4}")
}
