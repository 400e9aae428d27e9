// SPDX-License-Identifier: GPL-2.0

//! RNBD 2.2: messages between the block device's two ends (C: `rnbd-proto.h`).
//!
//! A message is the user's part of an RTRS request. Only `SessInfo` and `Open` have a response,
//! which is the data of a read request; the errno alone is the response to the other messages.

mod io;
mod open;
mod request;
mod session;
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
    AccessMode,
    CachePolicy,
    Open,
    OpenRsp, //
};
pub use request::{
    Request,
    MAX_MSG_SIZE, //
};
pub use session::{
    Close,
    SessInfo, //
};
pub use wire::{
    MsgType,
    PROTO_VER_MAJOR,
    PROTO_VER_MINOR,
    SECTOR_SIZE, //
};
