// SPDX-License-Identifier: GPL-2.0

//! The 32-bit immediate of an RDMA write or send: 4 bits of type, 28 bits of
//! payload.

use super::{
    wire::Uuid,
    ChunkLayout, //
};
pub use super::{
    MAX_IMM_PAYL_BITS,
    MAX_IMM_PAYL_MASK,
    MAX_IMM_TYPE_BITS, //
};

/// The bits of the message id in the payload of a response; the 9 bits above are the errno (C:
/// `rtrs_to_io_rsp_imm`).
const MSG_ID_BITS: u32 = 19;
const MSG_ID_MASK: u32 = (1 << MSG_ID_BITS) - 1;
const ERRNO_MASK: u32 = (1 << (MAX_IMM_PAYL_BITS - MSG_ID_BITS)) - 1;

/// `EIO`, sent instead of an errno that does not fit into 9 bits.
const EIO: u32 = 5;

const IO_REQ: u32 = 0;
const IO_RSP: u32 = 1;
const IO_RSP_W_INV: u32 = 2;
const IO_RSPS: u32 = 3;
const PATH_END: u32 = 4;
const PATH_ENDED: u32 = 5;
const DOORBELL: u32 = 6;
const HB_MSG: u32 = 8;
const HB_ACK: u32 = 9;

/// The number by which an immediate names a path, below 2^28, made of `sess_uuid` and `recon_cnt`
/// of the path's connection requests.
///
/// Two paths of a session have the same number with a chance of 1 in 2^28. Then the server ends
/// both, except the path that carries the question, and the client may take the end of one path for
/// the end of the other.
pub const fn path_number(sess_uuid: &Uuid, recon_cnt: u16) -> u32 {
    let [a, b, c, d, ..] = *sess_uuid;
    u32::from_le_bytes([a, b, c, d]).wrapping_add(recon_cnt as u32) & MAX_IMM_PAYL_MASK
}

/// A decoded immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imm {
    /// A request has been written to a chunk (client to server).
    IoReq {
        /// The chunk, and the offset of the message in the chunk; see [`ChunkLayout::decode`].
        payload: u32,
    },
    /// The response to a request (server to client).
    IoRsp {
        /// The number of the request's chunk, below 2^19.
        msg_id: u32,
        /// Zero or a negative errno, `-511..=0`.
        errno: i32,
        /// Whether the response came with the invalidation of the request's key.
        invalidated: bool,
    },
    /// Coalesced responses, which are in the message; only with
    /// [`FEATURE_COALESCED_RESPONSES`](super::FEATURE_COALESCED_RESPONSES).
    IoRsps {
        /// The number of responses, below 2^28.
        count: u32,
    },
    /// The client has lost another path of the session, and asks the server to end it (client
    /// to server); only with [`FEATURE_PATH_END`](super::FEATURE_PATH_END).
    PathEnd {
        /// The path's [`path_number`].
        path: u32,
    },
    /// The server has ended the path (server to client): it begins with no further request of the
    /// path, and nothing that arrives by the path changes a chunk. A server whose send queue is
    /// full drops this response, and the client asks again.
    PathEnded {
        /// The path's [`path_number`].
        path: u32,
    },
    /// A doorbell: the server's user has something to tell, and the client's user asks for it
    /// (server to client); only with [`FEATURE_DOORBELL`](super::FEATURE_DOORBELL).
    Doorbell {
        /// A number of the user, below 2^28; the transport does not look at it.
        number: u32,
    },
    /// A heartbeat, to be acknowledged.
    HbMsg,
    /// The acknowledgement of a heartbeat.
    HbAck,
    /// A type that this version does not know.
    Unknown {
        /// The type, below 16.
        imm_type: u8,
        /// The payload, below 2^28.
        payload: u32,
    },
}

impl Imm {
    /// The encoded immediate of a request whose message is at `off` in chunk `msg_id`; `None` if
    /// the layout has no such place.
    #[inline(always)]
    pub const fn encode_io_req(layout: &ChunkLayout, msg_id: u32, off: u32) -> Option<u32> {
        match layout.encode(msg_id, off) {
            Some(payload) => Some((IO_REQ << MAX_IMM_PAYL_BITS) | (payload & MAX_IMM_PAYL_MASK)),
            None => None,
        }
    }

    /// The value for the RDMA layer, in native byte order.
    ///
    /// Bits outside a field's range are dropped, as in C. An errno never turns into another errno
    /// or into success: an errno that does not fit is sent as `EIO`.
    #[inline]
    pub const fn encode(self) -> u32 {
        let (imm_type, payload) = match self {
            Self::IoReq { payload } => (IO_REQ, payload),
            Self::IoRsp {
                msg_id,
                errno,
                invalidated,
            } => {
                let errno = errno.unsigned_abs();
                let errno = if errno > ERRNO_MASK { EIO } else { errno };
                let imm_type = if invalidated { IO_RSP_W_INV } else { IO_RSP };
                (imm_type, (errno << MSG_ID_BITS) | (msg_id & MSG_ID_MASK))
            }
            Self::IoRsps { count } => (IO_RSPS, count),
            Self::PathEnd { path } => (PATH_END, path),
            Self::PathEnded { path } => (PATH_ENDED, path),
            Self::Doorbell { number } => (DOORBELL, number),
            Self::HbMsg => (HB_MSG, 0),
            Self::HbAck => (HB_ACK, 0),
            Self::Unknown { imm_type, payload } => (imm_type as u32, payload),
        };
        (imm_type << MAX_IMM_PAYL_BITS) | (payload & MAX_IMM_PAYL_MASK)
    }

    /// The meaning of an immediate in native byte order. Each value has a meaning.
    #[inline]
    pub const fn decode(imm: u32) -> Self {
        match (imm >> MAX_IMM_PAYL_BITS, imm & MAX_IMM_PAYL_MASK) {
            (IO_REQ, payload) => Self::IoReq { payload },
            (imm_type @ (IO_RSP | IO_RSP_W_INV), payload) => Self::IoRsp {
                msg_id: payload & MSG_ID_MASK,
                // The errno is at most 511, so neither the cast nor the negation loses bits.
                errno: ((payload >> MSG_ID_BITS) as i32).wrapping_neg(),
                invalidated: imm_type == IO_RSP_W_INV,
            },
            (IO_RSPS, payload) => Self::IoRsps { count: payload },
            (PATH_END, payload) => Self::PathEnd { path: payload },
            (PATH_ENDED, payload) => Self::PathEnded { path: payload },
            (DOORBELL, payload) => Self::Doorbell { number: payload },
            (HB_MSG, _) => Self::HbMsg,
            (HB_ACK, _) => Self::HbAck,
            (imm_type, payload) => Self::Unknown {
                imm_type: imm_type as u8,
                payload,
            },
        }
    }
}
