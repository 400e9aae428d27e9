// SPDX-License-Identifier: GPL-2.0

//! RTRS 2.0: constants and messages (C: `rtrs-pri.h`).
//!
//! A message type here holds native values. `to_bytes` gives its wire form, in which every byte is
//! written; `parse` checks a received message. Fields of several bytes are little-endian on the
//! wire. Only the immediate is big-endian, and the RDMA layer converts it.

pub mod auth;
mod chunk;
pub mod coalesced_responses;
mod conn;
mod features;
pub mod imm;
mod info;
mod limits;
pub mod request;
pub mod transcript;
mod wire;

pub use chunk::{
    ChunkLayout,
    LayoutError, //
};
pub use coalesced_responses::MAX_RESPONSE_MSG_SIZE;
pub use conn::{
    ConnAccept,
    ConnReject,
    ConnReq, //
};
pub use features::*;
pub use imm::{
    path_number,
    Imm, //
};
pub use info::{
    InfoReq,
    InfoRsp,
    RemoteBuf,
    SgDesc, //
};
pub use limits::*;
pub use request::{
    ReadMsg,
    Request,
    RkeyRsp,
    WriteMsg, //
};
pub use wire::{
    Code,
    MsgType,
    Nonce,
    Uuid, //
};
