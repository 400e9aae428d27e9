// SPDX-License-Identifier: GPL-2.0

//! Client ids: the names by which clients prove their identity.

use core::fmt;

use crate::text::impl_error;

/// What is wrong with a client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientIdError {
    /// It has no byte at all.
    Empty,
    /// It has this many bytes, more than [`ClientId::MAX_LEN`].
    TooLong(usize),
    /// It begins with neither a letter nor a digit.
    BadStart(u8),
    /// It contains this byte, which is no letter, no digit and none of `.`, `_`, `-`, `:`, `@`.
    BadByte(u8),
    /// A field of a message has something behind the end of the id.
    Unclean,
}

impl fmt::Display for ClientIdError {
    /// Displays the reason, to follow the name of the field or option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong(len) => {
                write!(
                    f,
                    "is too long ({len} bytes, at most {})",
                    ClientId::MAX_LEN
                )
            }
            Self::BadStart(byte) => write!(
                f,
                "begins with '{}', and not with a letter or a digit",
                byte.escape_ascii()
            ),
            Self::BadByte(byte) => write!(
                f,
                "contains '{}'; letters, digits and . _ - : @ are possible",
                byte.escape_ascii()
            ),
            Self::Unclean => f.write_str("has bytes behind its end"),
        }
    }
}

impl_error!(ClientIdError, EINVAL);

/// The name of a client that has a key: 1 to 63 letters, digits and `.`, `_`, `-`, `:`, `@`, of
/// which the first one is a letter or a digit.
///
/// Such a name can be a file's name, the description of a key in the kernel, a word of an export
/// policy, and part of a log line.
///
/// # Invariants
///
/// `buf` is such a name, then zeroes, of which there is at least one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId {
    buf: [u8; Self::FIELD_LEN],
}

impl ClientId {
    /// The size of the field in messages in bytes, with the NUL at its end.
    pub const FIELD_LEN: usize = 64;

    /// The most bytes of an id.
    pub const MAX_LEN: usize = Self::FIELD_LEN - 1;

    /// The id of the given bytes (no NUL).
    pub fn new(bytes: &[u8]) -> Result<Self, ClientIdError> {
        match bytes.first() {
            None => return Err(ClientIdError::Empty),
            Some(first) if !first.is_ascii_alphanumeric() => {
                return Err(ClientIdError::BadStart(*first));
            }
            Some(_) => {}
        }
        if let Some(&byte) = bytes.iter().find(|byte| !Self::may_contain(**byte)) {
            return Err(ClientIdError::BadByte(byte));
        }
        if bytes.len() > Self::MAX_LEN {
            return Err(ClientIdError::TooLong(bytes.len()));
        }
        let mut buf = [0; Self::FIELD_LEN];
        for (to, &byte) in buf.iter_mut().zip(bytes) {
            *to = byte;
        }
        // INVARIANT: Checked above; the last byte is zero since `buf` is one byte longer than the
        // longest id.
        Ok(Self { buf })
    }

    fn may_contain(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'@')
    }

    /// The id in the field of a message, which is filled up with zeroes.
    pub fn from_field(field: &[u8; Self::FIELD_LEN]) -> Result<Self, ClientIdError> {
        let end = field.iter().position(|&byte| byte == 0);
        let (id, rest) = end
            .and_then(|end| field.split_at_checked(end))
            .ok_or(ClientIdError::TooLong(field.len()))?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(ClientIdError::Unclean);
        }
        Self::new(id)
    }

    /// The field of a message: the id, then zeroes.
    pub const fn to_field(&self) -> [u8; Self::FIELD_LEN] {
        self.buf
    }

    /// The bytes, without NUL.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.buf.iter().position(|&byte| byte == 0);
        len.and_then(|len| self.buf.get(..len)).unwrap_or(&[])
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        // By the type's invariant it is ASCII.
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
