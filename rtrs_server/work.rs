// SPDX-License-Identifier: GPL-2.0

//! What the work requests of a connection are for.

use kernel_ext::rdma::WrId;

/// What a completion is for; encoded in the work request's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A receive without a buffer: requests and heartbeats come as immediates.
    Receive,
    /// An answer or a heartbeat; its completion gives send queue entries back.
    Answer,
    /// Data of an answer, the registration of a chunk, or an invalidation at the client; only
    /// completes in error.
    Unsignaled,
    /// The information request of the client.
    InfoRequest,
    /// The answer to it.
    InfoResponse,
    /// The invalidation of a chunk's registration.
    Invalidate(u32),
}

/// The ids that are not counted per chunk.
const FIXED_IDS: u32 = 5;

impl WorkKind {
    /// How many ids a connection of a session with `queue_depth` chunks needs.
    pub(crate) const fn count(queue_depth: u32) -> u32 {
        FIXED_IDS.saturating_add(queue_depth)
    }

    /// The id of this kind.
    pub(crate) fn id(self) -> WrId {
        WrId(match self {
            WorkKind::Receive => 0,
            WorkKind::Answer => 1,
            WorkKind::Unsignaled => 2,
            WorkKind::InfoRequest => 3,
            WorkKind::InfoResponse => 4,
            WorkKind::Invalidate(chunk) => FIXED_IDS.saturating_add(chunk),
        })
    }

    /// The kind that `id` was made of.
    pub(crate) fn of(id: WrId) -> Self {
        match id.0 {
            0 => WorkKind::Receive,
            1 => WorkKind::Answer,
            2 => WorkKind::Unsignaled,
            3 => WorkKind::InfoRequest,
            4 => WorkKind::InfoResponse,
            other => WorkKind::Invalidate(other.saturating_sub(FIXED_IDS)),
        }
    }

    /// What it is called in log lines.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            WorkKind::Receive => "receive",
            WorkKind::Answer => "answer",
            WorkKind::Unsignaled => "data, registration or invalidation",
            WorkKind::InfoRequest => "receive of the information request",
            WorkKind::InfoResponse => "information response",
            WorkKind::Invalidate(_) => "invalidation of a chunk",
        }
    }
}
