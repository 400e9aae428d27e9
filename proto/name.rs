// SPDX-License-Identifier: GPL-2.0

//! Session names and device paths: NUL-terminated byte strings of at most 254 bytes from a user or
//! a peer.

use core::{
    ffi::CStr,
    fmt, //
};

use crate::text::impl_error;

/// The longest file name in bytes, without its NUL (C: `NAME_MAX`).
///
/// The name fields of messages have this size *including* the NUL, so the longest session name or
/// device path has 254 bytes.
pub const NAME_MAX: usize = 255;

/// The size of a path buffer in bytes, including its NUL (C: `PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// What is wrong with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// The name has this many bytes, more than [`Name::MAX_LEN`]; or its message field has no NUL.
    TooLong(usize),
    /// The name contains this byte, which names of its kind cannot have.
    BadByte(u8),
}

impl fmt::Display for NameError {
    /// Displays the reason, to follow the name of the field or option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong(len) => {
                write!(f, "is too long ({len} bytes, at most {})", Name::MAX_LEN)
            }
            Self::BadByte(byte) => write!(f, "cannot contain '{}'", byte.escape_ascii()),
        }
    }
}

impl_error!(NameError, EINVAL);

/// A byte string of 1 to 254 bytes without control characters, kept
/// NUL-terminated.
///
/// # Invariants
///
/// `1 <= len <= MAX_LEN`; `buf[..len]` has no byte below 0x20 and no 0x7f;
/// `buf[len..]` is zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    buf: [u8; NAME_MAX],
    len: u8,
}

impl Name {
    /// The most bytes of a name, without its NUL.
    pub const MAX_LEN: usize = NAME_MAX - 1;

    /// A name of the given bytes (no NUL).
    ///
    /// The C client takes 255 bytes and silently drops the last. Here that is an error, so that two
    /// names do not become one. Control characters are refused because they would break the sysfs
    /// files and log lines that show the name.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes)?;
        Ok(Self::from_checked(bytes))
    }

    /// A name of bytes that `check` has accepted.
    pub(crate) fn from_checked(bytes: &[u8]) -> Self {
        let mut buf = [0; NAME_MAX];
        let len = bytes.len().min(Self::MAX_LEN);
        for (to, &byte) in buf.iter_mut().zip(bytes).take(len) {
            *to = byte;
        }
        // The length is at most 254, so the cast loses nothing.
        let len = len as u8;
        Self { buf, len }
    }

    /// Checks the bytes of a name.
    pub(crate) fn check(bytes: &[u8]) -> Result<(), NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(&byte) = bytes.iter().find(|byte| byte.is_ascii_control()) {
            return Err(NameError::BadByte(byte));
        }
        if bytes.len() > Self::MAX_LEN {
            return Err(NameError::TooLong(bytes.len()));
        }
        Ok(())
    }

    /// The bytes of a message field up to its NUL.
    fn field_bytes(field: &[u8; NAME_MAX]) -> Result<&[u8], NameError> {
        let end = field.iter().position(|&byte| byte == 0);
        end.and_then(|end| field.get(..end))
            .ok_or(NameError::TooLong(NAME_MAX))
    }

    /// The name in a message field. The field must contain a NUL; bytes behind the NUL are ignored.
    pub fn from_field(field: &[u8; NAME_MAX]) -> Result<Self, NameError> {
        Self::new(Self::field_bytes(field)?)
    }

    /// The message field: the name, then zeros.
    pub const fn to_field(&self) -> [u8; NAME_MAX] {
        self.buf
    }

    /// The bytes, without NUL.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// The name as a C string.
    pub fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.buf).unwrap_or(c"")
    }
}

/// Displays the name, with bytes outside ASCII escaped.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The name of a session: a [`Name`] without `/` and `.`. The C modules refuse these, too, since
/// the name becomes a sysfs directory and a part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessName(Name);

impl SessName {
    /// A session name of the given bytes (no NUL).
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes)?;
        Ok(Self::from_checked(bytes))
    }

    /// A session name of bytes that `check` has accepted.
    pub(crate) fn from_checked(bytes: &[u8]) -> Self {
        Self(Name::from_checked(bytes))
    }

    /// The session name in a message field; see [`Name::from_field`].
    pub fn from_field(field: &[u8; NAME_MAX]) -> Result<Self, NameError> {
        Self::new(Name::field_bytes(field)?)
    }

    /// Checks the bytes of a session name.
    pub(crate) fn check(bytes: &[u8]) -> Result<(), NameError> {
        Name::check(bytes)?;
        match bytes.iter().find(|&&byte| matches!(byte, b'/' | b'.')) {
            Some(&byte) => Err(NameError::BadByte(byte)),
            None => Ok(()),
        }
    }
}

impl core::ops::Deref for SessName {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.0
    }
}
