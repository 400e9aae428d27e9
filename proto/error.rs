// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a message of a peer.

use core::fmt;

use crate::{
    name::NameError,
    text::impl_message,
    Errno, //
};

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtoError {
    /// Fewer bytes than the message has.
    TooShort {
        /// The message.
        what: &'static str,
        /// The bytes there are.
        len: usize,
        /// The bytes it takes.
        need: usize,
    },
    /// The buffer to write into is smaller than the message.
    NoRoom {
        /// The message.
        what: &'static str,
        /// The bytes there are.
        len: usize,
        /// The bytes it takes.
        need: usize,
    },
    /// Not RTRS at all.
    BadMagic(u16),
    /// An RTRS of another major version.
    UnsupportedVersion(u16),
    /// A message type that is unknown or does not belong here.
    BadType {
        /// What was being read.
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
    /// The server refused the connection with this error.
    Refused(Errno),
}

impl ProtoError {
    /// What the C modules return for it.
    ///
    /// Errors of the connection messages are `ECONNRESET` in C; a caller that
    /// handles those takes [`ProtoError::connect_errno`].
    pub const fn errno(&self) -> Errno {
        match self {
            Self::TooShort { .. }
            | Self::BadType { .. }
            | Self::BadField { .. }
            | Self::BadName { .. } => Errno::EINVAL,
            Self::NoRoom { .. } => Errno::EMSGSIZE,
            Self::BadMagic(_) | Self::UnsupportedVersion(_) => Errno::ECONNRESET,
            Self::Refused(errno) => *errno,
        }
    }

    /// What the C modules return for it while a connection is made.
    pub const fn connect_errno(&self) -> Errno {
        match self {
            Self::Refused(errno) => *errno,
            _ => Errno::ECONNRESET,
        }
    }

    /// Writes what was wrong.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::TooShort { what, len, need } => {
                write!(out, "{what} is too short: {len} of {need} bytes")
            }
            Self::NoRoom { what, len, need } => {
                write!(out, "no room for {what}: {len} of {need} bytes")
            }
            Self::BadMagic(magic) => write!(out, "not an RTRS peer: magic {magic:#06x}"),
            Self::UnsupportedVersion(version) => write!(
                out,
                "RTRS version {}.{} is not supported, expected {}.x",
                version >> 8,
                version & 0xff,
                crate::rtrs::PROTO_VER_MAJOR
            ),
            Self::BadType { what, found } => write!(out, "{what}: unexpected type {found:#x}"),
            Self::BadField { field, value } => write!(out, "{field} has bad value {value}"),
            Self::BadName { field, error } => {
                write!(out, "{field} ")?;
                error.write_to(out)
            }
            Self::Refused(errno) => {
                write!(
                    out,
                    "refused by the server: {} ({})",
                    errno.name(),
                    errno.get()
                )
            }
        }
    }
}

impl_message!(ProtoError);
