// SPDX-License-Identifier: GPL-2.0

//! The kinds of work requests of a connection.

use kernel_ext::rdma::WrId;

/// The purpose of a work request, which is encoded in the work request id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrKind {
    /// A receive without a buffer: requests and heartbeats come as immediates.
    Receive,
    /// A response or a heartbeat; its completion gives send queue entries back.
    Response,
    /// Data of a response, the registration of a chunk, or an invalidation at the client; only
    /// completes in error.
    Unsignaled,
    /// The information request of the client.
    InfoRequest,
    /// The response to the information request.
    InfoResponse,
    /// The last of the registrations that are posted at a time while a path is established.
    Registration,
    /// The client's proof of its identity.
    AuthRequest,
    /// The response to the proof of identity.
    AuthResponse,
    /// The invalidation of a chunk's registration.
    Invalidate(u32),
}

/// The number of ids that are not counted per chunk.
const FIXED_IDS: u32 = 8;

impl WrKind {
    /// The number of ids that a connection of a session with `queue_depth` chunks needs.
    pub(crate) const fn count(queue_depth: u32) -> u32 {
        // A queue depth has 16 bits.
        FIXED_IDS.wrapping_add(queue_depth)
    }

    /// The id of this kind.
    pub(crate) fn id(self) -> WrId {
        WrId(match self {
            WrKind::Receive => 0,
            WrKind::Response => 1,
            WrKind::Unsignaled => 2,
            WrKind::InfoRequest => 3,
            WrKind::InfoResponse => 4,
            WrKind::Registration => 5,
            WrKind::AuthRequest => 6,
            WrKind::AuthResponse => 7,
            // The numbers of chunks have 16 bits.
            WrKind::Invalidate(chunk) => FIXED_IDS.wrapping_add(chunk),
        })
    }

    /// The kind of which `id` was made.
    pub(crate) fn of(id: WrId) -> Self {
        match id.0 {
            0 => WrKind::Receive,
            1 => WrKind::Response,
            2 => WrKind::Unsignaled,
            3 => WrKind::InfoRequest,
            4 => WrKind::InfoResponse,
            5 => WrKind::Registration,
            6 => WrKind::AuthRequest,
            7 => WrKind::AuthResponse,
            other => WrKind::Invalidate(other.wrapping_sub(FIXED_IDS)),
        }
    }

    /// The kind's name in log lines.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            WrKind::Receive => "receive",
            WrKind::Response => "response",
            WrKind::Unsignaled => "data, registration or invalidation",
            WrKind::InfoRequest => "receive of the information request",
            WrKind::InfoResponse => "information response",
            WrKind::Registration => "registration of chunks",
            WrKind::AuthRequest => "receive of the proof of identity",
            WrKind::AuthResponse => "response to the proof of identity",
            WrKind::Invalidate(_) => "invalidation of a chunk",
        }
    }
}
