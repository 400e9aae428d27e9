// SPDX-License-Identifier: GPL-2.0

//! Opening devices again after the session was lost.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};

use crate::device::Device;

/// How long a device that could not be opened again waits for the next attempt, in ms. The wait
/// doubles after each attempt, [`ATTEMPTS`] times, which makes four minutes.
const FIRST_DELAY_MS: u32 = 250;
const ATTEMPTS: u32 = 10;

/// While requests are held the wait doubles only this often, up to four seconds, and attempts after
/// that do not count.
const DOUBLINGS_WHILE_HELD: u32 = 4;

/// The attempts to open the devices of a session again. Used by one task at a time.
pub(crate) struct Reopening {
    /// The number of attempts since the session is back.
    attempts: Atomic<u32>,
}

impl Reopening {
    /// No attempt was made yet.
    pub(crate) fn new() -> Self {
        Self {
            attempts: Atomic::new(0),
        }
    }

    /// Counts attempts anew: the session is back.
    pub(crate) fn begin(&self) {
        self.attempts.store(0, ordering::Relaxed);
    }

    /// Opens the devices again that the server had to close. Returns the delay in ms to the next
    /// attempt, if devices are left for it. Process context; sleeps.
    ///
    /// A device is left if it failed for want of memory, because its disk could not be read, or
    /// because the path failed that carried the request. While its requests are held, it is also
    /// left if the server does not have its disk yet, or if the disk is in use. A device that
    /// failed otherwise is opened again together with a device that is left, or when the
    /// administrator asks for it.
    pub(crate) fn open(&self, devices: impl Iterator<Item = Arc<Device>>) -> Option<u32> {
        let attempt = self.attempts.load(ordering::Relaxed);
        let mut any_held = false;
        let mut any_left = false;
        for device in devices {
            let remote = &device.remote;
            let held = remote.is_waited_for();
            any_held |= held;
            let Err(error) = device.link_is_back(attempt == 0) else {
                remote.set_awaited(false);
                continue;
            };
            // A lost path need not mean a lost session: another path may have come up, and then
            // there is no event.
            let is_connected = remote.server.transport.is_connected();
            let is_left = !is_connected || is_tried_again(error, held);
            remote.set_awaited(is_left && held);
            any_left |= is_left;
            if !is_connected {
                // The other devices would fail as well.
                break;
            }
        }
        if !any_held || attempt < DOUBLINGS_WHILE_HELD {
            // At most `ATTEMPTS` attempts are followed by another one.
            self.attempts
                .store(attempt.wrapping_add(1), ordering::Relaxed);
        }
        (any_left && attempt < ATTEMPTS).then(|| FIRST_DELAY_MS << attempt)
    }
}

/// Whether a device that could not be opened for `error` is opened later; `held` if its requests
/// wait for that.
fn is_tried_again(error: Error, held: bool) -> bool {
    [ENOMEM, EIO, ECONNABORTED, EAGAIN, EHOSTDOWN].contains(&error)
        // A client that came first may use the disk in another mode, as long as it has the disk
        // open.
        || held && [ENOENT, ENXIO, ENODEV, ENOMEDIUM, EBUSY].contains(&error)
}
