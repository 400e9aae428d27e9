// SPDX-License-Identifier: GPL-2.0

//! The messages of a client.

use super::{
    wire::{
        self,
        MsgType, //
    },
    Close,
    Discover,
    Host,
    Io,
    News,
    Open,
    Reservation,
    SessInfo,
    FEATURE_DISCOVERY,
    FEATURE_NEWS,
    FEATURE_RESERVATIONS, //
};
use crate::{
    error::ProtoError,
    wire::split, //
};

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
    /// Asks for news of devices.
    News(News),
    /// Asks which disks there are.
    Discover(Discover),
    /// Tells the name of the client's machine.
    Host(Host),
    /// Reserves a disk, or asks how it is reserved.
    Reservation(Reservation),
}

impl Request {
    /// Checks a received message.
    ///
    /// `bytes` is a private copy of the user's part of the request. As in C, `bytes` may be longer
    /// than the message, never shorter; only an IO message may end before its `prio`, which came
    /// with RNBD 2.1. `features` are the extensions that the session uses: a message of another
    /// extension has an unknown type.
    pub fn parse(bytes: &[u8], features: u32) -> Result<Self, ProtoError> {
        let what = "RNBD message";
        let (hdr, _) = split::<wire::MsgHdr>(bytes, what)?;
        let found = hdr.r#type.get();
        match MsgType::try_from(found) {
            Ok(MsgType::Io) => Io::parse(bytes).map(Self::Io),
            Ok(MsgType::SessInfo) => {
                let (msg, _) = split::<wire::SessInfo>(bytes, "session info message")?;
                Ok(Self::SessInfo(SessInfo::of(msg)))
            }
            Ok(MsgType::Open) => Open::parse(bytes, features).map(Self::Open),
            Ok(MsgType::Close) => {
                let (msg, _) = split::<wire::Close>(bytes, "close message")?;
                let device_id = msg.device_id.get();
                Ok(Self::Close(Close { device_id }))
            }
            Ok(MsgType::News) if features & FEATURE_NEWS != 0 => News::parse(bytes).map(Self::News),
            Ok(MsgType::Discover) if features & FEATURE_DISCOVERY != 0 => {
                Discover::parse(bytes).map(Self::Discover)
            }
            Ok(MsgType::Host) if features & FEATURE_RESERVATIONS != 0 => {
                Host::parse(bytes).map(Self::Host)
            }
            Ok(MsgType::Reservation) if features & FEATURE_RESERVATIONS != 0 => {
                Reservation::parse(bytes).map(Self::Reservation)
            }
            // A response, or a message of an extension that the session does not use.
            Ok(_) | Err(_) => Err(ProtoError::BadType { what, found }),
        }
    }
}
