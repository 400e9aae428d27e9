// SPDX-License-Identifier: GPL-2.0

//! The structures on the wire, byte for byte.

use core::mem::offset_of;

use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

use crate::{
    rtrs::assert_layout,
    NAME_MAX, //
};

/// `struct rnbd_msg_hdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MsgHdr {
    pub(crate) r#type: U16,
    pub(crate) padding: U16,
}

assert_layout!(MsgHdr, 4, r#type: 0, padding: 2);

/// `struct rnbd_msg_sess_info`, and `struct rnbd_msg_sess_info_rsp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SessInfo {
    pub(crate) hdr: MsgHdr,
    pub(crate) ver: u8,
    pub(crate) reserved: [u8; 31],
}

assert_layout!(SessInfo, 36, hdr: 0, ver: 4, reserved: 5);

/// `struct rnbd_msg_open`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Open {
    pub(crate) hdr: MsgHdr,
    pub(crate) access_mode: u8,
    pub(crate) resv1: u8,
    pub(crate) dev_name: [u8; NAME_MAX],
    pub(crate) reserved: [u8; 3],
}

assert_layout!(Open, 264, hdr: 0, access_mode: 4, resv1: 5, dev_name: 6, reserved: 261);

/// `struct rnbd_msg_close`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Close {
    pub(crate) hdr: MsgHdr,
    pub(crate) device_id: U32,
}

assert_layout!(Close, 8, hdr: 0, device_id: 4);

/// `struct rnbd_msg_open_rsp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct OpenRsp {
    pub(crate) hdr: MsgHdr,
    pub(crate) device_id: U32,
    pub(crate) nsectors: U64,
    pub(crate) max_hw_sectors: U32,
    pub(crate) max_write_zeroes_sectors: U32,
    pub(crate) max_discard_sectors: U32,
    pub(crate) discard_granularity: U32,
    pub(crate) discard_alignment: U32,
    pub(crate) physical_block_size: U16,
    pub(crate) logical_block_size: U16,
    pub(crate) max_segments: U16,
    pub(crate) secure_discard: U16,
    pub(crate) obsolete_rotational: u8,
    pub(crate) cache_policy: u8,
    pub(crate) reserved: [u8; 10],
}

assert_layout!(
    OpenRsp, 56,
    hdr: 0, device_id: 4, nsectors: 8, max_hw_sectors: 16, max_write_zeroes_sectors: 20,
    max_discard_sectors: 24, discard_granularity: 28, discard_alignment: 32,
    physical_block_size: 36, logical_block_size: 38, max_segments: 40, secure_discard: 42,
    obsolete_rotational: 44, cache_policy: 45, reserved: 46,
);

/// The part of `struct rnbd_msg_io` that every version has.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct IoBase {
    pub(crate) hdr: MsgHdr,
    pub(crate) device_id: U32,
    pub(crate) sector: U64,
    pub(crate) rw: U32,
    pub(crate) bi_size: U32,
}

assert_layout!(IoBase, 24, hdr: 0, device_id: 4, sector: 8, rw: 16, bi_size: 20);

/// `struct rnbd_msg_io`; the padding is the C compiler's.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Io {
    pub(crate) base: IoBase,
    pub(crate) prio: U16,
    pub(crate) padding: [u8; 6],
}

assert_layout!(Io, 32, base: 0, prio: 24, padding: 26);
