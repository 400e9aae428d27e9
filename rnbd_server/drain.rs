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

/// The drain of the server, and the numbers of its sessions.
pub(crate) struct Drain {
    /// Times are kept relative to this time, since only plain numbers can be atomic.
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
    /// The value of `until` while the server does not drain.
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

    /// Begins to drain for `seconds`, as far as [`drain::refusal_ms`] allows. Returns the length of
    /// the drain in ms. Any context.
    pub(crate) fn begin(&self, seconds: u32) -> u32 {
        let ms = drain::refusal_ms(seconds);
        // Does not wrap around: at most a day, after the time since the module was loaded.
        let until = self.now().wrapping_add(i64::from(ms));
        // Before a reader counts the sessions: see `session_up`.
        self.until.xchg(until, ordering::Full);
        ms
    }

    /// Ends the drain. Returns whether the server drained. Any context.
    pub(crate) fn end(&self) -> bool {
        self.until.xchg(Self::OFF, ordering::Full) != Self::OFF
    }

    /// Does what [`Self::end`] does, if the time of the drain is over. Any context.
    pub(crate) fn end_if_over(&self) -> bool {
        let until = self.until.load(ordering::Acquire);
        until != Self::OFF
            && until <= self.now()
            && self.until.cmpxchg(until, Self::OFF, ordering::Full).is_ok()
    }

    /// How long the server goes on draining, in ms: more than 0, and ten seconds less than a day at
    /// most. `None` if the server does not drain. Any context.
    pub(crate) fn left_ms(&self) -> Option<u32> {
        let until = self.until.load(ordering::Acquire);
        if until == Self::OFF {
            return None;
        }
        // Both are times of the same clock.
        let left = u32::try_from(until.wrapping_sub(self.now())).ok()?;
        (left != 0).then_some(left)
    }

    /// Whether a client may open a session or a device that it does not have open. `EHOSTDOWN`
    /// while the server drains. Any context.
    pub(crate) fn admits(&self) -> Result {
        match self.left_ms() {
            Some(_) => Err(EHOSTDOWN),
            None => Ok(()),
        }
    }

    /// Counts a new session, as one that is to leave. `EHOSTDOWN` while the server drains. Any
    /// context.
    ///
    /// Each session that is let in is counted when a reader finds the server draining.
    pub(crate) fn session_up(&self) -> Result {
        // Counted before the look: a drain that begins after the look finds the session counted.
        self.leaving.fetch_add(1, ordering::Full);
        self.admits().inspect_err(|_| self.session_down(false))
    }

    /// Uncounts a session, which has closed all that it had open; `stays` says how it was counted.
    /// Any context.
    pub(crate) fn session_down(&self, stays: bool) {
        self.counter(stays).fetch_sub(1, ordering::Full);
    }

    /// Counts a session as one that stays while the server drains, or as one that is to leave. It
    /// was counted the other way before. Any context.
    pub(crate) fn count_again(&self, stays: bool) {
        // In this order, so that the session is counted at every moment.
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
