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

/// The first message of a session; also the response to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessInfo {
    /// The major version that the sender speaks.
    pub ver: u8,
}

impl SessInfo {
    /// The size on the wire in bytes, the same for the response.
    pub const SIZE: usize = size_of::<wire::SessInfo>();

    /// The message of this version.
    pub const fn new() -> Self {
        Self {
            ver: PROTO_VER_MAJOR,
        }
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

    /// Checks a received response; `bytes` may be longer than it.
    pub fn parse_rsp(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "session info response";
        let (msg, _) = split::<wire::SessInfo>(bytes, what)?;
        msg.hdr.check(what, MsgType::SessInfoRsp)?;
        Ok(Self { ver: msg.ver })
    }

    fn encode(&self, msg_type: MsgType) -> [u8; Self::SIZE] {
        to_array(&wire::SessInfo {
            hdr: MsgHdr::new(msg_type),
            ver: self.ver,
            reserved: [0; 31],
        })
    }
}

impl Default for SessInfo {
    fn default() -> Self {
        Self::new()
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
