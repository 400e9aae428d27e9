// SPDX-License-Identifier: GPL-2.0

//! Module parameters, fixed at load.

use kernel_ext::prelude::*;
use proto::{
    rtrs::{
        imm::MAX_IMM_PAYL_BITS,
        ChunkLayout,
        LayoutError,
        DEFAULT_MAX_CHUNK_SIZE,
        DEFAULT_SESS_QUEUE_DEPTH,
        MAX_HDR_SIZE,
        MAX_SESS_QUEUE_DEPTH,
        MIN_CHUNK_SIZE, //
    },
    setting, //
};
use rtrs_core::{
    heartbeat,
    params::Number, //
};

kernel_ext::module_parameter! {
    /// Whether a client's access to a chunk is taken away before its data is used.
    static ALWAYS_INVALIDATE: bool = true;
    name: "always_invalidate",
    description:
        "Take away a client's access to a chunk before the chunk's data is used (default: Y)",
}

kernel_ext::module_parameter! {
    /// The size of a chunk in bytes.
    static MAX_CHUNK_SIZE: i32 = DEFAULT_MAX_CHUNK_SIZE as i32;
    name: "max_chunk_size",
    description:
        "Size in bytes of a chunk, which is the memory for one request; a page of it is for the \
         request's header (a power of two from 8192, times sess_queue_depth at most 256 MiB, \
         default: 131072)",
}

kernel_ext::module_parameter! {
    /// The number of chunks of a session.
    static SESS_QUEUE_DEPTH: i32 = DEFAULT_SESS_QUEUE_DEPTH as i32;
    name: "sess_queue_depth",
    description:
        "Chunks of a session, of which service requests have one: the most requests in flight are \
         one less (1-65535, default: 512)",
}

kernel_ext::module_parameter! {
    /// Memory for chunks that is allocated at load, in MiB.
    static CHUNK_POOL_MB: u32 = 0;
    name: "chunk_pool_mb",
    description:
        "Memory in MiB to reserve at load for the chunks of sessions, which use it first (0 and \
         up, default: 0)",
}

kernel_ext::module_parameter! {
    /// How often to send a heartbeat. An extension.
    static HB_INTERVAL: Number = Number::new(setting::HB_INTERVAL);
    name: "hb_interval_ms",
    description: "Time in ms between two heartbeats of a path (10-600000, default: 5000)",
}

kernel_ext::module_parameter! {
    /// How many heartbeats may be missed. An extension.
    static HB_MISSED: Number = Number::new(setting::HB_MISSED);
    name: "hb_missed_max",
    description:
        "Heartbeat intervals that may pass without a message of the client before a path is closed \
         (1-100, default: 5)",
}

kernel_ext::module_parameter! {
    /// When the device sends again. An extension.
    static ACK_TIMEOUT: Number = Number::new(setting::ACK_TIMEOUT);
    name: "ack_timeout_ms",
    description:
        "Time in ms that the RDMA device waits for an acknowledgement before it sends again (0: \
         the RDMA CM chooses, at most 60000, default: 0)",
}

kernel_ext::module_parameter! {
    /// Whether clients have to prove their identity. An extension.
    static REQUIRE_AUTH: bool = false;
    name: "require_auth",
    description: "Refuse clients that do not prove their identity with a key, also those of \
                  mainline Linux (default: N)",
}

/// The parameters, checked.
pub(crate) struct Settings {
    /// The chunks of each session.
    pub(crate) layout: ChunkLayout,
    /// The most data of a request, in bytes.
    pub(crate) max_io_size: u32,
    /// Whether a client's access to a chunk is taken away before its data is used.
    pub(crate) always_invalidate: bool,
    /// The size of the pool of chunks, in MiB.
    pub(crate) chunk_pool_mb: u32,
    /// How clients that have disappeared are noticed.
    pub(crate) heartbeat: heartbeat::Settings,
    /// After how long without an acknowledgement the device sends again, in ms; 0: the CM decides.
    pub(crate) ack_timeout_ms: u32,
    /// Whether clients have to prove their identity.
    pub(crate) require_auth: bool,
}

impl Settings {
    /// Checks the parameters (C: `check_module_params`). `EINVAL` if a parameter cannot be used.
    pub(crate) fn new() -> Result<Self> {
        let (depth, size) = (*SESS_QUEUE_DEPTH.get(), *MAX_CHUNK_SIZE.get());
        match ChunkLayout::for_server(depth, size) {
            Ok(layout) => Ok(Self {
                // Cannot fail: the least chunk size is larger than the header.
                max_io_size: layout
                    .chunk_size()
                    .checked_sub(MAX_HDR_SIZE)
                    .ok_or(EINVAL)?,
                layout,
                always_invalidate: *ALWAYS_INVALIDATE.get(),
                chunk_pool_mb: *CHUNK_POOL_MB.get(),
                heartbeat: heartbeat::Settings {
                    interval_ms: HB_INTERVAL.get().value().unsigned_abs(),
                    missed_max: HB_MISSED.get().value().unsigned_abs(),
                },
                ack_timeout_ms: ACK_TIMEOUT.get().value().unsigned_abs(),
                require_auth: *REQUIRE_AUTH.get(),
            }),
            Err(error) => {
                log(error);
                Err(rtrs_core::error::from_errno(error.errno()))
            }
        }
    }
}

/// Logs the error, in the words of the C module.
fn log(error: LayoutError) {
    match error {
        LayoutError::QueueDepth(value) => pr_err!(
            "Invalid sess_queue_depth value {}, has to be >= {}, <= {}.\n",
            value,
            1,
            MAX_SESS_QUEUE_DEPTH
        ),
        LayoutError::ChunkSize(value) => pr_err!(
            "Invalid max_chunk_size value {}, has to be >= {} and should be power of two.\n",
            value,
            MIN_CHUNK_SIZE
        ),
        LayoutError::TooLarge {
            queue_depth,
            chunk_size,
        } => pr_err!(
            "RDMA immediate size ({}b) not enough to encode {} buffers of size {}B. \
             Reduce 'sess_queue_depth' or 'max_chunk_size' parameters.\n",
            MAX_IMM_PAYL_BITS,
            queue_depth,
            chunk_size
        ),
    }
}
