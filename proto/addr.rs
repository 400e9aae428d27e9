// SPDX-License-Identifier: GPL-2.0

//! Addresses of paths as text: `ip:` and an IPv4 or IPv6 address, or `gid:` and
//! an InfiniBand GID; a path is `[source@]destination`, with `,` for `@` on
//! input only.

use core::{
    fmt,
    net::{
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

use crate::{
    text::{
        impl_message,
        write_untrusted,
        Text, //
    },
    Errno, //
};

/// The service id of a port on an InfiniBand GID is this plus the port
/// (`RDMA_IB_IP_PS_IB`).
pub const IB_SERVICE_ID_PREFIX: u64 = 0x0000_0000_013f_0000;

/// The buffer size for the text of the longest path: two GIDs.
pub const PATH_TEXT_LEN: usize = 96;

/// The interface of a link-local address: its name or its number, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    name: [u8; Self::MAX_LEN],
    len: u8,
}

impl Scope {
    /// The most bytes, as of an interface's name (`IFNAMSIZ - 1`).
    pub const MAX_LEN: usize = 15;

    /// No scope.
    pub const NONE: Self = Self {
        name: [0; Self::MAX_LEN],
        len: 0,
    };

    /// Whether there is none.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// The name, empty if there is none.
    pub fn as_bytes(&self) -> &[u8] {
        self.name.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// The number, if that is what was written. An interface of that very name
    /// comes first.
    pub fn index(&self) -> Option<u32> {
        core::str::from_utf8(self.as_bytes()).ok()?.parse().ok()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is wrong with an address; with the text it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrError<'a> {
    /// The address.
    pub text: &'a [u8],
    /// The reason.
    pub reason: AddrErrorKind,
}

/// See [`AddrError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrErrorKind {
    /// It starts with neither `ip:` nor `gid:`.
    UnknownFamily,
    /// What follows `ip:` is no IPv4 or IPv6 address.
    BadIp,
    /// What follows `gid:` is no GID.
    BadGid,
    /// What follows `%` is no interface, or the address is not link-local.
    BadScope,
    /// The source is wrong in one of these ways, or missing.
    BadSource,
}

impl AddrError<'_> {
    /// What the C modules return.
    pub const fn errno(&self) -> Errno {
        match self.reason {
            AddrErrorKind::UnknownFamily => Errno::EPROTONOSUPPORT,
            _ => Errno::EINVAL,
        }
    }

    /// Writes what was wrong.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_str("\"")?;
        write_untrusted(out, self.text)?;
        out.write_str(match self.reason {
            AddrErrorKind::UnknownFamily => "\" does not start with ip: or gid:",
            AddrErrorKind::BadIp => "\" is not an IPv4 or IPv6 address",
            AddrErrorKind::BadGid => "\" is not a GID",
            AddrErrorKind::BadScope => "\" has a bad interface",
            AddrErrorKind::BadSource => "\" is not a source address",
        })
    }
}

impl_message!(AddrError<'a>);

impl Address {
    /// The address that `text` says, with its prefix and nothing around it.
    pub fn parse(text: &[u8]) -> Result<Self, AddrError<'_>> {
        let fail = |reason| Err(AddrError { text, reason });
        if let Some(gid) = text.strip_prefix(b"gid:") {
            return match parse_as::<Ipv6Addr>(gid) {
                Some(gid) => Ok(Self::Gid(gid.octets())),
                None => fail(AddrErrorKind::BadGid),
            };
        }
        let Some(ip) = text.strip_prefix(b"ip:") else {
            return fail(AddrErrorKind::UnknownFamily);
        };
        if let Some(addr) = parse_v4(ip) {
            return Ok(Self::V4(addr));
        }
        let (addr, scope) = match split_at_byte(ip, b'%') {
            Some((addr, scope)) => (addr, Some(scope)),
            None => (ip, None),
        };
        let Some(addr) = parse_as::<Ipv6Addr>(addr) else {
            return fail(AddrErrorKind::BadIp);
        };
        let scope = match scope {
            None => Scope::NONE,
            Some(scope) => match Scope::new(scope) {
                Some(scope) if addr.is_unicast_link_local() => scope,
                _ => return fail(AddrErrorKind::BadScope),
            },
        };
        Ok(Self::V6 {
            addr: addr.octets(),
            scope,
        })
    }

    /// Whether both are the same address, wherever its scope (C: `sockaddr_cmp`).
    pub fn same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4(a), Self::V4(b)) => a == b,
            (Self::V6 { addr: a, .. }, Self::V6 { addr: b, .. }) => a == b,
            (Self::Gid(a), Self::Gid(b)) => a == b,
            _ => false,
        }
    }

    /// The GID of the address on RoCE: an IPv4 address as an IPv6 one.
    pub fn to_gid(&self) -> [u8; 16] {
        match self {
            Self::V4(addr) => Ipv4Addr::from(*addr).to_ipv6_mapped().octets(),
            Self::V6 { addr, .. } | Self::Gid(addr) => *addr,
        }
    }

    /// Writes the address exactly as the C modules show it (C:
    /// `sockaddr_to_str`): without scope, a GID in full.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::V4(addr) => {
                out.write_str("ip:")?;
                write_v4(out, addr)
            }
            Self::V6 { addr, .. } => {
                out.write_str("ip:")?;
                write_v6_compressed(out, addr)
            }
            Self::Gid(gid) => {
                out.write_str("gid:")?;
                for (i, word) in words(gid).into_iter().enumerate() {
                    let colon = if i == 0 { "" } else { ":" };
                    write!(out, "{colon}{word:04x}")?;
                }
                Ok(())
            }
        }
    }

    /// The address as text, as [`Self::write_to`] writes it.
    pub fn to_text(&self) -> Text<PATH_TEXT_LEN> {
        Text::from_fn(|out| self.write_to(out))
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
    /// The path that `text` says: `[source@]destination` or
    /// `[source,]destination`, with nothing around it (C:
    /// `rtrs_addr_to_sockaddr`).
    pub fn parse(text: &[u8]) -> Result<Self, AddrError<'_>> {
        // As in C, an '@' counts only where there is no comma.
        let pair = split_at_byte(text, b',').or_else(|| split_at_byte(text, b'@'));
        let Some((src, dst)) = pair else {
            return Ok(Self {
                src: None,
                dst: Address::parse(text)?,
            });
        };
        let src = Address::parse(src).map_err(|error| AddrError {
            text: error.text,
            reason: AddrErrorKind::BadSource,
        })?;
        Ok(Self {
            src: Some(src),
            dst: Address::parse(dst)?,
        })
    }

    /// Whether both have the same ends, wherever their scopes. A path without a source is another
    /// one than a path with one.
    pub fn same_as(&self, other: &Self) -> bool {
        self.dst.same_as(&other.dst)
            && match (&self.src, &other.src) {
                (Some(a), Some(b)) => a.same_as(b),
                (None, None) => true,
                _ => false,
            }
    }

    /// Writes the path as the C modules name its sysfs directory (C:
    /// `rtrs_addr_to_str`): `source@destination`.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        if let Some(src) = &self.src {
            src.write_to(out)?;
            out.write_str("@")?;
        }
        self.dst.write_to(out)
    }

    /// The path as text, as [`Self::write_to`] writes it.
    pub fn to_text(&self) -> Text<PATH_TEXT_LEN> {
        Text::from_fn(|out| self.write_to(out))
    }
}

/// What is before and behind the first `byte`.
fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

/// The IPv4 address that `text` says. Octets are decimal also with zeroes in front, which some take
/// for octal (C: `inet4_pton`).
fn parse_v4(text: &[u8]) -> Option<[u8; 4]> {
    /// `INET_ADDRSTRLEN`
    const MAX_LEN: usize = 16;
    if text.len() > MAX_LEN {
        return None;
    }
    let mut octets = text.split(|&byte| byte == b'.');
    let mut addr = [0; 4];
    for octet in &mut addr {
        *octet = parse_octet(octets.next()?)?;
    }
    octets.next().is_none().then_some(addr)
}

fn parse_octet(digits: &[u8]) -> Option<u8> {
    let (first, rest) = digits.split_first()?;
    rest.iter().try_fold(digit(*first)?, |octet, &next| {
        octet.checked_mul(10)?.checked_add(digit(next)?)
    })
}

fn digit(byte: u8) -> Option<u8> {
    byte.checked_sub(b'0').filter(|&digit| digit <= 9)
}

fn parse_as<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn words(addr: &[u8; 16]) -> [u16; 8] {
    Ipv6Addr::from(*addr).segments()
}

fn write_v4(out: &mut impl fmt::Write, addr: &[u8; 4]) -> fmt::Result {
    let [a, b, c, d] = addr;
    write!(out, "{a}.{b}.{c}.{d}")
}

/// As the kernel's `%pI6c`: the first of the longest runs of two or more zero
/// words is `::`; addresses that embed an IPv4 one (mapped, ISATAP) end in it.
fn write_v6_compressed(out: &mut impl fmt::Write, addr: &[u8; 16]) -> fmt::Result {
    let words = words(addr);
    let [w0, w1, w2, w3, w4, w5, ..] = words;
    let is_mapped = [w0, w1, w2, w3, w4] == [0; 5] && w5 == 0xffff;
    // The universal/local bit does not matter.
    let is_isatap = w4 | 0x0200 == 0x0200 && w5 == 0x5efe;
    let embeds_v4 = is_mapped || is_isatap;
    let range = words.get(..if embeds_v4 { 6 } else { 8 }).unwrap_or(&words);

    let zeros_from = |start: usize| {
        let rest = range.get(start..).unwrap_or(&[]);
        rest.iter().take_while(|&&word| word == 0).count()
    };
    let mut gap = (0, 1);
    for start in 0..range.len() {
        let len = zeros_from(start);
        if len > gap.1 {
            gap = (start, len);
        }
    }
    let (gap_start, gap_len) = gap;
    let gap_end = gap_start.saturating_add(gap_len);
    let has_gap = gap_len > 1;

    let mut need_colon = false;
    for (i, word) in range.iter().enumerate() {
        if has_gap && (gap_start..gap_end).contains(&i) {
            if i == gap_start {
                out.write_str("::")?;
                need_colon = false;
            }
            continue;
        }
        if need_colon {
            out.write_str(":")?;
        }
        write!(out, "{word:x}")?;
        need_colon = true;
    }
    if embeds_v4 {
        if need_colon {
            out.write_str(":")?;
        }
        if let Some(v4) = addr.last_chunk() {
            write_v4(out, v4)?;
        }
    }
    Ok(())
}
