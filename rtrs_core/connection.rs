// SPDX-License-Identifier: GPL-2.0

//! The parameters that the connections of a path are created with.
//!
//! A path has one service connection, number 0, for the information exchange, heartbeats and
//! service requests. Behind it come the connections for requests: one for each CPU of the client,
//! or fewer, which CPUs share (`nr_connections` of rtrs_client). The polled connections are last.
//!
//! All functions may be called in any context.

use kernel_ext::{
    prelude::*,
    rdma::Device,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::rtrs::SERVICE_CON_QUEUE_DEPTH;

/// The number of the service connection of a path.
pub const SERVICE_CID: u16 = 0;

/// The entries by which a queue is shorter than a power of two: one for the work request that
/// drains the queue, and one because soft-RoCE keeps one entry empty. Devices make queues of a
/// power of two entries, and one entry more would double a queue.
pub const RESERVED: u32 = 2;

/// The most messages in flight on a client's service connection: as many as in C
/// (`SERVICE_CON_QUEUE_DEPTH`), without [`RESERVED`].
pub const SERVICE_DEPTH: u32 = SERVICE_CON_QUEUE_DEPTH - RESERVED;

/// How many work requests the queues of a queue pair have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Entries of the send queue.
    pub send: u32,
    /// Entries of the receive queue.
    pub receive: u32,
}

impl QueueSizes {
    /// The sizes of a client's service connection: for each of [`SERVICE_DEPTH`] messages a request
    /// and a registration or invalidation, one entry for the information message, and one for a
    /// heartbeat.
    ///
    /// `max_qp_wr` is the limit of the device.
    pub const fn service(max_qp_wr: u32) -> Self {
        const ENTRIES: u32 = 2 * SERVICE_DEPTH + 2;
        Self {
            send: min(ENTRIES, max_qp_wr),
            receive: min(ENTRIES, max_qp_wr),
        }
    }

    /// The sizes of a client's connection for requests.
    ///
    /// Send entries of a request: a registration, the request, an invalidation, and a spare entry,
    /// since the entries of the request before may not be reclaimed yet. Receives of a request:
    /// two, as the response to a read is an invalidation and an immediate, and a spare one.
    pub const fn client(queue_depth: u32, max_qp_wr: u32) -> Self {
        Self {
            send: entries(4, queue_depth, max_qp_wr),
            receive: entries(3, queue_depth, max_qp_wr),
        }
    }

    /// The most requests at a time for which [`Self::client`] has room on `device`.
    ///
    /// With a larger queue depth, a request that has a permit may find no entry.
    pub fn max_queue_depth(device: &Device) -> u32 {
        let by_queue = device.max_qp_wr().checked_sub(1);
        let by_completions = device.max_cqe().checked_sub(2);
        min(
            by_queue.map_or(0, |entries| entries / 4),
            by_completions.map_or(0, |entries| entries / 7),
        )
    }

    /// The entries of a completion queue for both queues. `EINVAL` if `device` has no queue that
    /// long.
    pub fn completions(&self, device: &Device) -> Result<u32> {
        let limit = device.max_cqe();
        let needed = self.send.checked_add(self.receive);
        needed.filter(|needed| *needed <= limit).ok_or_else(|| {
            kernel_ext::pr_err_ratelimited!(
                "{}: completion queues have at most {} entries, {} + {} are needed: load \
                 rtrs_server with a smaller sess_queue_depth\n",
                device.name(),
                limit,
                self.send,
                self.receive
            );
            EINVAL
        })
    }
}

/// `per_request` entries for each of `queue_depth` requests, and one more; at most `limit`.
const fn entries(per_request: u32, queue_depth: u32, limit: u32) -> u32 {
    match queue_depth.checked_mul(per_request) {
        Some(entries) if entries < limit => entries.wrapping_add(1),
        _ => limit,
    }
}

/// `u32::min` in constant expressions.
const fn min(a: u32, b: u32) -> u32 {
    if a < b {
        a
    } else {
        b
    }
}

/// The largest power of two that is not above `at_most`; 1 for 0.
const fn power_of_two(at_most: u32) -> u32 {
    match at_most.checked_ilog2() {
        Some(log) => 1u32.wrapping_shl(log),
        None => 1,
    }
}

/// Chooses the work requests of a queue pair that ask for a completion.
///
/// Only a completion frees the entries of a send queue. So one work request in each interval is
/// signalled; otherwise the queue fills up.
///
/// # Invariants
///
/// `interval` is a power of two, so that the gaps stay equal when `posted` wraps around.
pub struct SignalInterval {
    interval: Atomic<u32>,
    posted: Atomic<u32>,
}

impl SignalInterval {
    /// Signals every `at_most`th work request, or more often to make the interval a power of two.
    pub const fn new(at_most: u32) -> Self {
        // INVARIANT: A power of two.
        Self {
            interval: Atomic::new(power_of_two(at_most)),
            posted: Atomic::new(0),
        }
    }

    /// Sets the interval for a session of `queue_depth` (C: `signal_interval`). Before the first
    /// work request. Any context.
    pub fn set_for_queue_depth(&self, queue_depth: u32) {
        let interval = power_of_two(min(queue_depth, SERVICE_CON_QUEUE_DEPTH));
        // INVARIANT: A power of two.
        self.interval.store(interval, ordering::Relaxed);
    }

    /// How many work requests a completion stands for.
    pub fn interval(&self) -> u32 {
        self.interval.load(ordering::Relaxed)
    }

    /// The work requests so far, modulo 2^32.
    pub fn posted(&self) -> u32 {
        self.posted.load(ordering::Relaxed)
    }

    /// Counts a work request. Returns whether it is to be signalled. Any context.
    #[inline]
    pub fn next_is_signaled(&self) -> bool {
        (self.posted.fetch_add(1, ordering::Relaxed)).wrapping_add(1)
            & self.interval().wrapping_sub(1)
            == 0
    }
}
