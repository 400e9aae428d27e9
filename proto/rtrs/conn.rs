// SPDX-License-Identifier: GPL-2.0

//! The connection messages, carried as private data of the RDMA CM.

use core::cmp::Ordering;

use zerocopy::FromZeros;

use super::{
    wire::{
        self,
        Uuid, //
    },
    ChunkLayout,
    MAGIC,
    MAX_CON_NUM,
    MSG_NEW_RKEY_F,
    PROTO_VER,
    PROTO_VER_MAJOR, //
};
use crate::{
    errno::Errno,
    error::ProtoError,
    wire::{
        split,
        to_array,
        U16, //
    }, //
};

/// A client's request for one of a path's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnReq {
    /// The number of this connection, below `cid_num`.
    pub cid: u16,
    /// The connections of the path, at most [`MAX_CON_NUM`].
    pub cid_num: u16,
    /// The number of this attempt to connect the path, modulo 2^16; our client begins with 1. The
    /// same for all connections of the attempt.
    pub recon_cnt: u16,
    /// The identifier of the path.
    pub sess_uuid: Uuid,
    /// The identifier of the session.
    pub paths_uuid: Uuid,
    /// Whether the server may make a new session for this connection.
    pub first_conn: bool,
    /// Extensions the client can use, a bit each; zero from a C client.
    pub features: u32,
    /// The number of requests of the session that the client has given up, modulo 2^32; zero from a
    /// C client. See [`ConnReq::given_up_since`].
    pub given_up: u32,
}

impl ConnReq {
    /// The size on the wire in bytes, the most that the RDMA CM carries over IP.
    pub const SIZE: usize = size_of::<wire::ConnReq>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::ConnReq {
            cma_version: 0,
            ip_version: 0,
            magic: MAGIC.into(),
            version: PROTO_VER.into(),
            cid: self.cid.into(),
            cid_num: self.cid_num.into(),
            recon_cnt: self.recon_cnt.into(),
            sess_uuid: self.sess_uuid,
            paths_uuid: self.paths_uuid,
            first_conn: u8::from(self.first_conn),
            reserved0: [0; 3],
            features: self.features.into(),
            given_up: self.given_up.into(),
        })
    }

    /// Checks a received request; `bytes` may be longer than the message.
    ///
    /// The errno for the reject is [`ProtoError::connect_errno`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::ConnReq>(bytes, "connection request")?;
        check_magic_version(msg.magic, msg.version)?;
        let (cid, cid_num) = (msg.cid.get(), msg.cid_num.get());
        let bad = |field, value: u16| Err(ProtoError::bad_field(field, value));
        if cid_num > MAX_CON_NUM {
            return bad("cid_num of the connection request", cid_num);
        }
        if cid >= cid_num {
            return bad("cid of the connection request", cid);
        }
        Ok(Self {
            cid,
            cid_num,
            recon_cnt: msg.recon_cnt.get(),
            sess_uuid: msg.sess_uuid,
            paths_uuid: msg.paths_uuid,
            first_conn: msg.first_conn & 1 != 0,
            features: msg.features.get(),
            given_up: msg.given_up.get(),
        })
    }

    /// Compares the client's count of requests that it has given up with the count when the session
    /// was made.
    ///
    /// `Greater`: the server may still be at work on such requests, while the client uses their
    /// chunks for other requests. `Less`: this message is late. The counts wrap around.
    pub fn given_up_since(&self, session: u32) -> Ordering {
        (self.given_up.wrapping_sub(session) as i32).cmp(&0)
    }
}

/// A server's response to a connection that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnAccept {
    /// The number of chunks.
    pub queue_depth: u16,
    /// The part of a chunk for data, in bytes.
    pub max_io_size: u32,
    /// The part of a chunk for messages, in bytes.
    pub max_hdr_size: u32,
    /// Whether each response carries a fresh key (`always_invalidate`).
    pub new_rkey: bool,
    /// The extensions that both ends use; zero from a C server.
    pub features: u32,
}

impl ConnAccept {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::ConnRsp>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::ConnRsp {
            queue_depth: self.queue_depth.into(),
            max_io_size: self.max_io_size.into(),
            max_hdr_size: self.max_hdr_size.into(),
            flags: (if self.new_rkey { MSG_NEW_RKEY_F } else { 0 }).into(),
            features: self.features.into(),
            ..wire::ConnRsp::new()
        })
    }

    /// Checks the private data of an established connection; `bytes` may be longer than the
    /// message. Only the response on connection 0 describes the session; the responses on other
    /// connections may be ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let msg = parse_rsp(bytes)?;
        if msg.errno.get() != 0 {
            return Err(ProtoError::Refused(errno_of_refusal(msg.errno)));
        }
        let accept = Self {
            queue_depth: msg.queue_depth.get(),
            max_io_size: msg.max_io_size.get(),
            max_hdr_size: msg.max_hdr_size.get(),
            new_rkey: msg.flags.get() & MSG_NEW_RKEY_F != 0,
            features: msg.features.get(),
        };
        accept.layout()?;
        Ok(accept)
    }

    /// The layout of the chunks; `Ok` for each response that `parse` returned.
    pub fn layout(&self) -> Result<ChunkLayout, ProtoError> {
        for (field, value) in [
            ("max_io_size of the connection response", self.max_io_size),
            ("max_hdr_size of the connection response", self.max_hdr_size),
            (
                "queue_depth of the connection response",
                self.queue_depth.into(),
            ),
        ] {
            if value == 0 {
                return Err(ProtoError::bad_field(field, value));
            }
        }
        // The sum of two `u32` fits a `u64`.
        let size = u64::from(self.max_io_size).wrapping_add(self.max_hdr_size.into());
        u32::try_from(size)
            .ok()
            .and_then(|size| ChunkLayout::new(self.queue_depth.into(), size).ok())
            .ok_or(ProtoError::bad_field(
                "chunk size of the connection response",
                size,
            ))
    }
}

/// A server's response to a connection that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnReject {
    /// The reason.
    pub errno: Errno,
}

impl ConnReject {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::ConnRsp>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::ConnRsp {
            // The number is at most 4095, so the cast loses nothing.
            errno: (self.errno.to_kernel() as u16).into(),
            ..wire::ConnRsp::new()
        })
    }

    /// The errno in the private data of a rejected connection; `bytes` may be longer than the
    /// message. A value that is not an errno of user space becomes `ECONNRESET`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let msg = parse_rsp(bytes)?;
        Ok(Self {
            errno: errno_of_refusal(msg.errno),
        })
    }
}

impl wire::ConnRsp {
    /// An otherwise empty response of this version.
    fn new() -> Self {
        Self {
            magic: MAGIC.into(),
            version: PROTO_VER.into(),
            ..FromZeros::new_zeroed()
        }
    }
}

fn parse_rsp(bytes: &[u8]) -> Result<&wire::ConnRsp, ProtoError> {
    let (msg, _) = split::<wire::ConnRsp>(bytes, "connection response")?;
    check_magic_version(msg.magic, msg.version)?;
    Ok(msg)
}

fn check_magic_version(magic: U16, version: U16) -> Result<(), ProtoError> {
    if magic.get() != MAGIC {
        return Err(ProtoError::BadMagic(magic.get()));
    }
    let [major, _] = version.get().to_be_bytes();
    if major != PROTO_VER_MAJOR {
        return Err(ProtoError::UnsupportedVersion {
            version: version.get(),
            expected: PROTO_VER_MAJOR,
        });
    }
    Ok(())
}

/// The errno of a refusal; `ECONNRESET` for a value that is not an errno of user space.
pub(super) fn errno_of_refusal(errno: U16) -> Errno {
    let errno = i16::from_le_bytes(errno.to_bytes());
    Errno::from_peer(errno.into()).unwrap_or(Errno::ECONNRESET)
}
