// SPDX-License-Identifier: GPL-2.0

//! Which clients of a server may open which devices, and how: an extension, the
//! C server has nothing of it.
//!
//! A policy is text. An empty line and one that starts with `#` say nothing;
//! every other one is a rule:
//!
//! ```text
//! allow session=PATTERN client=ADDRESS[/PREFIX]|* device=PATTERN mode=ro|rw|migration[,..]
//! ```
//!
//! All four keys must be there, in any order. A client may do what one of the
//! rules allows, whichever; what none allows is refused. See
//! [`pattern`](crate::pattern) for patterns. The text is what is kept: nothing is
//! allocated here, and a rule is parsed each time it is looked at.
//!
//! The server gets a policy by writes of a page each to a file of sysfs, and
//! takes it as a whole: what is written starts with a line that says how much
//! follows; see [`Start`].

use core::fmt;

use crate::{
    addr::{
        AddrError,
        Address, //
    },
    name::SessName,
    pattern::{
        Pattern,
        PatternError, //
    },
    rnbd::AccessMode,
    text::{
        impl_message,
        write_untrusted, //
    },
    Errno, //
};

/// The most bytes of a policy.
pub const MAX_LEN: usize = 1 << 20;

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The name that the client gave its session.
    pub session: &'a SessName,
    /// Where it comes from; `None` if that cannot be relied on: only `client=*` is for it then.
    pub client: Option<Address>,
    /// The device's full path; see [`full_path`](crate::search_path::full_path).
    pub device: &'a [u8],
    /// How it shall be opened.
    pub mode: AccessMode,
}

/// What is wrong with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyError<'a> {
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub kind: PolicyErrorKind<'a>,
}

/// See [`PolicyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyErrorKind<'a> {
    /// A rule does not start with `allow`.
    NoRule(&'a [u8]),
    /// A word is not of the form `key=value`.
    NoKey(&'a [u8]),
    /// There is no such key.
    UnknownKey(&'a [u8]),
    /// A key is there twice.
    Doubled(&'static str),
    /// A key is not there.
    Missing(&'static str),
    /// A pattern is wrong; with its key.
    BadPattern(&'static str, &'a [u8], PatternError),
    /// The device's pattern fits no path that a device can have.
    BadDevice(&'a [u8], &'static str),
    /// The client's address is wrong.
    BadAddress(AddrError<'a>),
    /// What follows the slash is not a length of a prefix of such an address.
    BadPrefix(&'a [u8]),
    /// The address has bits behind its prefix.
    HostBits(&'a [u8]),
    /// The address has an interface, which says nothing about a client.
    Interface(&'a [u8]),
    /// There is no such access mode.
    BadMode(&'a [u8]),
    /// A byte that text does not have.
    BadByte(u8),
    /// The policy has this many bytes, more than [`MAX_LEN`].
    TooLong(usize),
}

impl PolicyError<'_> {
    /// `EFBIG` for a policy that is too long, else `EINVAL`.
    pub const fn errno(&self) -> Errno {
        match self.kind {
            PolicyErrorKind::TooLong(_) => Errno::EFBIG,
            _ => Errno::EINVAL,
        }
    }

    /// Writes the line and what is wrong with it.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        self.kind.write_to(out)
    }
}

impl PolicyErrorKind<'_> {
    /// Writes what is wrong.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::NoRule(word) => write_quoted(out, word, "is not \"allow\""),
            Self::NoKey(word) => write_quoted(out, word, "is not of the form key=value"),
            Self::UnknownKey(key) => {
                write_quoted(out, key, "is not one of session, client, device and mode")
            }
            Self::Doubled(key) => write!(out, "{key}= is there twice"),
            Self::Missing(key) => write!(out, "{key}= is missing"),
            Self::BadPattern(key, text, error) => {
                write!(out, "{key}=")?;
                write_quoted(out, text, error.as_str())
            }
            Self::BadDevice(text, reason) => {
                out.write_str("device=")?;
                write_quoted(out, text, reason)
            }
            Self::BadAddress(error) => {
                out.write_str("client=")?;
                error.write_to(out)
            }
            Self::BadPrefix(text) => {
                out.write_str("client=")?;
                write_quoted(out, text, "has no good length of a prefix")
            }
            Self::HostBits(text) => {
                out.write_str("client=")?;
                write_quoted(out, text, "has bits set behind its prefix")
            }
            Self::Interface(text) => {
                out.write_str("client=")?;
                write_quoted(out, text, "names an interface, which is not possible here")
            }
            Self::BadMode(text) => {
                out.write_str("mode=")?;
                write_quoted(out, text, "is not one of ro, rw and migration")
            }
            Self::BadByte(byte) => write!(out, "cannot contain '{}'", byte.escape_ascii()),
            Self::TooLong(len) => write!(
                out,
                "the policy is too long ({len} bytes, at most {MAX_LEN})"
            ),
        }
    }
}

impl_message!(PolicyError<'a>);

/// How a write to the server's file starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// `clear`: there shall be no policy.
    Clear,
    /// `policy BYTES`: a policy of so many bytes follows.
    Policy {
        /// The length of the policy.
        len: usize,
        /// The part of it that follows in the same write.
        text: &'a [u8],
    },
}

/// What is wrong with the start of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError<'a> {
    /// The first line is neither of the two.
    Unknown(&'a [u8]),
    /// A policy would have more bytes than [`MAX_LEN`].
    TooLong(&'a [u8]),
    /// More follows than was announced, so many bytes.
    Excess(usize),
}

impl<'a> Start<'a> {
    /// The word of [`Start::Policy`].
    pub const POLICY: &'static str = "policy";

    /// The start that `bytes` are.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StartError<'a>> {
        let newline = bytes.iter().position(|&byte| byte == b'\n');
        let (line, rest) = match newline.and_then(|at| bytes.split_at_checked(at)) {
            Some((line, rest)) => (line, rest.get(1..)),
            None => (bytes, None),
        };
        let text = rest.unwrap_or(&[]);
        if line == b"clear" {
            return match text.len() {
                0 => Ok(Self::Clear),
                excess => Err(StartError::Excess(excess)),
            };
        }
        let digits = line
            .strip_prefix(Self::POLICY.as_bytes())
            .and_then(|rest| rest.strip_prefix(b" "))
            .filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
        let (Some(digits), Some(_)) = (digits, rest) else {
            return Err(StartError::Unknown(line));
        };
        let len = core::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .filter(|&len| len <= MAX_LEN)
            .ok_or(StartError::TooLong(digits))?;
        match text.len().saturating_sub(len) {
            0 => Ok(Self::Policy { len, text }),
            excess => Err(StartError::Excess(excess)),
        }
    }
}

impl StartError<'_> {
    /// `EFBIG` for what is too long, else `EINVAL`.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooLong(_) => Errno::EFBIG,
            _ => Errno::EINVAL,
        }
    }

    /// Writes what is wrong.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::Unknown(line) => {
                out.write_str("the first line is \"")?;
                write_untrusted(out, line)?;
                out.write_str("\", neither \"policy BYTES\" nor \"clear\"")
            }
            Self::TooLong(digits) => {
                out.write_str("the policy is too long (")?;
                write_untrusted(out, digits)?;
                write!(out, " bytes, at most {MAX_LEN})")
            }
            Self::Excess(bytes) => write!(out, "{bytes} bytes more than the first line says"),
        }
    }
}

impl_message!(StartError<'a>);

/// Writes what somebody wrote, and a reason.
fn write_quoted(out: &mut impl fmt::Write, text: &[u8], reason: &str) -> fmt::Result {
    out.write_str("\"")?;
    write_untrusted(out, text)?;
    write!(out, "\" {reason}")
}

/// Access modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes(u8);

impl Modes {
    fn with(self, mode: AccessMode) -> Self {
        Self(self.0 | Self::bit(mode))
    }

    fn contains(self, mode: AccessMode) -> bool {
        self.0 & Self::bit(mode) != 0
    }

    const fn bit(mode: AccessMode) -> u8 {
        match mode {
            AccessMode::Ro => 1,
            AccessMode::Rw => 2,
            AccessMode::Migration => 4,
        }
    }
}

/// Clients by where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Any,
    /// The first so many bits of the address are these.
    Prefix(Address, u32),
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule<'a> {
    session: Pattern<'a>,
    clients: Clients,
    device: Pattern<'a>,
    modes: Modes,
}

/// Checks a policy; returns the number of its rules.
pub fn check(text: &[u8]) -> Result<usize, PolicyError<'_>> {
    if text.len() > MAX_LEN {
        return Err(PolicyError {
            line: 1,
            kind: PolicyErrorKind::TooLong(text.len()),
        });
    }
    let mut rules = 0usize;
    for (index, line) in lines(text).enumerate() {
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(_)) => rules = rules.saturating_add(1),
            Err(kind) => {
                let line = index.saturating_add(1);
                return Err(PolicyError { line, kind });
            }
        }
    }
    Ok(rules)
}

/// Whether a policy allows what a client asks for. A line that is no rule allows
/// nothing.
pub fn allows(text: &[u8], query: &Query<'_>) -> bool {
    lines(text)
        .filter_map(|line| parse_line(line).ok().flatten())
        .any(|rule| rule.allows(query))
}

/// The lines of a policy, without the empty one behind the last newline.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|&byte| byte == b'\n')
}

/// The rule that a line says, if it says one.
fn parse_line(line: &[u8]) -> Result<Option<Rule<'_>>, PolicyErrorKind<'_>> {
    if let Some(&byte) = line
        .iter()
        .find(|&&byte| byte.is_ascii_control() && byte != b'\t')
    {
        return Err(PolicyErrorKind::BadByte(byte));
    }
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .filter(|word| !word.is_empty());
    match words.next() {
        None => return Ok(None),
        Some(word) if word.starts_with(b"#") => return Ok(None),
        Some(b"allow") => {}
        Some(word) => return Err(PolicyErrorKind::NoRule(word)),
    }
    let (mut session, mut clients, mut device, mut modes) = (None, None, None, None);
    for word in words {
        let (key, value) = word
            .iter()
            .position(|&byte| byte == b'=')
            .and_then(|at| Some((word.get(..at)?, word.get(at.saturating_add(1)..)?)))
            .ok_or(PolicyErrorKind::NoKey(word))?;
        match key {
            b"session" => set(&mut session, "session", parse_session(value)?)?,
            b"client" => set(&mut clients, "client", parse_clients(value)?)?,
            b"device" => set(&mut device, "device", parse_device(value)?)?,
            b"mode" => set(&mut modes, "mode", parse_modes(value)?)?,
            _ => return Err(PolicyErrorKind::UnknownKey(key)),
        }
    }
    Ok(Some(Rule {
        session: session.ok_or(PolicyErrorKind::Missing("session"))?,
        clients: clients.ok_or(PolicyErrorKind::Missing("client"))?,
        device: device.ok_or(PolicyErrorKind::Missing("device"))?,
        modes: modes.ok_or(PolicyErrorKind::Missing("mode"))?,
    }))
}

fn set<T>(
    place: &mut Option<T>,
    key: &'static str,
    value: T,
) -> Result<(), PolicyErrorKind<'static>> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(PolicyErrorKind::Doubled(key)),
    }
}

fn parse_session(value: &[u8]) -> Result<Pattern<'_>, PolicyErrorKind<'_>> {
    Pattern::parse(value).map_err(|error| PolicyErrorKind::BadPattern("session", value, error))
}

fn parse_device(value: &[u8]) -> Result<Pattern<'_>, PolicyErrorKind<'_>> {
    let pattern = Pattern::parse(value)
        .map_err(|error| PolicyErrorKind::BadPattern("device", value, error))?;
    // What follows is an oversight: such paths are never asked for.
    let has = |what: &[u8]| value.windows(what.len()).any(|part| part == what);
    if !value.starts_with(b"/") {
        return Err(PolicyErrorKind::BadDevice(value, "does not start with /"));
    }
    if has(b"..") {
        return Err(PolicyErrorKind::BadDevice(value, "contains \"..\""));
    }
    if has(b"//") {
        return Err(PolicyErrorKind::BadDevice(value, "contains \"//\""));
    }
    Ok(pattern)
}

fn parse_modes(value: &[u8]) -> Result<Modes, PolicyErrorKind<'_>> {
    value
        .split(|&byte| byte == b',')
        .try_fold(
            Modes::default(),
            |modes, name| match AccessMode::from_name(name) {
                Some(mode) => Ok(modes.with(mode)),
                None => Err(PolicyErrorKind::BadMode(name)),
            },
        )
}

fn parse_clients(value: &[u8]) -> Result<Clients, PolicyErrorKind<'_>> {
    if value == b"*" {
        return Ok(Clients::Any);
    }
    let slash = value.iter().position(|&byte| byte == b'/');
    let text = slash.and_then(|at| value.get(..at)).unwrap_or(value);
    let address = Address::parse(text).map_err(PolicyErrorKind::BadAddress)?;
    let (bits, most) = match &address {
        Address::V6 { scope, .. } if !scope.is_none() => {
            return Err(PolicyErrorKind::Interface(value));
        }
        Address::V4(addr) => (u128::from(u32::from_be_bytes(*addr)) << 96, 32),
        Address::V6 { addr, .. } | Address::Gid(addr) => (u128::from_be_bytes(*addr), 128),
    };
    let len = match slash.and_then(|at| value.get(at.saturating_add(1)..)) {
        None => most,
        Some(digits) => parse_len(digits)
            .filter(|&len| len <= most)
            .ok_or(PolicyErrorKind::BadPrefix(value))?,
    };
    if bits.checked_shl(len).unwrap_or(0) != 0 {
        return Err(PolicyErrorKind::HostBits(value));
    }
    Ok(match canonical(address) {
        // ::ffff:192.0.2.0/120 is 192.0.2.0/24.
        v4 @ Address::V4(_) if most == 128 && len >= 96 => {
            Clients::Prefix(v4, len.saturating_sub(96))
        }
        _ => Clients::Prefix(address, len),
    })
}

/// A number of one to three digits, and nothing else.
fn parse_len(digits: &[u8]) -> Option<u32> {
    let good = (1..=3).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    good.then(|| core::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The IPv4 address that an IPv6 one stands for, or the address itself.
fn canonical(address: Address) -> Address {
    match address {
        Address::V6 {
            addr: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            ..
        } => Address::V4([a, b, c, d]),
        _ => address,
    }
}

impl Clients {
    fn contains(&self, client: Option<Address>) -> bool {
        let (address, len) = match self {
            Self::Any => return true,
            Self::Prefix(address, len) => (address, *len),
        };
        let Some(client) = client else {
            return false;
        };
        let (differing, most) = match (address, canonical(client)) {
            (Address::V4(a), Address::V4(b)) => (
                u128::from(u32::from_be_bytes(*a) ^ u32::from_be_bytes(b)),
                32u32,
            ),
            (Address::V6 { addr: a, .. }, Address::V6 { addr: b, .. })
            | (Address::Gid(a), Address::Gid(b)) => {
                (u128::from_be_bytes(*a) ^ u128::from_be_bytes(b), 128)
            }
            _ => return false,
        };
        let rest = most.saturating_sub(len);
        differing.checked_shr(rest).unwrap_or(0) == 0
    }
}

impl Rule<'_> {
    fn allows(&self, query: &Query<'_>) -> bool {
        self.modes.contains(query.mode)
            && self.clients.contains(query.client)
            && self.session.matches(query.session.as_bytes())
            && self.device.matches(query.device)
    }
}
