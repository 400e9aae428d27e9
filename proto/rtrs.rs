// SPDX-License-Identifier: GPL-2.0

//! RTRS 2.0: constants and messages (C: `rtrs-pri.h`).
//!
//! A message type here holds native values; `to_bytes` gives its wire form,
//! every byte of it written, and `parse` checks a received one. Multi-byte
//! fields are little-endian on the wire; only the immediate is big-endian, and
//! that is the RDMA layer's business.

use zerocopy::{
    little_endian::{
        U32,
        U64, //
    },
    FromBytes as _,
    IntoBytes as _, //
};

mod chunk;
pub mod coalesced_responses;
mod conn;
pub mod imm;
mod info;
pub mod request;
mod wire;

pub(crate) use wire::{
    assert_layout,
    to_array, //
};

pub use chunk::{
    ChunkLayout,
    LayoutError, //
};
pub use conn::{
    ConnAccept,
    ConnReject,
    ConnReq, //
};
pub use imm::{
    path_number,
    Imm, //
};
pub use info::{
    InfoReq,
    InfoRsp,
    RemoteBuf, //
};
pub use request::{
    ReadMsg,
    Request,
    RkeyRsp,
    WriteMsg, //
};

/// The first field of both connection messages.
pub const MAGIC: u16 = 0x1bbd;
/// Peers must agree on it.
pub const PROTO_VER_MAJOR: u8 = 2;
/// Ignored by peers.
pub const PROTO_VER_MINOR: u8 = 0;
/// The version field of both connection messages.
pub const PROTO_VER: u16 = u16::from_be_bytes([PROTO_VER_MAJOR, PROTO_VER_MINOR]);

/// The most chunks of a session.
pub const MAX_SESS_QUEUE_DEPTH: u32 = 65535;
/// The smallest chunk a server may be configured for, in bytes.
pub const MIN_CHUNK_SIZE: u32 = 8192;
/// The default of the server's `max_chunk_size`, in bytes.
pub const DEFAULT_MAX_CHUNK_SIZE: u32 = 128 << 10;
/// The default of the server's `sess_queue_depth`.
pub const DEFAULT_SESS_QUEUE_DEPTH: u32 = 512;
/// What a server sets aside in each chunk for the messages behind the data, in
/// bytes (`PAGE_SIZE` in C).
pub const MAX_HDR_SIZE: u32 = 4096;
/// The queue depth of connection 0, which carries service messages.
pub const SERVICE_CON_QUEUE_DEPTH: u32 = 512;
/// The most paths of a session.
pub const MAX_PATHS_NUM: usize = 128;
/// The most connections of a path a server takes.
pub const MAX_CON_NUM: u16 = 4096;
/// The most segments of a request; segments are at most 4 KiB.
pub const MAX_SEGMENTS: u32 = 128;

/// The time between two heartbeats, in ms.
pub const HB_INTERVAL_MS: u32 = 5000;
/// The intervals without an answer after which a path is given up is one more
/// than this.
pub const HB_MISSED_MAX: u32 = 5;

/// How long a client waits for a connection step, in ms; also the age at which
/// a server closes a path that is still connecting.
pub const CONNECT_TIMEOUT_MS: u32 = 30_000;
/// The default of the longest time between two attempts to reconnect, in s.
pub const RECONNECT_DELAY_SEC: u32 = 30;

/// `flags` of a read request: answer with the invalidation of its key.
pub const MSG_NEED_INVAL_F: u16 = 1 << 0;
/// `flags` of an accept: every answer carries a fresh key for its chunk.
pub const MSG_NEW_RKEY_F: u32 = 1 << 1;

/// `features` of both connection messages, which C sends as zero and ignores: answers take no more
/// messages than needed.
///
/// A client that sets it takes an answer without a message as one that leaves the chunk's key as
/// it is, even if the server invalidates always. A server that sets it sends the last of a read's
/// data with the immediate if the request does not ask for an invalidation.
pub const FEATURE_SHORT_RESPONSES: u32 = 1 << 0;

/// `features`: answers may come together.
///
/// A client that sets it takes messages with several answers, see [`coalesced_responses`], and posts receives
/// that have room for them. A server that sets it may send them for requests that were carried out
/// and need no more than that to be said.
pub const FEATURE_COALESCED_RESPONSES: u32 = 1 << 1;

/// `features`: the client may have a path ended by a message on another one, see
/// [`Imm::PathEnd`].
pub const FEATURE_PATH_END: u32 = 1 << 2;

/// The size of the longest message beside the immediate of an answer, in bytes.
pub const MAX_RESPONSE_MSG_SIZE: usize = if RkeyRsp::SIZE > coalesced_responses::MAX_COALESCED_SIZE
{
    RkeyRsp::SIZE
} else {
    coalesced_responses::MAX_COALESCED_SIZE
};

/// A 128-bit identifier, opaque here.
pub type Uuid = [u8; 16];

/// The type field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MsgType {
    /// Client to server, once per path.
    InfoReq = 0,
    /// Its answer.
    InfoRsp = 1,
    /// A request that carries data to the server.
    Write = 2,
    /// A request for data from the server.
    Read = 3,
    /// A fresh key, sent with an answer.
    RkeyRsp = 4,
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
            0 => Self::InfoReq,
            1 => Self::InfoRsp,
            2 => Self::Write,
            3 => Self::Read,
            4 => Self::RkeyRsp,
            _ => return Err(value),
        })
    }
}

/// Remote memory: where a peer may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SgDesc {
    /// The address in the peer's terms.
    pub addr: u64,
    /// The key that grants access.
    pub key: u32,
    /// The length in bytes.
    pub len: u32,
}

impl SgDesc {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::SgDesc>();

    /// The wire form.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        wire::to_array(&wire::SgDesc {
            addr: U64::new(self.addr),
            key: U32::new(self.key),
            len: U32::new(self.len),
        })
    }

    /// The value of a wire form.
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        wire::SgDesc::read_from_bytes(bytes.as_bytes())
            .map(Self::from)
            .unwrap_or_default()
    }
}

impl From<wire::SgDesc> for SgDesc {
    fn from(wire: wire::SgDesc) -> Self {
        Self {
            addr: wire.addr.get(),
            key: wire.key.get(),
            len: wire.len.get(),
        }
    }
}
