// SPDX-License-Identifier: GPL-2.0

//! The name of a client's machine, by which the server recognises the machine whatever its sessions
//! and addresses are.
//!
//! An extension: only in a session with [`FEATURE_RESERVATIONS`](super::FEATURE_RESERVATIONS).

use core::fmt;

use super::wire::{
    self,
    MsgHdr,
    MsgType, //
};
use crate::{
    error::ProtoError,
    wire::{
        split,
        to_array,
        U32, //
    }, //
};

/// The places of the dashes in the text of a UUID.
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// The length of the text of a UUID in bytes.
const TEXT_LEN: usize = 36;

/// The name of a client's machine, a UUID.
///
/// # Invariants
///
/// The UUID is not the nil UUID, which has no bit set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host([u8; 16]);

impl Host {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Host>();

    /// The name with these bytes; `None` for the nil UUID.
    pub fn new(uuid: [u8; 16]) -> Option<Self> {
        // INVARIANT: Checked here.
        (uuid != [0; 16]).then_some(Self(uuid))
    }

    /// The UUID that `text` is: 32 hexadecimal digits in the usual five groups, with nothing
    /// around them. `None` for other text and for the nil UUID.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_LEN || DASHES.iter().any(|&at| text.get(at) != Some(&b'-')) {
            return None;
        }
        let mut uuid = [0u8; 16];
        let mut digits = text.iter().enumerate();
        for byte in &mut uuid {
            for _ in 0..2 {
                let (_, digit) = digits.find(|(at, _)| !DASHES.contains(at))?;
                let value = char::from(*digit).to_digit(16)?;
                // A digit has four bits.
                *byte = byte.wrapping_shl(4) | value as u8;
            }
        }
        Self::new(uuid)
    }

    /// The UUID, in the order of its text.
    pub const fn to_uuid(self) -> [u8; 16] {
        self.0
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Host {
            hdr: MsgHdr::new(MsgType::Host),
            reserved: U32::ZERO,
            uuid: self.0,
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::Host>(bytes, "host message")?;
        Self::new(msg.uuid).ok_or_else(|| ProtoError::bad_field("UUID of the host", 0u8))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
