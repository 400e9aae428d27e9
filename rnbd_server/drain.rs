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
    /// The sessions that are to leave while the server drains: their clients know of drains, or
    /// have not told yet whether they do.
    leaving: Atomic<u32>,
    /// The other sessions.
    staying: Atomic<u32>,
}

impl Drain {
    /// The server does not drain.
    const OFF: i64 = i64::MIN;

    /// A server that does not drain and has no session.
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            until: Atomic::new(Self::OFF),
            leaving: Atomic::new(0),
            staying: Atomic::new(0),
        }
    }

    /// The server drains for `seconds` from now on, as far as [`drain::refusal_ms`] lets it.
    /// Returns for how many ms. Any context.
    pub(crate) fn begin(&self, seconds: u32) -> u32 {
        let ms = drain::refusal_ms(seconds);
        // A day after some time since the module was loaded.
        let until = self.now().wrapping_add(i64::from(ms));
        // Before the sessions are counted: see `session_up`.
        self.until.xchg(until, ordering::Full);
        ms
    }

    /// The server does not drain any more; whether it did. Any context.
    pub(crate) fn end(&self) -> bool {
        self.until.xchg(Self::OFF, ordering::Full) != Self::OFF
    }

    /// As [`Self::end`], if the time is over. Any context.
    pub(crate) fn end_if_over(&self) -> bool {
        let until = self.until.load(ordering::Acquire);
        until != Self::OFF
            && until <= self.now()
            && self.until.cmpxchg(until, Self::OFF, ordering::Full).is_ok()
    }

    /// How long the server goes on draining, in ms; more than 0, and ten seconds less than a day at
    /// most. `None` if it does not drain. Any context.
    pub(crate) fn left_ms(&self) -> Option<u32> {
        let until = self.until.load(ordering::Acquire);
        if until == Self::OFF {
            return None;
        }
        // Both are times of one clock.
        let left = u32::try_from(until.wrapping_sub(self.now())).ok()?;
        (left != 0).then_some(left)
    }

    /// Whether a client may open what it does not have: a session, or a device. `EHOSTDOWN` while
    /// the server drains. Any context.
    pub(crate) fn admits(&self) -> Result {
        match self.left_ms() {
            Some(_) => Err(EHOSTDOWN),
            None => Ok(()),
        }
    }

    /// Counts a new session, as one that is to leave. `EHOSTDOWN` while the server drains. Any
    /// context.
    ///
    /// A reader that finds the server draining has each session counted that is let in.
    pub(crate) fn session_up(&self) -> Result {
        // Before the question: a drain that begins after it finds the session counted.
        self.leaving.fetch_add(1, ordering::Full);
        self.admits().inspect_err(|_| self.session_down(false))
    }

    /// A session that was counted, `stays` says how, has closed all it had open. Any context.
    pub(crate) fn session_down(&self, stays: bool) {
        self.counter(stays).fetch_sub(1, ordering::Full);
    }

    /// Counts a session as one that stays while the server drains, or as one that is to leave; it
    /// was counted the other way. Any context.
    pub(crate) fn count_again(&self, stays: bool) {
        // In this order, so that it is always counted.
        self.counter(stays).fetch_add(1, ordering::Full);
        self.counter(!stays).fetch_sub(1, ordering::Full);
    }

    /// The number of sessions that are to leave, and the number of those that stay. Any context.
    pub(crate) fn sessions(&self) -> (u32, u32) {
        let leaving = self.leaving.load(ordering::Acquire);
        (leaving, self.staying.load(ordering::Acquire))
    }

    fn counter(&self, stays: bool) -> &Atomic<u32> {
        if stays {
            &self.staying
        } else {
            &self.leaving
        }
    }

    fn now(&self) -> i64 {
        self.origin.elapsed().as_millis()
    }
}
