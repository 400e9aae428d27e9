// SPDX-License-Identifier: GPL-2.0

//! A server that goes away on purpose, and how long requests are held for that.

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
use proto::drain::ClientDrain;

/// The server's announcement that it goes away.
///
/// Times are in ms after `origin`.
///
/// # Invariants
///
/// The atomics have the values that `state` gives, except while its lock is held.
#[pin_data]
pub(crate) struct Drain {
    origin: Instant<Monotonic>,
    #[pin]
    state: Mutex<ClientDrain>,
    /// [`ClientDrain::held_until`], or [`Self::NEVER`].
    held_until: Atomic<i64>,
    /// [`ClientDrain::excused_until`], or [`Self::NEVER`].
    excused_until: Atomic<i64>,
    /// [`ClientDrain::is_away`].
    is_away: Atomic<bool>,
}

impl Drain {
    /// No time.
    const NEVER: i64 = i64::MIN;

    /// Makes the state before any announcement.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            origin: Instant::now(),
            state <- new_mutex!(ClientDrain::new(0), "rtrs_client::Drain::state"),
            held_until: Atomic::new(Self::NEVER),
            excused_until: Atomic::new(Self::NEVER),
            is_away: Atomic::new(false),
        })
    }

    /// See [`ClientDrain::begin`]. Sleeps.
    pub(crate) fn begin(&self, told_ms: u32) -> Option<u32> {
        self.change(|state, now| state.begin(now, told_ms))
    }

    /// See [`ClientDrain::came_back`]. Sleeps.
    pub(crate) fn came_back(&self) -> Option<i64> {
        self.change(ClientDrain::came_back)
    }

    /// See [`ClientDrain::end`]. Sleeps.
    pub(crate) fn end(&self) {
        if self.held_until.load(ordering::Acquire) != Self::NEVER {
            self.change(ClientDrain::end);
        }
    }

    /// See [`ClientDrain::has_run_out`]. Sleeps.
    pub(crate) fn has_run_out(&self) -> bool {
        let is_told = self.held_until.load(ordering::Acquire) != Self::NEVER;
        is_told && self.change(ClientDrain::has_run_out)
    }

    /// Whether the server is away on purpose, or about to go, and the announced time is not over.
    /// Any context.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(ordering::Acquire) && self.left_ms().is_some()
    }

    /// For how many more ms requests are held. Any context.
    pub(crate) fn left_ms(&self) -> Option<u32> {
        let until = self.held_until.load(ordering::Acquire);
        if until == Self::NEVER {
            return None;
        }
        // Both are times of one clock.
        let left = u32::try_from(until.wrapping_sub(self.now())).ok()?;
        (left != 0).then_some(left)
    }

    /// Whether requests are held for the drain, or were held less than `ms` ago. While the server
    /// is away all requests are held. When the server is back, only requests to awaited objects are
    /// held (`is_awaited`). Any context.
    pub(crate) fn holds_io(&self, ms: u32, is_awaited: bool) -> bool {
        let until = self.held_until.load(ordering::Acquire);
        until != Self::NEVER
            && self.now().wrapping_sub(until) < i64::from(ms)
            && (is_awaited || self.is_away.load(ordering::Acquire))
    }

    /// Whether failed attempts to connect are not counted. Any context.
    pub(crate) fn excuses_attempts(&self) -> bool {
        self.now() < self.excused_until.load(ordering::Acquire)
    }

    /// Changes the state by `change`, which gets the current time. Sleeps.
    fn change<R>(&self, change: impl FnOnce(&mut ClientDrain, i64) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state, self.now());
        let time = |time: Option<i64>| time.unwrap_or(Self::NEVER);
        // INVARIANT: The lock is held until all atomics have the values that the state gives.
        self.held_until
            .store(time(state.held_until()), ordering::Release);
        self.excused_until
            .store(time(state.excused_until()), ordering::Release);
        self.is_away.store(state.is_away(), ordering::Release);
        result
    }

    fn now(&self) -> i64 {
        self.origin.elapsed().as_millis()
    }
}
