// SPDX-License-Identifier: GPL-2.0

//! A server that goes away on purpose: how long requests are held for that.

use kernel::{
    new_mutex,
    sync::Mutex,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::drain::Allowance;

/// What the server has told of going away.
#[pin_data]
pub(crate) struct Drain {
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// Until when the server is away, in ms after `origin`, or [`Self::NEVER`]. It stays when that
    /// is over, until the server is back.
    until: Atomic<i64>,
    /// As `until`, but it stays when the server is back before.
    excused_until: Atomic<i64>,
    #[pin]
    state: Mutex<State>,
}

struct State {
    allowance: Allowance,
    /// When requests were held from, in ms after `origin`; `None` once it was logged that the
    /// server is back or the time over.
    began: Option<i64>,
}

impl Drain {
    /// Nothing was told.
    const NEVER: i64 = i64::MIN;

    /// Nothing was told yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        let state = State {
            allowance: Allowance::new(0),
            began: None,
        };
        pin_init!(Self {
            origin: Instant::now(),
            until: Atomic::new(Self::NEVER),
            excused_until: Atomic::new(Self::NEVER),
            state <- new_mutex!(state, "rtrs_client::Drain::state"),
        })
    }

    /// The server has told that it goes away for `told_ms`; returns for how many ms of that
    /// requests are held, from now on. `None` if it has told so too often. Sleeps.
    pub(crate) fn begin(&self, told_ms: u32) -> Option<u32> {
        let mut state = self.state.lock();
        let now = self.now();
        let held_ms = state.allowance.begin(now, told_ms);
        if held_ms == 0 {
            return None;
        }
        state.began.get_or_insert(now);
        // A day after some time since the session was made.
        let until = now.wrapping_add(i64::from(held_ms));
        self.until.store(until, ordering::Release);
        self.excused_until.store(until, ordering::Release);
        Some(held_ms)
    }

    /// The server is back; returns for how many ms it was away, unless the time was over before.
    /// Sleeps.
    pub(crate) fn end(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let now = self.now();
        state.allowance.end(now);
        self.until.store(Self::NEVER, ordering::Release);
        Some(now.wrapping_sub(state.began.take()?))
    }

    /// Whether the time has run out; true once. Sleeps.
    pub(crate) fn has_run_out(&self) -> bool {
        if self.until.load(ordering::Acquire) == Self::NEVER || self.is_on() {
            return false;
        }
        let mut state = self.state.lock();
        if self.is_on() {
            // It was told again meanwhile.
            return false;
        }
        state.began.take().is_some()
    }

    /// Whether the server is away on purpose. Any context.
    pub(crate) fn is_on(&self) -> bool {
        self.left_ms().is_some()
    }

    /// Whether the time is not over that was told, also if the server is back: one path may be up
    /// before another one. Any context.
    pub(crate) fn excuses_attempts(&self) -> bool {
        self.now() < self.excused_until.load(ordering::Acquire)
    }

    /// How long the server may be away yet, in ms. Any context.
    pub(crate) fn left_ms(&self) -> Option<u32> {
        let until = self.until.load(ordering::Acquire);
        if until == Self::NEVER {
            return None;
        }
        // Both are times of one clock.
        let left = u32::try_from(until.wrapping_sub(self.now())).ok()?;
        (left != 0).then_some(left)
    }

    /// Whether the server is away on purpose, or was less than `ms` ago and is not back. Any
    /// context.
    pub(crate) fn was_on_within(&self, ms: u32) -> bool {
        let until = self.until.load(ordering::Acquire);
        until != Self::NEVER && self.now().wrapping_sub(until) < i64::from(ms)
    }

    fn now(&self) -> i64 {
        self.origin.elapsed().as_millis()
    }
}
