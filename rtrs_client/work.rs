// SPDX-License-Identifier: GPL-2.0

//! What the work requests of a connection are for.

use kernel_ext::rdma::WrId;

/// What a completion is for; encoded in the work request's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A request or another write whose completion only frees the send queue.
    Send,
    /// The registration of a request's data.
    Registration,
    /// The information request of the first connection.
    InfoSend,
    /// Its answer.
    InfoReceive,
    /// As [`WorkKind::LastUse`], of the service request.
    LastUseOfService,
    /// A heartbeat.
    Heartbeat,
    /// The answer to one.
    HeartbeatAck,
    /// The device's last use of a request's data, by tag: the invalidation of its registration, or
    /// the write itself if it was sent from there.
    LastUse(u32),
    /// A posted receive, by index.
    Receive(u32),
}

/// The ids that are neither of a tag nor of a receive; those of the two follow alternately.
const FIXED_IDS: u32 = 7;

impl WorkKind {
    /// How many ids a connection needs that carries so many tags and receives.
    pub(crate) fn count(tags: u32, receives: u32) -> u32 {
        tags.max(receives)
            .saturating_mul(2)
            .saturating_add(FIXED_IDS)
    }

    /// Its id.
    #[inline]
    pub(crate) fn id(self) -> WrId {
        // An index that is too large names nothing that could be posted, or something else of the
        // same connection.
        let above = |index: u32, odd| {
            index
                .wrapping_mul(2)
                .wrapping_add(odd)
                .wrapping_add(FIXED_IDS)
        };
        WrId(match self {
            WorkKind::Send => 0,
            WorkKind::Registration => 1,
            WorkKind::InfoSend => 2,
            WorkKind::InfoReceive => 3,
            WorkKind::LastUseOfService => 4,
            WorkKind::Heartbeat => 5,
            WorkKind::HeartbeatAck => 6,
            WorkKind::Receive(index) => above(index, 0),
            WorkKind::LastUse(tag) => above(tag, 1),
        })
    }

    /// The kind that `id` was made of.
    #[inline]
    pub(crate) fn of(id: WrId) -> Self {
        if let Some(above) = id.0.checked_sub(FIXED_IDS) {
            return if above & 1 == 0 {
                WorkKind::Receive(above >> 1)
            } else {
                WorkKind::LastUse(above >> 1)
            };
        }
        match id.0 {
            0 => WorkKind::Send,
            1 => WorkKind::Registration,
            2 => WorkKind::InfoSend,
            3 => WorkKind::InfoReceive,
            4 => WorkKind::LastUseOfService,
            5 => WorkKind::Heartbeat,
            _ => WorkKind::HeartbeatAck,
        }
    }
}
