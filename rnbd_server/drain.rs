// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance: the server is about to go away, and lets no new client in.

use kernel::time::{
    Instant,
    Monotonic, //
};
use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::drain;

/// Whether the server drains, and the sessions that it has meanwhile.
pub(crate) struct Drain {
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the drain is over, in ms after `origin`, or [`Self::OFF`].
    until: Atomic<i64>,
    sessions: Atomic<u32>,
}

impl Drain {
    /// The server does not drain.
    const OFF: i64 = i64::MIN;

    /// A server that does not drain and has no session.
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            until: Atomic::new(Self::OFF),
            sessions: Atomic::new(0),
        }
    }

    /// The server drains for `seconds` from now on, at most [`drain::MAX_SECONDS`]. Any context.
    pub(crate) fn begin(&self, seconds: u32) {
        // A day after some time since the module was loaded.
        let until = self.now().wrapping_add(i64::from(drain::ms_of(seconds)));
        self.until.store(until, ordering::Release);
    }

    /// The server does not drain any more; whether it did. Any context.
    pub(crate) fn end(&self) -> bool {
        self.until.xchg(Self::OFF, ordering::Full) != Self::OFF
    }

    /// How long the server goes on draining, in ms, from 1 to a day; `None` if it does not. Any
    /// context.
    ///
    /// Whoever finds that the time is over logs that, once.
    pub(crate) fn left_ms(&self) -> Option<u32> {
        let until = self.until.load(ordering::Acquire);
        if until == Self::OFF {
            return None;
        }
        // Both are times of one clock.
        let left = u32::try_from(until.wrapping_sub(self.now())).ok();
        let left = left.filter(|left| *left != 0);
        if left.is_none() && self.until.cmpxchg(until, Self::OFF, ordering::Full).is_ok() {
            pr_info!("drain: the time is over, clients are let in again\n");
        }
        left
    }

    /// Whether a client may open what it does not have: a session, or a device. `EHOSTDOWN` while
    /// the server drains. Any context.
    pub(crate) fn admits(&self) -> Result {
        match self.left_ms() {
            Some(_) => Err(EHOSTDOWN),
            None => Ok(()),
        }
    }

    /// There is one more session. Any context.
    pub(crate) fn session_up(&self) {
        self.sessions.fetch_add(1, ordering::Relaxed);
    }

    /// A session has closed all it had open. Any context.
    pub(crate) fn session_down(&self) {
        self.sessions.fetch_sub(1, ordering::Relaxed);
    }

    /// The number of sessions. Any context.
    pub(crate) fn sessions(&self) -> u32 {
        self.sessions.load(ordering::Relaxed)
    }

    fn now(&self) -> i64 {
        self.origin.elapsed().as_millis()
    }
}
