// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance: a server tells its clients that it goes away on purpose, and for how
//! long. Meanwhile the server drains.

use crate::{
    rnbd::MAX_DRAIN_MS as MAX_MS,
    setting::Setting, //
};

/// The longest drain that can be asked for, in seconds.
pub const MAX_SECONDS: u32 = MAX_MS / MS_PER_SECOND;

/// The setting for how long the server drains, in seconds; 0 ends the drain.
pub const DRAIN: Setting = Setting::new("drain", 0, MAX_SECONDS as i32, 0);

const MS_PER_SECOND: u32 = 1000;

/// Clients are told this much more time, in ms, than the server refuses new sessions for. A client
/// that is refused at the last moment needs one more attempt to connect, and has to open its
/// devices.
const GRACE_MS: u32 = 10_000;

/// The longest time for which a server refuses new sessions, in ms.
pub const MAX_REFUSAL_MS: u32 = MAX_MS - GRACE_MS;

/// The time in ms for which a server that drains for `seconds` refuses new sessions: ten seconds
/// less than a day at most, so that clients can be told of ten seconds more.
pub const fn refusal_ms(seconds: u32) -> u32 {
    if seconds < MAX_REFUSAL_MS / MS_PER_SECOND {
        seconds.wrapping_mul(MS_PER_SECOND)
    } else {
        MAX_REFUSAL_MS
    }
}

/// The time in ms that clients are told while the server goes on refusing new sessions for
/// `refusal_ms`; at most a day.
pub const fn told_ms(refusal_ms: u32) -> u32 {
    if refusal_ms < MAX_REFUSAL_MS {
        refusal_ms.wrapping_add(GRACE_MS)
    } else {
        MAX_MS
    }
}

/// The seconds that `ms` is, rounded up.
pub const fn seconds_of(ms: u32) -> u32 {
    ms.div_ceil(MS_PER_SECOND)
}

/// The shortest time, in ms, for which requests wait for a server.
const LEAST_MS: i64 = 1000;

/// For this time after the server is back, in ms, failed attempts to connect are not counted: one
/// path may be up long before another path.
const EXCUSE_MS: i64 = 60_000;

/// For this time after the server is back, in ms, requests wait for a device that the server does
/// not have yet. The disk may never come, and its requests must not use up the allowance.
const AWAIT_MS: i64 = 600_000;

/// Whether a client leaves its server for a drain of `told_ms`, if its requests may wait for
/// `granted_ms`. A client leaves only if its requests may wait until the server accepts sessions
/// again. Otherwise the client would fail requests that the server would still carry out.
pub fn may_leave(granted_ms: u32, told_ms: u32) -> bool {
    told_ms
        .checked_sub(granted_ms)
        .is_none_or(|missing_ms| missing_ms <= GRACE_MS)
}

/// A drain of the server, as a client sees it.
///
/// After [`begin`](Self::begin) the server is away, and requests are held until the time that the
/// server has told is over. If the server is back earlier ([`came_back`](Self::came_back)), only
/// requests of devices that the server does not have yet are held. Their hold ends when there is no
/// such device ([`end`](Self::end)), when the time is over, or after ten minutes.
///
/// A server may announce drains again and again. So the time for which requests are held is taken
/// from an allowance of a day, which grows only by the time for which no requests are held.
/// Requests are held for a day at most, and for half of the time in the long run.
///
/// Times are in ms of a clock that does not go back.
///
/// # Invariants
///
/// `left_ms` is the rest of the allowance at the time `since`, from 0 to a day.
#[derive(Clone, Copy, Debug)]
pub struct ClientDrain {
    left_ms: i64,
    since: i64,
    held_until: Option<i64>,
    is_away: bool,
    excused_until: Option<i64>,
    began: Option<i64>,
}

impl ClientDrain {
    /// No drain, and all of the allowance, at the time `now`.
    pub const fn new(now: i64) -> Self {
        // INVARIANT: A day is the whole allowance.
        Self {
            left_ms: MAX_MS as i64,
            since: now,
            held_until: None,
            is_away: false,
            excused_until: None,
            began: None,
        }
    }

    /// Takes note that the server announces a drain of `told_ms` at `now`, which replaces an
    /// earlier drain. Returns the time in ms for which requests are held, from a second to a day.
    ///
    /// Returns `None` if `told_ms` or the rest of the allowance is less than a second: then
    /// requests are not held from `now` on.
    pub fn begin(&mut self, now: i64, told_ms: u32) -> Option<u32> {
        self.settle(now);
        let granted = self.left_ms.min(i64::from(told_ms));
        if granted < LEAST_MS {
            self.held_until = self.held_until.map(|until| until.min(now));
            self.excused_until = self.excused_until.map(|until| until.min(now));
            self.began = None;
            return None;
        }
        let is_on = self.held_until.is_some_and(|until| now < until);
        self.began = self.began.filter(|_| is_on).or(Some(now));
        self.held_until = Some(now.wrapping_add(granted));
        self.excused_until = self.held_until;
        self.is_away = true;
        // From a second to a day.
        u32::try_from(granted).ok()
    }

    /// Takes note that at `now` the server has a session for the client and does not drain any
    /// more. Returns for how many ms the server was away; `None` if it was not away, or if its time
    /// was over before.
    pub fn came_back(&mut self, now: i64) -> Option<i64> {
        if !self.is_away {
            return None;
        }
        self.is_away = false;
        let held_until = now.wrapping_add(AWAIT_MS);
        self.held_until = self.held_until.map(|until| until.min(held_until));
        let excused_until = now.wrapping_add(EXCUSE_MS);
        self.excused_until = self.excused_until.map(|until| until.min(excused_until));
        Some(now.wrapping_sub(self.began.take()?))
    }

    /// From `now` on no request is held, unless the server is away.
    pub fn end(&mut self, now: i64) {
        if !self.is_away {
            self.settle(now);
            self.held_until = None;
        }
    }

    /// Whether the time is over at `now` and the server is not back; true only in the first call.
    pub fn has_run_out(&mut self, now: i64) -> bool {
        self.held_until.is_some_and(|until| until <= now) && self.began.take().is_some()
    }

    /// The time until which requests are held. The value stays after that time, until the server is
    /// back.
    pub const fn held_until(&self) -> Option<i64> {
        self.held_until
    }

    /// The time until which failed attempts to connect are not counted.
    pub const fn excused_until(&self) -> Option<i64> {
        self.excused_until
    }

    /// Whether the server has gone, or is about to go, and is not back. Also true when the time is
    /// over.
    pub const fn is_away(&self) -> bool {
        self.is_away
    }

    /// Brings the allowance up to the time `now`.
    fn settle(&mut self, now: i64) {
        let latest = now.max(self.since);
        let until = self.held_until.unwrap_or(self.since);
        let until = until.clamp(self.since, latest);
        let held = until.wrapping_sub(self.since);
        let not_held = now.wrapping_sub(until).clamp(0, i64::from(MAX_MS));
        let left = self.left_ms.wrapping_sub(held).max(0);
        // INVARIANT: The sum is cut off at a day, and neither part is negative.
        self.left_ms = left.wrapping_add(not_held).min(i64::from(MAX_MS));
        self.since = now;
    }
}
