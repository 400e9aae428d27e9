// SPDX-License-Identifier: GPL-2.0

//! The structures of RTRS on the wire, byte for byte (C: `rtrs-pri.h`).

use crate::{
    client_id::ClientId,
    name::NAME_MAX,
    numbered::numbered,
    wire::{
        wire_structs,
        U16,
        U32,
        U64, //
    }, //
};

/// A 128-bit identifier; its bytes have no meaning here.
pub type Uuid = [u8; 16];

/// A random number of one handshake.
pub type Nonce = [u8; 32];

/// The HMAC-SHA-256 code of a message under a key.
pub type Code = [u8; 32];

numbered! {
    /// The type field of a message.
    pub enum MsgType: u16 {
        /// Client to server, once per path: names the session.
        InfoReq = 0,
        /// The response to `InfoReq`.
        InfoRsp = 1,
        /// A request that carries data to the server.
        Write = 2,
        /// A request for data from the server.
        Read = 3,
        /// A fresh key, sent with a response.
        RkeyRsp = 4,
        /// Client to server, once per path: proves the client's identity.
        AuthReq = 5,
        /// The response to `AuthReq`: proves that the server knows the client's key.
        AuthRsp = 6,
    }
}

impl MsgType {
    /// The value on the wire.
    pub(super) fn to_wire(self) -> U16 {
        U16::new(self as u16)
    }
}

wire_structs! {
    /// `struct rtrs_sg_desc`.
    struct SgDesc: 16 {
        0 => addr: U64,
        8 => key: U32,
        12 => len: U32,
    }

    /// `struct rtrs_msg_conn_req`.
    struct ConnReq: 56 {
        /// Zero; the RDMA CM owns this byte over AF_IB.
        0 => cma_version: u8,
        /// Zero, since the RDMA CM would take another message for an IP header.
        1 => ip_version: u8,
        2 => magic: U16,
        4 => version: U16,
        6 => cid: U16,
        8 => cid_num: U16,
        10 => recon_cnt: U16,
        12 => sess_uuid: Uuid,
        28 => paths_uuid: Uuid,
        /// Bit 0; the other bits are reserved.
        44 => first_conn: u8,
        45 => reserved0: [u8; 3],
        /// Reserved and zero in C.
        48 => features: U32,
        /// Reserved and zero in C.
        52 => given_up: U32,
    }

    /// `struct rtrs_msg_conn_rsp`.
    struct ConnRsp: 56 {
        0 => magic: U16,
        2 => version: U16,
        /// A negative errno in two's complement, zero in an accept.
        4 => errno: U16,
        6 => queue_depth: U16,
        8 => max_io_size: U32,
        12 => max_hdr_size: U32,
        16 => flags: U32,
        /// Reserved and zero in C.
        20 => features: U32,
        /// Reserved and zero in C.
        24 => nonce: Nonce,
    }

    /// `struct rtrs_msg_info_req`.
    struct InfoReq: 272 {
        0 => r#type: U16,
        2 => pathname: [u8; NAME_MAX],
        257 => reserved: [u8; 15],
    }

    /// `struct rtrs_msg_info_rsp` without its descriptors.
    struct InfoRspHdr: 8 {
        0 => r#type: U16,
        2 => sg_cnt: U16,
        /// A negative errno in two's complement, zero unless the client is refused.
        4 => errno: U16,
        6 => reserved: [u8; 2],
    }

    /// `struct rtrs_msg_rkey_rsp`.
    struct RkeyRsp: 8 {
        0 => r#type: U16,
        2 => buf_id: U16,
        4 => rkey: U32,
    }

    /// `struct rtrs_msg_rdma_read` without its descriptors.
    struct RdmaReadHdr: 8 {
        0 => r#type: U16,
        2 => usr_len: U16,
        4 => flags: U16,
        6 => sg_cnt: U16,
    }

    /// `struct rtrs_msg_rdma_read` with its one descriptor.
    struct RdmaRead: 24 {
        0 => r#type: U16,
        2 => usr_len: U16,
        4 => flags: U16,
        6 => sg_cnt: U16,
        8 => addr: U64,
        16 => key: U32,
        20 => len: U32,
    }

    /// `struct rtrs_msg_rdma_write`; also the start of a read.
    struct RdmaWrite: 4 {
        0 => r#type: U16,
        2 => usr_len: U16,
    }

    /// The client's proof of its identity.
    struct AuthReq: 136 {
        0 => r#type: U16,
        2 => version: U16,
        4 => key: U32,
        8 => nonce: Nonce,
        40 => client_id: [u8; ClientId::FIELD_LEN],
        104 => code: Code,
    }

    /// The server's response to the client's proof.
    struct AuthRsp: 40 {
        0 => r#type: U16,
        /// A negative errno in two's complement, zero if the proof is right.
        2 => errno: U16,
        4 => reserved: [u8; 4],
        8 => code: Code,
    }

    /// The message of which the codes of both proofs are made; never sent.
    struct Transcript: 224 {
        0 => label: [u8; 16],
        16 => version: U16,
        18 => cid_num: U16,
        20 => recon_cnt: U16,
        22 => first_conn: u8,
        23 => family: u8,
        24 => server: [u8; 16],
        40 => sess_uuid: Uuid,
        56 => paths_uuid: Uuid,
        72 => offered: U32,
        76 => used: U32,
        80 => given_up: U32,
        84 => queue_pair: U32,
        88 => server_nonce: Nonce,
        120 => client_nonce: Nonce,
        152 => client_id: [u8; ClientId::FIELD_LEN],
        216 => key: U32,
        220 => reserved: [u8; 4],
    }

    /// The message of which the code of a further connection is made; never sent.
    struct FurtherConnection: 24 {
        0 => label: [u8; 16],
        16 => cid: U16,
        18 => reserved: [u8; 2],
        20 => queue_pair: U32,
    }
}
