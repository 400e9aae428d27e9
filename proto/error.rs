// SPDX-License-Identifier: GPL-2.0

//! Why a message of a peer is refused.

use core::fmt;

use crate::{
    client_id::ClientIdError,
    errno::Errno,
    name::NameError,
    text::impl_error, //
};

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtoError {
    /// The received bytes are fewer than the message has.
    TooShort {
        /// The message.
        what: &'static str,
        /// The number of bytes received.
        len: usize,
        /// The size of the message in bytes.
        need: usize,
    },
    /// The buffer to write into is smaller than the message.
    NoRoom {
        /// The message.
        what: &'static str,
        /// The size of the buffer in bytes.
        len: usize,
        /// The size of the message in bytes.
        need: usize,
    },
    /// The peer does not speak RTRS: it sent this magic number.
    BadMagic(u16),
    /// The peer speaks RTRS of another major version.
    UnsupportedVersion {
        /// The peer's version, as in the message.
        version: u16,
        /// The major version that this end speaks.
        expected: u8,
    },
    /// The message's type is unknown, or is not expected here.
    BadType {
        /// The message that was expected.
        what: &'static str,
        /// The type found.
        found: u16,
    },
    /// A field is out of range.
    BadField {
        /// The field, with its message.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A name in a message is not acceptable.
    BadName {
        /// The field.
        field: &'static str,
        /// The reason.
        error: NameError,
    },
    /// The name of a client in a message is not acceptable.
    BadClientId(ClientIdError),
    /// The server refused the connection with this error.
    Refused(Errno),
}

impl ProtoError {
    /// A field that is out of range.
    pub(crate) fn bad_field(field: &'static str, value: impl Into<u64>) -> Self {
        let value = value.into();
        Self::BadField { field, value }
    }

    /// The error number that the C modules return.
    ///
    /// For connection messages C returns `ECONNRESET` whatever is wrong; for these use
    /// [`ProtoError::connect_errno`].
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooShort { .. }
            | Self::BadType { .. }
            | Self::BadField { .. }
            | Self::BadName { .. }
            | Self::BadClientId(_) => Errno::EINVAL,
            Self::NoRoom { .. } => Errno::EMSGSIZE,
            Self::BadMagic(_) | Self::UnsupportedVersion { .. } => Errno::ECONNRESET,
            Self::Refused(errno) => *errno,
        }
    }

    /// The error number that the C modules return while a connection is made.
    pub const fn connect_errno(&self) -> Errno {
        match self {
            Self::Refused(errno) => *errno,
            _ => Errno::ECONNRESET,
        }
    }
}

impl fmt::Display for ProtoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { what, len, need } => {
                write!(f, "{what} is too short: {len} of {need} bytes")
            }
            Self::NoRoom { what, len, need } => {
                write!(f, "no room for {what}: {len} of {need} bytes")
            }
            Self::BadMagic(magic) => write!(f, "not an RTRS peer: magic {magic:#06x}"),
            Self::UnsupportedVersion { version, expected } => {
                let [major, minor] = version.to_be_bytes();
                write!(
                    f,
                    "RTRS version {major}.{minor} is not supported, expected {expected}.x"
                )
            }
            Self::BadType { what, found } => write!(f, "{what}: unexpected type {found:#x}"),
            Self::BadField { field, value } => write!(f, "{field} has bad value {value}"),
            Self::BadName { field, error } => write!(f, "{field} {error}"),
            Self::BadClientId(error) => write!(f, "client id {error}"),
            Self::Refused(errno) => {
                let (name, number) = (errno.name(), errno.get());
                write!(f, "refused by the server: {name} ({number})")
            }
        }
    }
}

impl_error!(ProtoError);
