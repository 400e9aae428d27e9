// SPDX-License-Identifier: GPL-2.0

//! Which clients of a server may open which devices, and how. C has no such policy.
//!
//! A policy is text. Empty lines and lines that start with `#` are ignored; every other line is a
//! rule:
//!
//! ```text
//! allow session=PATTERN client=ADDRESS[/PREFIX]|* device=PATTERN mode=ro|rw|migration[,..]
//!       [client-id=PATTERN]
//! ```
//!
//! A rule is one line, and has the first four keys, in any order. A rule with `client-id` is only
//! for clients that have proved their identity; a rule without it is also for other clients. A
//! request is allowed if any rule allows it, else it is refused. See [`pattern`](crate::pattern)
//! for patterns. The server keeps the text: nothing is allocated here, and a rule is parsed for
//! each request.
//!
//! A policy is written to a file of sysfs, a page for each write, and takes effect as a whole. The
//! first line says how many bytes follow; see [`Start`].

use core::{
    fmt,
    mem::discriminant, //
};

use crate::{
    addr::{
        AddrError,
        Address, //
    },
    client_id::ClientId,
    name::SessName,
    number,
    pattern::{
        Pattern,
        PatternError, //
    },
    rnbd::AccessMode,
    text::{
        impl_error,
        split_once,
        Untrusted, //
    },
    Errno, //
};

/// The most bytes of a policy.
pub const MAX_LEN: usize = 1 << 20;

/// A client's session, on one of its paths.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The name that the client gave its session.
    pub session: &'a SessName,
    /// The client's id, if the client has proved its identity.
    pub client_id: Option<&'a ClientId>,
    /// The client's address; `None` if the address cannot be relied on. Then only rules with
    /// `client=*` apply.
    pub client: Option<Address>,
}

/// A client's request to open a device.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The session that asks.
    pub subject: Subject<'a>,
    /// The device's full path; see [`full_path`](crate::search_path::full_path).
    pub device: &'a [u8],
    /// The mode in which the device shall be opened.
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

/// The reason of a [`PolicyError`].
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
    /// The session's pattern is wrong.
    BadSession(&'a [u8], PatternError),
    /// The pattern of the client's id is wrong.
    BadClientId(&'a [u8], PatternError),
    /// The device's pattern is wrong, or fits no path that a device can have.
    BadDevice(&'a [u8], &'static str),
    /// The client's address is wrong.
    BadAddress(AddrError<'a>),
    /// The text behind the slash is not a valid prefix length for the address.
    BadPrefix(&'a [u8]),
    /// The address has bits behind its prefix.
    HostBits(&'a [u8]),
    /// The address has an interface, which says nothing about a client.
    Interface(&'a [u8]),
    /// There is no such access mode.
    BadMode(&'a [u8]),
    /// A line has a control character other than a tab.
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
}

impl fmt::Display for PolicyError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.kind)
    }
}

impl_error!(PolicyError<'a>);

impl fmt::Display for PolicyErrorKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut quoted =
            |before, text, reason| write!(f, "{before}\"{}\" {reason}", Untrusted(text));
        match *self {
            Self::NoRule(word) => quoted("", word, "is not \"allow\""),
            Self::NoKey(word) => quoted("", word, "is not of the form key=value"),
            Self::UnknownKey(key) => quoted(
                "",
                key,
                "is not one of session, client, client-id, device and mode",
            ),
            Self::BadSession(text, error) => quoted("session=", text, error.as_str()),
            Self::BadClientId(text, error) => quoted("client-id=", text, error.as_str()),
            Self::BadDevice(text, reason) => quoted("device=", text, reason),
            Self::BadPrefix(text) => quoted("client=", text, "has a bad prefix length"),
            Self::HostBits(text) => quoted("client=", text, "has bits set behind its prefix"),
            Self::Interface(text) => quoted(
                "client=",
                text,
                "names an interface: write the address without it",
            ),
            Self::BadMode(text) => quoted("mode=", text, "is not one of ro, rw and migration"),
            Self::BadAddress(error) => write!(f, "client={error}"),
            Self::Doubled(key) => write!(f, "{key}= is given twice"),
            Self::Missing(key) => write!(f, "{key}= is missing"),
            Self::BadByte(byte) => write!(f, "cannot contain '{}'", byte.escape_ascii()),
            Self::TooLong(len) => {
                write!(f, "the policy is too long ({len} bytes, at most {MAX_LEN})")
            }
        }
    }
}

/// How a write to the server's file starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// `clear`: there shall be no policy.
    Clear,
    /// `policy BYTES`: a policy of this many bytes follows.
    Policy {
        /// The length of the policy.
        len: usize,
        /// The part of the policy that is in the same write.
        text: &'a [u8],
    },
}

/// What is wrong with the start of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError<'a> {
    /// The first line is neither `clear` nor `policy BYTES`.
    Unknown(&'a [u8]),
    /// A policy would have more bytes than [`MAX_LEN`].
    TooLong(&'a [u8]),
    /// This many bytes more follow than the first line says.
    Excess(usize),
}

impl<'a> Start<'a> {
    /// The word of [`Start::Policy`].
    pub const POLICY: &'static str = "policy";

    /// Parses the start of a write.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StartError<'a>> {
        let (line, text) = match split_once(bytes, b'\n') {
            Some((line, text)) => (line, Some(text)),
            None => (bytes, None),
        };
        let (start, excess) = if line == b"clear" {
            (Self::Clear, text.map_or(0, <[u8]>::len))
        } else {
            let digits = line
                .strip_prefix(Self::POLICY.as_bytes())
                .and_then(|rest| rest.strip_prefix(b" "))
                .filter(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
            let (Some(digits), Some(text)) = (digits, text) else {
                return Err(StartError::Unknown(line));
            };
            let len = number::from_digits(digits)
                .filter(|&len| len <= MAX_LEN)
                .ok_or(StartError::TooLong(digits))?;
            (
                Self::Policy { len, text },
                text.get(len..).map_or(0, <[u8]>::len),
            )
        };
        match excess {
            0 => Ok(start),
            _ => Err(StartError::Excess(excess)),
        }
    }
}

impl StartError<'_> {
    /// `EFBIG` for a policy that is too long, else `EINVAL`.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooLong(_) => Errno::EFBIG,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for StartError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(line) => write!(
                f,
                "the first line is \"{}\", neither \"policy BYTES\" nor \"clear\"",
                Untrusted(line)
            ),
            Self::TooLong(digits) => write!(
                f,
                "the policy is too long ({} bytes, at most {MAX_LEN})",
                Untrusted(digits)
            ),
            Self::Excess(bytes) => write!(
                f,
                "the policy has {bytes} bytes more than the first line says"
            ),
        }
    }
}

impl_error!(StartError<'a>);

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

/// Clients, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Any,
    /// The addresses that have this many first bits in common with this address.
    Prefix(Address, u32),
}

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule<'a> {
    session: Pattern<'a>,
    /// `None` if the client need not have proved its identity.
    client_id: Option<Pattern<'a>>,
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
    for (line, text) in (1..).zip(lines(text)) {
        match parse_line(text) {
            Ok(None) => {}
            // There are fewer rules than bytes.
            Ok(Some(_)) => rules = rules.wrapping_add(1),
            Err(kind) => return Err(PolicyError { line, kind }),
        }
    }
    Ok(rules)
}

/// Whether a policy allows a request. A line that is no rule allows nothing.
pub fn allows(text: &[u8], query: &Query<'_>) -> bool {
    lines(text)
        .filter_map(|line| parse_line(line).ok().flatten())
        .any(|rule| rule.allows(query))
}

/// Whether a policy has a rule for clients at the address `client`.
pub fn admits(text: &[u8], client: Option<Address>) -> bool {
    lines(text)
        .filter_map(|line| parse_line(line).ok().flatten())
        .any(|rule| rule.clients.contains(client))
}

/// Whether a policy has a rule for a session. Without a rule a session can open nothing.
pub fn is_about(text: &[u8], subject: &Subject<'_>) -> bool {
    lines(text)
        .filter_map(|line| parse_line(line).ok().flatten())
        .any(|rule| rule.is_about(subject))
}

/// The lines of a policy, without the empty one behind the last newline.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|&byte| byte == b'\n')
}

/// The rule of a line; `None` for an empty line or a comment.
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
    let mut client_id = None;
    for word in words {
        let (key, value) = split_once(word, b'=').ok_or(PolicyErrorKind::NoKey(word))?;
        match key {
            b"session" => set(&mut session, "session", parse_session(value)?)?,
            b"client" => set(&mut clients, "client", parse_clients(value)?)?,
            b"client-id" => set(&mut client_id, "client-id", parse_client_id(value)?)?,
            b"device" => set(&mut device, "device", parse_device(value)?)?,
            b"mode" => set(&mut modes, "mode", parse_modes(value)?)?,
            _ => return Err(PolicyErrorKind::UnknownKey(key)),
        }
    }
    Ok(Some(Rule {
        session: session.ok_or(PolicyErrorKind::Missing("session"))?,
        client_id,
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
    Pattern::parse(value).map_err(|error| PolicyErrorKind::BadSession(value, error))
}

fn parse_client_id(value: &[u8]) -> Result<Pattern<'_>, PolicyErrorKind<'_>> {
    Pattern::parse(value).map_err(|error| PolicyErrorKind::BadClientId(value, error))
}

fn parse_device(value: &[u8]) -> Result<Pattern<'_>, PolicyErrorKind<'_>> {
    let bad = |reason| PolicyErrorKind::BadDevice(value, reason);
    let pattern = Pattern::parse(value).map_err(|error| bad(error.as_str()))?;
    // No path that a client can ask for fits such a pattern, so the pattern is a mistake.
    let has = |what: &[u8]| value.windows(what.len()).any(|part| part == what);
    if !value.starts_with(b"/") {
        return Err(bad("does not start with /"));
    }
    if has(b"..") {
        return Err(bad("contains \"..\""));
    }
    if has(b"//") {
        return Err(bad("contains \"//\""));
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
    let (text, digits) = match split_once(value, b'/') {
        Some((text, digits)) => (text, Some(digits)),
        None => (value, None),
    };
    let address = Address::parse(text).map_err(PolicyErrorKind::BadAddress)?;
    let most = match &address {
        Address::V6 { scope, .. } if !scope.is_none() => {
            return Err(PolicyErrorKind::Interface(value));
        }
        Address::V4(_) => 32,
        Address::V6 { .. } | Address::Gid(_) => 128,
    };
    let len = match digits {
        None => most,
        Some(digits) => number::from_digits(digits)
            .filter(|&len| len <= most && digits.len() <= 3)
            .ok_or(PolicyErrorKind::BadPrefix(value))?,
    };
    // A shift by all 128 bits leaves no bit behind the prefix.
    let behind = bits(&address).checked_shl(len);
    if behind.is_some_and(|behind| behind != 0) {
        return Err(PolicyErrorKind::HostBits(value));
    }
    // ::ffff:192.0.2.0/120 is 192.0.2.0/24.
    Ok(match (canonical(address), len.checked_sub(MAPPED_PREFIX)) {
        (v4 @ Address::V4(_), Some(len)) if most == 128 => Clients::Prefix(v4, len),
        _ => Clients::Prefix(address, len),
    })
}

/// The length of the prefix of IPv6 addresses that stand for IPv4 addresses, in bits.
const MAPPED_PREFIX: u32 = 96;

/// The IPv4 address that an IPv6 address stands for, or the address itself.
fn canonical(address: Address) -> Address {
    match address {
        Address::V6 {
            addr: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
            ..
        } => Address::V4([a, b, c, d]),
        _ => address,
    }
}

/// The bits of an address, from the highest bit on.
fn bits(address: &Address) -> u128 {
    match address {
        Address::V4([a, b, c, d]) => {
            u128::from_be_bytes([*a, *b, *c, *d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        Address::V6 { addr, .. } | Address::Gid(addr) => u128::from_be_bytes(*addr),
    }
}

impl Clients {
    fn contains(&self, client: Option<Address>) -> bool {
        let (address, len) = match self {
            Self::Any => return true,
            Self::Prefix(address, len) => (address, *len),
        };
        client.map(canonical).is_some_and(|client| {
            let same = (bits(&client) ^ bits(address)).leading_zeros();
            discriminant(&client) == discriminant(address) && same >= len
        })
    }
}

impl Rule<'_> {
    fn allows(&self, query: &Query<'_>) -> bool {
        self.modes.contains(query.mode)
            && self.is_about(&query.subject)
            && self.device.matches(query.device)
    }

    /// Whether the rule is for a session. Each rule has a device and a mode, so each rule allows
    /// something.
    fn is_about(&self, subject: &Subject<'_>) -> bool {
        self.clients.contains(subject.client)
            && self.session.matches(subject.session.as_bytes())
            && self.client_id.is_none_or(|pattern| {
                let client = subject.client_id;
                client.is_some_and(|client| pattern.matches(client.as_bytes()))
            })
    }
}
