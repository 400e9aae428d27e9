// SPDX-License-Identifier: GPL-2.0

//! The structures of RNBD on the wire, byte for byte (C: `rnbd-proto.h`).

use crate::{
    error::ProtoError,
    name::NAME_MAX,
    numbered::numbered,
    wire::{
        check_type,
        wire_structs,
        U16,
        U32,
        U64, //
    }, //
};

/// The major version. Both ends send their own, and use the smaller of the two.
pub const PROTO_VER_MAJOR: u8 = 2;
/// The minor version; never sent.
pub const PROTO_VER_MINOR: u8 = 2;

/// The unit of `sector` fields in bytes.
pub const SECTOR_SIZE: u32 = 512;

numbered! {
    /// The type field of a message.
    pub enum MsgType: u16 {
        /// The first message of a session.
        SessInfo = 0,
        /// The response to `SessInfo`.
        SessInfoRsp = 1,
        /// Opens a device.
        Open = 2,
        /// The response to `Open`.
        OpenRsp = 3,
        /// A block operation.
        Io = 4,
        /// Closes a device.
        Close = 5,
        /// Asks for news of devices; an extension.
        News = 6,
        /// The response to `News`.
        NewsRsp = 7,
        /// Tells the name of the client's machine; an extension.
        Host = 9,
        /// Reserves a disk, or asks how it is reserved; an extension.
        Reservation = 10,
        /// Tells how a disk is reserved.
        ReservationRsp = 11,
        /// Asks which disks there are; an extension.
        Discover = 12,
        /// The response to `Discover`.
        DiscoverRsp = 13,
    }
}

wire_structs! {
    /// `struct rnbd_msg_hdr`.
    struct MsgHdr: 4 {
        0 => r#type: U16,
        2 => padding: U16,
    }

    /// `struct rnbd_msg_sess_info`, and `struct rnbd_msg_sess_info_rsp`. C has 31 bytes `reserved`
    /// from offset 5, and sends there whatever its memory held: see
    /// [`Extension`](super::Extension).
    struct SessInfo: 36 {
        0 => hdr: MsgHdr,
        4 => ver: u8,
        5 => reserved0: [u8; 3],
        8 => magic: U32,
        12 => features: U32,
        16 => nonce: U64,
        24 => reserved1: [u8; 12],
    }

    /// `struct rnbd_msg_open`.
    struct Open: 264 {
        0 => hdr: MsgHdr,
        4 => access_mode: u8,
        5 => io_mode: u8,
        6 => dev_name: [u8; NAME_MAX],
        261 => reserved: [u8; 3],
    }

    /// `struct rnbd_msg_close`.
    struct Close: 8 {
        0 => hdr: MsgHdr,
        4 => device_id: U32,
    }

    /// Asks which disks there are.
    struct Discover: 264 {
        0 => hdr: MsgHdr,
        4 => after: [u8; NAME_MAX],
        259 => reserved: [u8; 5],
    }

    /// The front of the response to `Discover`.
    struct DiscoverRspHdr: 16 {
        0 => hdr: MsgHdr,
        4 => count: U16,
        6 => flags: U16,
        8 => reserved: [u8; 8],
    }

    /// The front of a disk in the response to `Discover`; path and wwid follow.
    struct FoundDisk: 20 {
        0 => nsectors: U64,
        8 => logical_block_size: U32,
        12 => sessions: U16,
        14 => modes: u8,
        15 => flags: u8,
        16 => path_len: u8,
        17 => wwid_len: u8,
        18 => reserved: [u8; 2],
    }

    /// Asks for news of devices.
    struct News: 12 {
        0 => hdr: MsgHdr,
        4 => since: U32,
        8 => first_device_id: U32,
    }

    /// The front of the response to `News`.
    struct NewsRspHdr: 16 {
        0 => hdr: MsgHdr,
        4 => sequence: U32,
        8 => count: U16,
        10 => flags: U16,
        12 => drain_ms: U32,
    }

    /// A device in the response to `News`.
    struct DeviceNews: 64 {
        0 => device_id: U32,
        4 => flags: U32,
        8 => nsectors: U64,
        16 => max_hw_sectors: U32,
        20 => max_write_zeroes_sectors: U32,
        24 => max_discard_sectors: U32,
        28 => max_secure_erase_sectors: U32,
        32 => discard_granularity: U32,
        36 => discard_alignment: U32,
        40 => physical_block_size: U32,
        44 => logical_block_size: U32,
        48 => max_segments: U32,
        52 => close_reason: u8,
        53 => reserved: [u8; 11],
    }

    /// Tells the name of the client's machine.
    struct Host: 24 {
        0 => hdr: MsgHdr,
        4 => reserved: U32,
        8 => uuid: [u8; 16],
    }

    /// Reserves a disk, or asks how it is reserved.
    struct Reservation: 32 {
        0 => hdr: MsgHdr,
        4 => device_id: U32,
        8 => action: u8,
        9 => kind: u8,
        10 => flags: U16,
        12 => sequence: U32,
        16 => key: U64,
        24 => service_key: U64,
    }

    /// The front of the response that tells how a disk is reserved.
    struct ReservationRspHdr: 24 {
        0 => hdr: MsgHdr,
        4 => generation: U32,
        8 => key: U64,
        16 => kind: u8,
        17 => reserved0: u8,
        18 => count: U16,
        20 => reserved1: U32,
    }

    /// `struct rnbd_msg_open_rsp`.
    struct OpenRsp: 56 {
        0 => hdr: MsgHdr,
        4 => device_id: U32,
        8 => nsectors: U64,
        16 => max_hw_sectors: U32,
        20 => max_write_zeroes_sectors: U32,
        24 => max_discard_sectors: U32,
        28 => discard_granularity: U32,
        32 => discard_alignment: U32,
        36 => physical_block_size: U16,
        38 => logical_block_size: U16,
        40 => max_segments: U16,
        42 => secure_discard: U16,
        44 => obsolete_rotational: u8,
        45 => cache_policy: u8,
        46 => io_mode: u8,
        47 => reserved: [u8; 9],
    }

    /// Follows the open response in a session with the extension for it.
    struct Identity: 128 {
        0 => wwid: [u8; 64],
        64 => reserved: [u8; 64],
    }

    /// The part of `struct rnbd_msg_io` that every version has.
    struct IoBase: 24 {
        0 => hdr: MsgHdr,
        4 => device_id: U32,
        8 => sector: U64,
        16 => rw: U32,
        20 => bi_size: U32,
    }

    /// `struct rnbd_msg_io`; the padding is the C compiler's.
    struct Io: 32 {
        0 => base: IoBase,
        24 => prio: U16,
        26 => padding: [u8; 6],
    }
}

impl MsgHdr {
    /// The header of a message of this type.
    #[inline]
    pub(super) fn new(msg_type: MsgType) -> Self {
        Self {
            r#type: U16::new(msg_type as u16),
            padding: U16::ZERO,
        }
    }

    /// Checks the type of a message.
    pub(super) fn check(self, what: &'static str, expected: MsgType) -> Result<(), ProtoError> {
        check_type(what, self.r#type, expected as u16)
    }
}
