// SPDX-License-Identifier: GPL-2.0

//! A server that goes away on purpose: the session leaves it, and waits until it is back.

use kernel::sync::Arc;
use kernel_ext::sync::rcu;
use proto::{
    device_state::DeviceState,
    drain::seconds_of, //
};

use crate::{
    device::Device,
    server::Server, //
};

/// How long requests in flight may take before the session leaves all the same, in ms. Then they
/// are held like the others, and carried out again.
const LONGEST_WAIT_MS: u32 = 10_000;

/// The server goes away for `told_ms`: lets its devices send no more requests, and leaves it when
/// none is in flight any more. Process context; sleeps.
pub(crate) fn begin(server: &Server, told_ms: u32, devices: impl Iterator<Item = Arc<Device>>) {
    let transport = &server.transport;
    let Some(held_ms) = transport.begin_drain(told_ms) else {
        kernel_ext::pr_info_ratelimited!(
            "session {}: the server goes away, for {} s: requests do not wait for that\n",
            server.session.as_cstr(),
            seconds_of(told_ms)
        );
        return;
    };
    kernel_ext::pr_info_ratelimited!(
        "session {}: the server goes away for maintenance, for up to {} s: requests wait\n",
        server.session.as_cstr(),
        seconds_of(held_ms)
    );
    for device in devices {
        device.remote.hold();
    }
    // Whoever has found a device mapped has sent by then, and the request is in flight.
    rcu::synchronize_rcu();
    transport.leave(LONGEST_WAIT_MS.min(held_ms / 2));
}

/// Nothing waits for the server any more if it is back and has opened all devices. Process context;
/// sleeps.
pub(crate) fn end_if_back(server: &Server, mut devices: impl Iterator<Item = Arc<Device>>) {
    let is_closed = |device: Arc<Device>| device.remote.state() == DeviceState::Disconnected;
    if !server.transport.is_connected() || devices.any(is_closed) {
        return;
    }
    if let Some(away_ms) = server.transport.end_drain() {
        kernel_ext::pr_info_ratelimited!(
            "session {}: the server is back from its maintenance, after {} ms\n",
            server.session.as_cstr(),
            away_ms
        );
    }
}
