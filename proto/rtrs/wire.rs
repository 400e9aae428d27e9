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

use super::Uuid;
use crate::NAME_MAX;

/// The bytes of a structure; `N` must be its size, which the callers' types
/// ensure by using `size_of`.
pub(crate) fn to_array<T, const N: usize>(value: &T) -> [u8; N]
where
    T: zerocopy::IntoBytes + zerocopy::Immutable,
{
    const { assert!(size_of::<T>() == N) };
    let mut bytes = [0; N];
    // Cannot fail, the sizes are equal.
    let _ = zerocopy::IntoBytes::write_to(value, &mut bytes);
    bytes
}

/// Asserts the size of a structure and the offset of each of its fields.
macro_rules! assert_layout {
    ($type:ident, $size:literal, $($field:ident: $offset:literal),* $(,)?) => {
        const _: () = assert!(size_of::<$type>() == $size);
        $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
    };
}
pub(crate) use assert_layout;

/// `struct rtrs_sg_desc`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SgDesc {
    pub(crate) addr: U64,
    pub(crate) key: U32,
    pub(crate) len: U32,
}

assert_layout!(SgDesc, 16, addr: 0, key: 8, len: 12);

/// `struct rtrs_msg_conn_req`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ConnReq {
    /// Owned by the RDMA CM over AF_IB; zero.
    pub(crate) cma_version: u8,
    /// Must be zero, or the RDMA CM takes the message for an IP header.
    pub(crate) ip_version: u8,
    pub(crate) magic: U16,
    pub(crate) version: U16,
    pub(crate) cid: U16,
    pub(crate) cid_num: U16,
    pub(crate) recon_cnt: U16,
    pub(crate) sess_uuid: Uuid,
    pub(crate) paths_uuid: Uuid,
    /// Bit 0; the others are reserved.
    pub(crate) first_conn: u8,
    pub(crate) reserved0: [u8; 3],
    /// Reserved and zero in C.
    pub(crate) features: U32,
    /// Reserved and zero in C.
    pub(crate) given_up: U32,
}

assert_layout!(
    ConnReq, 56,
    cma_version: 0, ip_version: 1, magic: 2, version: 4, cid: 6, cid_num: 8, recon_cnt: 10,
    sess_uuid: 12, paths_uuid: 28, first_conn: 44, reserved0: 45, features: 48, given_up: 52,
);

/// `struct rtrs_msg_conn_rsp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ConnRsp {
    pub(crate) magic: U16,
    pub(crate) version: U16,
    /// A negative errno in two's complement, zero in an accept.
    pub(crate) errno: U16,
    pub(crate) queue_depth: U16,
    pub(crate) max_io_size: U32,
    pub(crate) max_hdr_size: U32,
    pub(crate) flags: U32,
    /// Reserved and zero in C.
    pub(crate) features: U32,
    pub(crate) reserved: [u8; 32],
}

assert_layout!(
    ConnRsp, 56,
    magic: 0, version: 2, errno: 4, queue_depth: 6, max_io_size: 8, max_hdr_size: 12, flags: 16,
    features: 20, reserved: 24,
);

/// `struct rtrs_msg_info_req`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InfoReq {
    pub(crate) r#type: U16,
    pub(crate) pathname: [u8; NAME_MAX],
    pub(crate) reserved: [u8; 15],
}

assert_layout!(InfoReq, 272, r#type: 0, pathname: 2, reserved: 257);

/// `struct rtrs_msg_info_rsp` without its descriptors.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InfoRspHdr {
    pub(crate) r#type: U16,
    pub(crate) sg_cnt: U16,
    pub(crate) reserved: [u8; 4],
}

assert_layout!(InfoRspHdr, 8, r#type: 0, sg_cnt: 2, reserved: 4);

/// `struct rtrs_msg_rkey_rsp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RkeyRsp {
    pub(crate) r#type: U16,
    pub(crate) buf_id: U16,
    pub(crate) rkey: U32,
}

assert_layout!(RkeyRsp, 8, r#type: 0, buf_id: 2, rkey: 4);

/// `struct rtrs_msg_rdma_read` without its descriptors.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RdmaReadHdr {
    pub(crate) r#type: U16,
    pub(crate) usr_len: U16,
    pub(crate) flags: U16,
    pub(crate) sg_cnt: U16,
}

assert_layout!(RdmaReadHdr, 8, r#type: 0, usr_len: 2, flags: 4, sg_cnt: 6);

/// `struct rtrs_msg_rdma_write`; also the start of a read.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RdmaWrite {
    pub(crate) r#type: U16,
    pub(crate) usr_len: U16,
}

assert_layout!(RdmaWrite, 4, r#type: 0, usr_len: 2);
