// SPDX-License-Identifier: GPL-2.0

//! Where the time of a device's requests goes, as this end sees it: on the way to the disk
//! (*queue*), with the disk, and until the response is sent.
//!
//! The way to the disk begins at the completion queue and ends at the submission. It has the copy
//! or invalidation that keeps the client from the data, and the wait for another request of the
//! same chunk or for the device's worker.

use kernel_ext::static_key::ServerTimes;
use proto::{
    latency::{
        Kind,
        SERVER_STAGES, //
    },
    rnbd::Op, //
};
use rtrs_core::latency::{
    Latency,
    Lease, //
};
use rtrs_server::Times;

/// The histograms of a device.
pub(crate) type ServerLatency = Latency<{ SERVER_STAGES.len() }>;

/// Limits for how long the requests of a device are counted, and holds the static key meanwhile.
pub(crate) type ServerLease = Lease<ServerTimes, { SERVER_STAGES.len() }>;

/// The note on a request: the client's number of the device, and the kind of the request.
///
/// `op` is passed by value, so that the message stays in registers where nothing is timed.
#[inline(always)]
pub(crate) fn note(device_id: u32, op: Op) -> u64 {
    let kind = match op {
        Op::Read => Kind::Read,
        Op::Write => Kind::Write,
        _ => Kind::Other,
    };
    (kind.index() as u64) << u32::BITS | u64::from(device_id)
}

/// The client's number of the device, from a note.
pub(crate) fn device_id(note: u64) -> u32 {
    note as u32
}

/// The kind of the request, from a note.
fn kind(note: u64) -> Option<Kind> {
    Kind::ALL.get((note >> u32::BITS) as usize).copied()
}

/// Counts a request, if its device's requests have been counted since before it came. Any context.
pub(crate) fn count(latency: &ServerLatency, times: &Times) {
    let is_new = latency
        .since_ns()
        .is_some_and(|since_ns| since_ns <= times.arrived_ns);
    let Some(kind) = kind(times.note).filter(|_| is_new) else {
        return;
    };
    let span = |from_ns: u64, to_ns: u64| to_ns.max(from_ns).wrapping_sub(from_ns);
    latency.count(
        kind,
        [
            span(times.arrived_ns, times.begun_ns),
            span(times.begun_ns, times.responded_ns),
            span(times.responded_ns, times.posted_ns),
            span(times.arrived_ns, times.posted_ns),
        ],
    );
}
