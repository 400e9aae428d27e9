// SPDX-License-Identifier: GPL-2.0

//! HMAC-SHA-256 on the host, and forms of it that leave a part of the message out.

use std::ops::Range;

use hmac::{Hmac, Mac as _};
use proto::{auth_keys::Secret, handshake::Mac, rtrs::Code};
use sha2::Sha256;

/// The code of a message under a key of any length.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> Code {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// A part of messages that the code does not depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The first bytes of the message; empty for all messages of that length.
    pub label: &'static [u8],
    /// The length of the message.
    pub len: usize,
    /// The bytes.
    pub bytes: Range<usize>,
}

/// HMAC-SHA-256 of messages after these parts are set to zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMac(pub Vec<LeftOut>);

impl Mac for HostMac {
    fn code(&self, key: &Secret, message: &[u8]) -> Code {
        let mut message = message.to_vec();
        let left_out: Vec<_> = self
            .0
            .iter()
            .filter(|part| part.len == message.len() && message.starts_with(part.label))
            .collect();
        for part in left_out {
            message[part.bytes.clone()].fill(0);
        }
        hmac_sha256(key.as_bytes(), &message)
    }

    fn is_same(&self, one: &[u8], other: &[u8]) -> bool {
        one == other
    }
}
