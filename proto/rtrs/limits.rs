// SPDX-License-Identifier: GPL-2.0

//! Versions, limits and defaults of RTRS 2.0 (C: `rtrs-pri.h`).

/// The first field of both connection messages.
pub const MAGIC: u16 = 0x1bbd;
/// Peers must agree on it.
pub const PROTO_VER_MAJOR: u8 = 2;
/// Ignored by peers.
pub const PROTO_VER_MINOR: u8 = 0;
/// The version field of both connection messages.
pub const PROTO_VER: u16 = u16::from_be_bytes([PROTO_VER_MAJOR, PROTO_VER_MINOR]);

/// The most chunks of a session.
pub const MAX_SESS_QUEUE_DEPTH: u32 = 65535;
/// The smallest chunk a server may be configured for, in bytes.
pub const MIN_CHUNK_SIZE: u32 = 8192;
/// The default of the server's `max_chunk_size`, in bytes.
pub const DEFAULT_MAX_CHUNK_SIZE: u32 = 128 << 10;
/// The default of the server's `sess_queue_depth`.
pub const DEFAULT_SESS_QUEUE_DEPTH: u32 = 512;
/// What a server sets aside in each chunk for the messages behind the data, in
/// bytes (`PAGE_SIZE` in C).
pub const MAX_HDR_SIZE: u32 = 4096;
/// The queue depth of connection 0, which carries service messages.
pub const SERVICE_CON_QUEUE_DEPTH: u32 = 512;
/// The most paths of a session.
pub const MAX_PATHS_NUM: usize = 128;
/// The most connections of a path a server takes.
pub const MAX_CON_NUM: u16 = 4096;
/// The most segments of a request; segments are at most 4 KiB.
pub const MAX_SEGMENTS: u32 = 128;

/// The time between two heartbeats, in ms.
pub const HB_INTERVAL_MS: u32 = 5000;
/// The intervals without an answer after which a path is given up is one more
/// than this.
pub const HB_MISSED_MAX: u32 = 5;

/// How long a client waits for a connection step, in ms; also the age at which
/// a server closes a path that is still connecting.
pub const CONNECT_TIMEOUT_MS: u32 = 30_000;
/// The default of the longest time between two attempts to reconnect, in ms.
pub const RECONNECT_DELAY_MS: u32 = 30_000;

/// `flags` of a read request: answer with the invalidation of its key.
pub const MSG_NEED_INVAL_F: u16 = 1 << 0;
/// `flags` of an accept: every answer carries a fresh key for its chunk.
pub const MSG_NEW_RKEY_F: u32 = 1 << 1;

/// The bits of an immediate that are its type.
pub const MAX_IMM_TYPE_BITS: u32 = 4;
/// The bits of an immediate that are its payload.
pub const MAX_IMM_PAYL_BITS: u32 = 28;
/// The payload's part of an immediate.
pub const MAX_IMM_PAYL_MASK: u32 = (1 << MAX_IMM_PAYL_BITS) - 1;

const _: () = assert!(MAX_IMM_TYPE_BITS + MAX_IMM_PAYL_BITS == u32::BITS);
