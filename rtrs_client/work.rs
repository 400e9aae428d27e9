// SPDX-License-Identifier: GPL-2.0

//! The purposes of a connection's work requests.

use kernel_ext::{
    prelude::*,
    rdma::WrId, //
};

/// The purpose of a work request, encoded in the work request id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A request or another write whose completion only frees the send queue.
    Send,
    /// The registration of a request's data.
    Registration,
    /// The information request of the first connection.
    InfoSend,
    /// The response to the information request.
    InfoReceive,
    /// A heartbeat.
    Heartbeat,
    /// The acknowledgement of a heartbeat.
    HeartbeatAck,
    /// The proof of this machine's identity.
    AuthSend,
    /// The response to the proof.
    AuthReceive,
    /// A posted receive, by index.
    Receive(u32),
}

/// The number of ids that are not of a receive. The ids of receives follow.
const FIXED_IDS: u32 = 8;

impl WorkKind {
    /// The number of ids for a connection with that many receives. `EINVAL` if there are too many.
    pub(crate) fn count(receives: u32) -> Result<u32> {
        receives.checked_add(FIXED_IDS).ok_or(EINVAL)
    }

    /// The work request id.
    #[inline]
    pub(crate) fn id(self) -> WrId {
        WrId(match self {
            WorkKind::Send => 0,
            WorkKind::Registration => 1,
            WorkKind::InfoSend => 2,
            WorkKind::InfoReceive => 3,
            WorkKind::Heartbeat => 4,
            WorkKind::HeartbeatAck => 5,
            WorkKind::AuthSend => 6,
            WorkKind::AuthReceive => 7,
            // An index that is too large names no posted work request, or another one of the same
            // connection.
            WorkKind::Receive(index) => index.wrapping_add(FIXED_IDS),
        })
    }

    /// The kind whose id is `id`.
    #[inline]
    pub(crate) fn of(id: WrId) -> Self {
        match id.0 {
            0 => WorkKind::Send,
            1 => WorkKind::Registration,
            2 => WorkKind::InfoSend,
            3 => WorkKind::InfoReceive,
            4 => WorkKind::Heartbeat,
            5 => WorkKind::HeartbeatAck,
            6 => WorkKind::AuthSend,
            7 => WorkKind::AuthReceive,
            receive => WorkKind::Receive(receive.wrapping_sub(FIXED_IDS)),
        }
    }
}
