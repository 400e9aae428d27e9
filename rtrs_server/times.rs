// SPDX-License-Identifier: GPL-2.0

//! The times of a request, for users of the transport that want to know where time goes.
//!
//! While no user does (`kernel_ext::static_key::ServerTimes`) no time is noted, and each place that
//! would note a time has one instruction that does nothing. The times are kept with the chunk, so a
//! request needs no memory for them.

use kernel_ext::time::monotonic_ns;

/// The times of a request, in ns of `kernel_ext::time::monotonic_ns()`; 0 for a time that was not
/// noted.
#[derive(Clone, Copy)]
pub struct Times {
    /// When the request was found in the completion queue.
    pub arrived_ns: u64,
    /// When the user of the transport began with the request for the last time; see
    /// [`Operation::begins()`](crate::Operation::begins).
    pub begun_ns: u64,
    /// When the user responded to the request.
    pub responded_ns: u64,
    /// When the response had been posted.
    pub posted_ns: u64,
    /// The user's note, made when it began.
    pub note: u64,
}

impl Times {
    /// No time was noted.
    pub(crate) const NONE: Self = Self {
        arrived_ns: 0,
        begun_ns: 0,
        responded_ns: 0,
        posted_ns: 0,
        note: 0,
    };

    /// Notes that a request has come.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive(&mut self) {
        *self = Self {
            arrived_ns: monotonic_ns(),
            ..Self::NONE
        };
    }

    /// Notes that the user begins with the request.
    pub(crate) fn begin(&mut self, note: u64) {
        self.begun_ns = monotonic_ns();
        self.note = note;
    }

    /// Notes that the user has responded.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond(&mut self) {
        self.responded_ns = monotonic_ns();
    }

    /// Returns all times, if the user had begun with the request; the response has just been
    /// posted.
    pub(crate) fn posted(&self) -> Option<Self> {
        let is_whole = self.begun_ns != 0 && self.responded_ns != 0;
        is_whole.then(|| Self {
            posted_ns: monotonic_ns(),
            ..*self
        })
    }
}
