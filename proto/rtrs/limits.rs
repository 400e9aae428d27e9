// SPDX-License-Identifier: GPL-2.0

//! Versions, limits and defaults of RTRS 2.0 (C: `rtrs-pri.h`).

/// The first field of both connection messages.
pub const MAGIC: u16 = 0x1bbd;
/// The major version; both ends must have the same.
pub const PROTO_VER_MAJOR: u8 = 2;
/// The minor version; ignored by peers.
pub const PROTO_VER_MINOR: u8 = 0;
/// The version field of both connection messages.
pub const PROTO_VER: u16 = u16::from_be_bytes([PROTO_VER_MAJOR, PROTO_VER_MINOR]);

/// The most chunks of a session (C: `MAX_SESS_QUEUE_DEPTH`).
pub const MAX_SESS_QUEUE_DEPTH: u32 = 65535;
/// The smallest chunk a server may be configured for, in bytes (C: `MIN_CHUNK_SIZE`).
pub const MIN_CHUNK_SIZE: u32 = 8192;
/// The default of the server's `max_chunk_size`, in bytes (C: `DEFAULT_MAX_CHUNK_SIZE`).
pub const DEFAULT_MAX_CHUNK_SIZE: u32 = 128 << 10;
/// The default of the server's `sess_queue_depth` (C: `DEFAULT_SESS_QUEUE_DEPTH`).
pub const DEFAULT_SESS_QUEUE_DEPTH: u32 = 512;
/// The part of each chunk that a server sets aside for the messages behind the data, in bytes (C:
/// `MAX_HDR_SIZE`, a page).
pub const MAX_HDR_SIZE: u32 = 4096;
/// The queue depth of connection 0, which carries service messages (C: `SERVICE_CON_QUEUE_DEPTH`).
pub const SERVICE_CON_QUEUE_DEPTH: u32 = 512;
/// The most paths of a session (C: `MAX_PATHS_NUM`).
pub const MAX_PATHS_NUM: usize = 128;
/// The most connections of a path that this server accepts; C's server has no such limit.
pub const MAX_CON_NUM: u16 = 4096;
/// The most segments of a request, of at most 4 KiB each (C: `RTRS_MAX_SEGMENTS`).
pub const MAX_SEGMENTS: u32 = 128;
/// The most bytes of a segment.
pub const SEGMENT_SIZE: u32 = 4096;

/// The most segments of data of this many bytes, and the most pages of 4 KiB that the data touches.
///
/// Only the first and the last segment may be shorter than a page, as a registration has no gaps.
pub const fn segments_of(bytes: u32) -> u32 {
    // At most 2^20.
    bytes.div_ceil(SEGMENT_SIZE).wrapping_add(1)
}

/// The default of the time between two heartbeats, in ms (C: `RTRS_HB_INTERVAL_MS`).
pub const HB_INTERVAL_MS: u32 = 5000;
/// The default of the intervals without a message of the peer that a path survives (C:
/// `RTRS_HB_MISSED_MAX`).
pub const HB_MISSED_MAX: u32 = 5;

/// The time that a client waits for a step of a connection, in ms. Also the time without progress
/// after which a server closes a path that is still connecting (C: `RTRS_CONNECT_TIMEOUT_MS`).
pub const CONNECT_TIMEOUT_MS: u32 = 30_000;
/// The default of the longest time between two attempts to reconnect, in ms (C:
/// `RECONNECT_DELAY` of the block driver, in s).
pub const RECONNECT_DELAY_MS: u32 = 30_000;

/// `flags` of a read request: the response invalidates the key of its descriptor (C:
/// `RTRS_MSG_NEED_INVAL_F`).
pub const MSG_NEED_INVAL_F: u16 = 1 << 0;
/// `flags` of an accept: each response carries a fresh key for its chunk (C:
/// `RTRS_MSG_NEW_RKEY_F`).
pub const MSG_NEW_RKEY_F: u32 = 1 << 1;

/// The bits of an immediate that are its type (C: `MAX_IMM_TYPE_BITS`).
pub const MAX_IMM_TYPE_BITS: u32 = 4;
/// The bits of an immediate that are its payload (C: `MAX_IMM_PAYL_BITS`).
pub const MAX_IMM_PAYL_BITS: u32 = 28;
/// The mask of the payload in an immediate.
pub const MAX_IMM_PAYL_MASK: u32 = (1 << MAX_IMM_PAYL_BITS) - 1;

const _: () = assert!(MAX_IMM_TYPE_BITS + MAX_IMM_PAYL_BITS == u32::BITS);
