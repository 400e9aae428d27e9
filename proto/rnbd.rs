// SPDX-License-Identifier: GPL-2.0

//! RNBD 2.2: messages between the block device's two ends (C: `rnbd-proto.h`).
//!
//! A message is the user's part of an RTRS request. Answers are the data of a
//! read request: only `SessInfo` and `Open` have one, the others are answered by
//! their errno alone.

mod io;
mod open;
mod wire;

pub use io::{
    BlockOp,
    Io,
    IoError,
    IoFlags,
    Op,
    RangeOp,
    Rw, //
};
pub use open::{
    CachePolicy,
    Open,
    OpenRsp, //
};

use zerocopy::{
    little_endian::{
        U16,
        U32, //
    },
    FromBytes, //
};

use crate::{
    rtrs::to_array,
    ProtoError, //
};

/// What the two ends tell each other; the smaller one is used.
pub const PROTO_VER_MAJOR: u8 = 2;
/// Never sent.
pub const PROTO_VER_MINOR: u8 = 2;

/// The unit of `sector` fields in bytes.
pub const SECTOR_SIZE: u32 = 512;

/// The size of the longest message in bytes.
pub const MAX_MSG_SIZE: usize = Open::SIZE;

/// The type field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MsgType {
    /// The first message of a session.
    SessInfo = 0,
    /// Its answer.
    SessInfoRsp = 1,
    /// Opens a device.
    Open = 2,
    /// Its answer.
    OpenRsp = 3,
    /// A block operation.
    Io = 4,
    /// Closes a device.
    Close = 5,
}

impl MsgType {
    /// The value on the wire.
    pub const fn to_wire(self) -> u16 {
        self as u16
    }
}

impl TryFrom<u16> for MsgType {
    type Error = u16;

    /// The error is the unknown value.
    fn try_from(value: u16) -> Result<Self, u16> {
        Ok(match value {
            0 => Self::SessInfo,
            1 => Self::SessInfoRsp,
            2 => Self::Open,
            3 => Self::OpenRsp,
            4 => Self::Io,
            5 => Self::Close,
            _ => return Err(value),
        })
    }
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessMode {
    /// Read-only; any number of clients.
    Ro = 0,
    /// Read-write; one client.
    Rw = 1,
    /// Read-write next to one other writer, while a virtual machine moves.
    Migration = 2,
}

impl AccessMode {
    /// The value on the wire.
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// The name in sysfs and in `map_device`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
            Self::Migration => "migration",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Ro, Self::Rw, Self::Migration]
            .into_iter()
            .find(|mode| mode.as_str().as_bytes() == name)
    }

    /// Whether the device cannot be changed through it.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::Ro)
    }
}

impl TryFrom<u8> for AccessMode {
    type Error = u8;

    /// The error is the unknown value.
    fn try_from(value: u8) -> Result<Self, u8> {
        Ok(match value {
            0 => Self::Ro,
            1 => Self::Rw,
            2 => Self::Migration,
            _ => return Err(value),
        })
    }
}

/// The first message of a session; also its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessInfo {
    /// The protocol's major version.
    pub ver: u8,
}

impl SessInfo {
    /// The size on the wire in bytes, the same for the answer.
    pub const SIZE: usize = size_of::<wire::SessInfo>();

    /// This version's.
    pub const fn new() -> Self {
        Self {
            ver: PROTO_VER_MAJOR,
        }
    }

    /// The version both ends speak, given the other one's message.
    pub const fn negotiate(self) -> u8 {
        if self.ver < PROTO_VER_MAJOR {
            self.ver
        } else {
            PROTO_VER_MAJOR
        }
    }

    /// The wire form as a request.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        self.encode(MsgType::SessInfo)
    }

    /// The wire form as an answer.
    pub fn to_rsp_bytes(&self) -> [u8; Self::SIZE] {
        self.encode(MsgType::SessInfoRsp)
    }

    /// Checks a received answer; `bytes` may be longer than it.
    pub fn parse_rsp(bytes: &[u8]) -> Result<Self, ProtoError> {
        let msg: wire::SessInfo = read(bytes, "session info response")?;
        check_type("session info response", msg.hdr, MsgType::SessInfoRsp)?;
        Ok(Self { ver: msg.ver })
    }

    fn encode(&self, msg_type: MsgType) -> [u8; Self::SIZE] {
        to_array(&wire::SessInfo {
            hdr: wire::MsgHdr::new(msg_type),
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
            hdr: wire::MsgHdr::new(MsgType::Close),
            device_id: U32::new(self.device_id),
        })
    }
}

/// A client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Without an allocator there is no smaller form.
pub enum Request {
    /// The first message of a session.
    SessInfo(SessInfo),
    /// Opens a device.
    Open(Open),
    /// A block operation.
    Io(Io),
    /// Closes a device.
    Close(Close),
}

impl Request {
    /// Checks a received message.
    ///
    /// `bytes` is a private copy of the user's part of the request and may be
    /// longer than the message, as in C, never shorter. An IO message may end
    /// before its `prio`, which came with RNBD 2.1.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let hdr: wire::MsgHdr = read(bytes, "RNBD message")?;
        match MsgType::try_from(hdr.r#type.get()) {
            // First, since it is the one that matters.
            Ok(MsgType::Io) => Io::parse(bytes).map(Self::Io),
            Ok(MsgType::SessInfo) => {
                let msg: wire::SessInfo = read(bytes, "session info message")?;
                Ok(Self::SessInfo(SessInfo { ver: msg.ver }))
            }
            Ok(MsgType::Open) => Open::parse(bytes).map(Self::Open),
            Ok(MsgType::Close) => {
                let msg: wire::Close = read(bytes, "close message")?;
                Ok(Self::Close(Close {
                    device_id: msg.device_id.get(),
                }))
            }
            Ok(MsgType::SessInfoRsp | MsgType::OpenRsp) | Err(_) => Err(ProtoError::BadType {
                what: "RNBD message",
                found: hdr.r#type.get(),
            }),
        }
    }
}

fn read<T: FromBytes>(bytes: &[u8], what: &'static str) -> Result<T, ProtoError> {
    match T::read_from_prefix(bytes) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(ProtoError::TooShort {
            what,
            len: bytes.len(),
            need: size_of::<T>(),
        }),
    }
}

fn check_type(what: &'static str, hdr: wire::MsgHdr, expected: MsgType) -> Result<(), ProtoError> {
    if hdr.r#type.get() != expected.to_wire() {
        return Err(ProtoError::BadType {
            what,
            found: hdr.r#type.get(),
        });
    }
    Ok(())
}

impl wire::MsgHdr {
    const fn new(msg_type: MsgType) -> Self {
        Self {
            r#type: U16::new(msg_type.to_wire()),
            padding: U16::new(0),
        }
    }
}
