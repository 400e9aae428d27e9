// SPDX-License-Identifier: GPL-2.0

//! RNBD 2.2: messages between the block device's two ends (C: `rnbd-proto.h`).
//!
//! A message is the user's part of an RTRS request. Only `SessInfo`, `Open`, `News`, `Discover` and
//! a `Reservation` that asks how the disk is reserved have a response, which is the data of a read
//! request. The errno alone is the response to the other messages.

mod discovery;
mod features;
mod host;
mod identity;
mod io;
mod limits;
mod news;
mod open;
mod request;
mod reservation;
mod session;
mod wire;

pub use discovery::{
    Discover,
    DiscoverRsp,
    DiscoverRspWriter,
    FoundDisk,
    Modes, //
};
pub use features::*;
pub use host::Host;
pub use identity::{
    IdKind,
    Identity,
    UniqueId,
    Wwid, //
};
pub use io::{
    BlockOp,
    Io,
    IoError,
    IoFlags,
    Op,
    RangeOp,
    Rw, //
};
pub use limits::DiskLimits;
pub use news::{
    next_sequence,
    CloseReason,
    DeviceNews,
    News,
    NewsHeader,
    NewsRsp,
    MAX_DRAIN_MS,
    NO_NEWS, //
};
pub use open::{
    AccessMode,
    CachePolicy,
    IoMode,
    Open,
    OpenRsp, //
};
pub use request::Request;
pub use reservation::{
    Action,
    Command,
    CommandError,
    Kind,
    Report,
    Reservation,
    MAX_REGISTRANTS, //
};
pub use session::{
    Close,
    Extension,
    SessInfo, //
};
pub use wire::{
    MsgType,
    PROTO_VER_MAJOR,
    PROTO_VER_MINOR,
    SECTOR_SIZE, //
};
