// SPDX-License-Identifier: GPL-2.0

//! The first message of a session, and the message that closes a device.

use super::wire::{
    self,
    MsgHdr,
    MsgType,
    PROTO_VER_MAJOR, //
};
use crate::{
    error::ProtoError,
    wire::{
        split,
        to_array, //
    }, //
};

/// Marks the bytes behind the version as an [`Extension`]; "RNBX" in the order of the wire.
const EXTENSION_MAGIC: u32 = u32::from_le_bytes(*b"RNBX");

/// The content of the bytes that C reserves in the session information.
///
/// No C end fills these bytes. C's client sends the message from an uninitialised variable. C's
/// server writes type and version into a chunk that holds old data, which may be data of the
/// client's users. So the bytes need not be zero, and a constant alone proves nothing.
///
/// The server takes an extension only with the right magic number, and only then responds with one,
/// which returns the nonce that the client has just drawn. The client believes only a response with
/// that nonce, since no older data can contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The extensions of RNBD: in the message all that the client knows, in the response those of
    /// them that the server uses.
    pub features: u32,
    /// A random number of the client, which the response returns.
    pub nonce: u64,
}

/// The first message of a session; also the response to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessInfo {
    /// The major version that the sender speaks.
    pub ver: u8,
    /// The extension; `None` from a C peer.
    pub extension: Option<Extension>,
}

impl SessInfo {
    /// The size on the wire in bytes, the same for the response.
    pub const SIZE: usize = size_of::<wire::SessInfo>();

    /// The message of a client of this version that knows the extensions `features`; `nonce` is
    /// random.
    pub const fn new(features: u32, nonce: u64) -> Self {
        Self {
            ver: PROTO_VER_MAJOR,
            extension: Some(Extension { features, nonce }),
        }
    }

    /// The response of a server that knows the extensions `features`: the major version that both
    /// ends speak, and the extensions that both know.
    #[must_use]
    pub fn answer(self, features: u32) -> Self {
        Self {
            ver: self.negotiate(),
            extension: self.extension.map(|extension| Extension {
                features: extension.features & features,
                ..extension
            }),
        }
    }

    /// The bits of the extensions; 0 from a C peer.
    pub fn features(self) -> u32 {
        self.extension.map_or(0, |extension| extension.features)
    }

    /// The major version that both ends speak, given the peer's message.
    pub fn negotiate(self) -> u8 {
        self.ver.min(PROTO_VER_MAJOR)
    }

    /// The wire form as a request.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        self.encode(MsgType::SessInfo)
    }

    /// The wire form as a response.
    pub fn to_rsp_bytes(&self) -> [u8; Self::SIZE] {
        self.encode(MsgType::SessInfoRsp)
    }

    /// Checks a received response to this message; `bytes` may be longer than the response.
    ///
    /// The result has only extensions that this message offers.
    pub fn parse_rsp(&self, bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "session info response";
        let (msg, _) = split::<wire::SessInfo>(bytes, what)?;
        msg.hdr.check(what, MsgType::SessInfoRsp)?;
        let response = Self::of(msg);
        let answered = |theirs: Extension| {
            let ours = self.extension.filter(|ours| ours.nonce == theirs.nonce)?;
            Some(Extension {
                features: theirs.features & ours.features,
                ..ours
            })
        };
        Ok(Self {
            extension: response.extension.and_then(answered),
            ..response
        })
    }

    /// Reads a message or a response.
    pub(super) fn of(msg: &wire::SessInfo) -> Self {
        let has_extension = msg.magic.get() == EXTENSION_MAGIC;
        Self {
            ver: msg.ver,
            extension: has_extension.then(|| Extension {
                features: msg.features.get(),
                nonce: msg.nonce.get(),
            }),
        }
    }

    fn encode(&self, msg_type: MsgType) -> [u8; Self::SIZE] {
        to_array(&wire::SessInfo {
            hdr: MsgHdr::new(msg_type),
            ver: self.ver,
            reserved0: [0; 3],
            magic: self.extension.map_or(0, |_| EXTENSION_MAGIC).into(),
            features: self.features().into(),
            nonce: self.extension.map_or(0, |extension| extension.nonce).into(),
            reserved1: [0; 12],
        })
    }
}

/// Closes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The server's number of the open device.
    pub device_id: u32,
}

impl Close {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Close>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Close {
            hdr: MsgHdr::new(MsgType::Close),
            device_id: self.device_id.into(),
        })
    }
}
