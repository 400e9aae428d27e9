// SPDX-License-Identifier: GPL-2.0

//! Where the time of a disk's requests goes, as this end sees it.
//!
//! A request *waits* from its beginning until the driver gets it for the last time: for a tag, for
//! an I/O scheduler, for a path, for the end of an outage. The time from then until the server's
//! response is *remote*: the network, the server, and its disk. The block layer notes both times by
//! itself if it is asked to. So a request that is not timed only has to pass a static key at its
//! end.

use kernel_ext::{
    block::mq::request::{
        Op,
        OwnedRequest, //
    },
    static_key::ClientTimes,
    time::monotonic_ns, //
};
use proto::latency::Kind;

use crate::remote_device::RemoteDevice;

/// Counts a request to which the server has responded, if the requests of its disk are timed. Any
/// context.
#[inline(always)]
pub(crate) fn responded(request: OwnedRequest<RemoteDevice>) -> OwnedRequest<RemoteDevice> {
    if ClientTimes::is_on() {
        count(request)
    } else {
        request
    }
}

/// Takes the request by value, so that it stays in a register where nothing is timed.
#[cold]
#[inline(never)]
fn count(request: OwnedRequest<RemoteDevice>) -> OwnedRequest<RemoteDevice> {
    let latency = &request.disk().latency;
    let Some(times) = request.times().filter(|_| latency.since_ns().is_some()) else {
        return request;
    };
    let kind = match request.op() {
        Op::Read => Kind::Read,
        Op::Write => Kind::Write,
        _ => Kind::Other,
    };
    // The block layer may have taken a time on another CPU than this one.
    let now_ns = monotonic_ns().max(times.issued_ns);
    let wait = times.issued_ns.wrapping_sub(times.begun_ns);
    let remote = now_ns.wrapping_sub(times.issued_ns);
    latency.count(kind, [wait, remote, wait.wrapping_add(remote)]);
    request
}
