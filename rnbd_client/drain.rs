// SPDX-License-Identifier: GPL-2.0

//! A server that goes away on purpose: the session leaves it, and waits until it is back.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::rcu, //
};
use proto::drain::{
    may_leave,
    seconds_of, //
};

use crate::{
    device::Device,
    server::Server, //
};

/// The longest time that the session waits for requests in flight before it leaves, in ms. If half
/// of the time for which requests are held is shorter, the session waits for that half. Requests
/// that are still in flight then are held like the others, and carried out again.
const LONGEST_WAIT_MS: u32 = 10_000;

/// How often to look whether requests are in flight, in ms.
pub(crate) const LOOK_AGAIN_MS: u32 = 10;

/// The server's session that is being left.
#[derive(Clone, Copy)]
struct Left {
    epoch: u32,
    began: Instant<Monotonic>,
    longest_ms: u32,
}

/// Whether the session is leaving its server. Used by one task at a time.
#[pin_data]
pub(crate) struct Leaving {
    #[pin]
    left: Mutex<Option<Left>>,
}

impl Leaving {
    /// No session is being left.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            left <- new_mutex!(None, "Leaving::left"),
        })
    }

    /// Whether the server's session of `epoch` is being left, so that no device is opened in it.
    /// Sleeps.
    pub(crate) fn is_of(&self, epoch: u32) -> bool {
        self.left.lock().is_some_and(|left| left.epoch == epoch)
    }

    /// Handles the server's response in `epoch`. `drain_ms` is the time in ms for which the server
    /// goes away; `None` if the server does not go away. Process context; sleeps.
    pub(crate) fn told(
        &self,
        server: &Server,
        epoch: u32,
        drain_ms: Option<u32>,
        devices: impl Iterator<Item = Arc<Device>>,
    ) {
        match drain_ms {
            Some(ms) => self.begin(server, epoch, ms, devices),
            // The response does not stop the leaving: the next session shows that the server is
            // back.
            None if self.is_of(epoch) => {}
            None => came_back(server),
        }
    }

    /// Begins to leave a server that goes away for `told_ms`: lets the devices send no more
    /// requests.
    fn begin(
        &self,
        server: &Server,
        epoch: u32,
        told_ms: u32,
        devices: impl Iterator<Item = Arc<Device>>,
    ) {
        let Some(held_ms) = server.transport.begin_drain(told_ms) else {
            kernel_ext::pr_info_ratelimited!(
                "session {}: the server goes away for {} s; requests are not held meanwhile, \
                 except for hold_io_ms: the time is under 1 s, or this session has held requests \
                 of drains for as long as it may\n",
                server.session.as_cstr(),
                seconds_of(told_ms)
            );
            return;
        };
        kernel_ext::pr_info_ratelimited!(
            "session {}: the server goes away for maintenance, for up to {} s; requests are held \
             for up to {} s\n",
            server.session.as_cstr(),
            seconds_of(told_ms),
            seconds_of(held_ms)
        );
        if self.is_of(epoch) || !may_leave(held_ms, told_ms) {
            // The session is being left already, and only the time has changed. Or the server
            // carries out requests for longer than they could wait.
            return;
        }
        for device in devices {
            device.remote.hold();
        }
        // A request that has found a device mapped is in flight after this.
        rcu::synchronize_rcu();
        *self.left.lock() = Some(Left {
            epoch,
            began: Instant::now(),
            longest_ms: LONGEST_WAIT_MS.min(held_ms / 2),
        });
    }

    /// Leaves when no request is in flight any more, or when the wait was long enough; returns
    /// whether to call this again after [`LOOK_AGAIN_MS`]. Process context; sleeps.
    pub(crate) fn go_on(&self, server: &Server) -> bool {
        let Some(left) = *self.left.lock() else {
            return false;
        };
        if server.epoch() != left.epoch {
            *self.left.lock() = None;
            return false;
        }
        let transport = &server.transport;
        let waited_ms = left.began.elapsed().as_millis();
        if transport.in_flight() != 0 && waited_ms < i64::from(left.longest_ms) {
            return true;
        }
        // The epoch ends under the lock under which `leave` calls the closure. So the epoch cannot
        // end between the check and the leaving.
        transport.leave(|| server.epoch() == left.epoch);
        false
    }
}

/// Notes that the server is back: it has responded, in a session that is not being left, that it is
/// not draining.
fn came_back(server: &Server) {
    if let Some(away_ms) = server.transport.came_back() {
        kernel_ext::pr_info_ratelimited!(
            "session {}: the server is back from its maintenance, after {} ms\n",
            server.session.as_cstr(),
            away_ms
        );
    }
}
