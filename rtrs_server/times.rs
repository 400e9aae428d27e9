// SPDX-License-Identifier: GPL-2.0

//! When what happened to a request, for users of the transport that want to know where its time
//! goes.
//!
//! While nobody does (`kernel_ext::static_key::ServerTimes`) nothing is noted, and each place that
//! would note something has one instruction that does nothing. The times are kept with the chunk,
//! so they take no memory of a request's.

use kernel_ext::time::monotonic_ns;

/// When what happened to a request, in ns as `kernel_ext::time::monotonic_ns()` has them; 0 for
/// what was not noted.
#[derive(Clone, Copy)]
pub struct Times {
    /// When it was found in the completion queue.
    pub arrived_ns: u64,
    /// When the user of the transport began with it for the last time; see
    /// [`Operation::begins()`](crate::Operation::begins).
    pub begun_ns: u64,
    /// When the user responded to it.
    pub responded_ns: u64,
    /// When the response had been posted.
    pub posted_ns: u64,
    /// What the user has noted when it began.
    pub note: u64,
}

impl Times {
    /// Nothing was noted.
    pub(crate) const NONE: Self = Self {
        arrived_ns: 0,
        begun_ns: 0,
        responded_ns: 0,
        posted_ns: 0,
        note: 0,
    };

    /// A request has come.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive(&mut self) {
        *self = Self {
            arrived_ns: monotonic_ns(),
            ..Self::NONE
        };
    }

    /// The user begins with it.
    pub(crate) fn begin(&mut self, note: u64) {
        self.begun_ns = monotonic_ns();
        self.note = note;
    }

    /// The user has responded.
    #[cold]
    #[inline(never)]
    pub(crate) fn respond(&mut self) {
        self.responded_ns = monotonic_ns();
    }

    /// The response has just been posted: all times, if the user had begun with the request.
    pub(crate) fn posted(&self) -> Option<Self> {
        let is_whole = self.begun_ns != 0 && self.responded_ns != 0;
        is_whole.then(|| Self {
            posted_ns: monotonic_ns(),
            ..*self
        })
    }
}
