// SPDX-License-Identifier: GPL-2.0

//! What the work requests of a connection are for.

use kernel_ext::{
    prelude::*,
    rdma::WrId, //
};

/// What a completion is for; encoded in the work request's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A request or another write whose completion only frees the send queue.
    Send,
    /// The registration of a request's data.
    Registration,
    /// The information request of the first connection.
    InfoSend,
    /// The response to it.
    InfoReceive,
    /// A heartbeat.
    Heartbeat,
    /// The acknowledgement of one.
    HeartbeatAck,
    /// The proof of this machine's identity.
    AuthSend,
    /// The response to it.
    AuthReceive,
    /// A posted receive, by index.
    Receive(u32),
}

/// The ids that are not of a receive; those follow.
const FIXED_IDS: u32 = 8;

impl WorkKind {
    /// How many ids a connection needs that has so many receives. `EINVAL` if that is too many.
    pub(crate) fn count(receives: u32) -> Result<u32> {
        receives.checked_add(FIXED_IDS).ok_or(EINVAL)
    }

    /// Its id.
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
            // An index that is too large names nothing that could be posted, or something else of
            // the same connection.
            WorkKind::Receive(index) => index.wrapping_add(FIXED_IDS),
        })
    }

    /// The kind that `id` was made of.
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
