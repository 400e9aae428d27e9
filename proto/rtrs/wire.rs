// SPDX-License-Identifier: GPL-2.0

//! The structures of RTRS on the wire, byte for byte (C: `rtrs-pri.h`).

use crate::{
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

numbered! {
    /// The type field of a message.
    pub enum MsgType: u16 {
        /// Client to server, once per path.
        InfoReq = 0,
        /// The response to it.
        InfoRsp = 1,
        /// A request that carries data to the server.
        Write = 2,
        /// A request for data from the server.
        Read = 3,
        /// A fresh key, sent with a response.
        RkeyRsp = 4,
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
        /// Belongs to the RDMA CM over AF_IB; zero.
        0 => cma_version: u8,
        /// Zero, or the RDMA CM takes the message for an IP header.
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
        24 => reserved: [u8; 32],
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
        4 => reserved: [u8; 4],
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
}
