// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance: a server tells its clients that it goes away on purpose, and for how
//! long. The server is draining meanwhile.

use crate::{
    rnbd::MAX_DRAIN_MS as MAX_MS,
    setting::Setting, //
};

/// The longest drain that can be asked for, in seconds.
pub const MAX_SECONDS: u32 = MAX_MS / MS_PER_SECOND;

/// How long the server is to drain, in seconds; 0: not any more.
pub const DRAIN: Setting = Setting::new("drain", 0, MAX_SECONDS as i32, 0);

const MS_PER_SECOND: u32 = 1000;

/// How much longer clients are told to wait than the server refuses new sessions, in ms: a client
/// that is refused in the last moment needs one more attempt to connect, and has to open its
/// devices.
const GRACE_MS: u32 = 10_000;

/// The longest time for which a server refuses new sessions, in ms.
const MAX_REFUSAL_MS: u32 = MAX_MS - GRACE_MS;

/// For how many ms a server refuses new sessions that is to drain for `seconds`: ten seconds less
/// than a day at most, so that clients can be told of ten seconds more.
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

/// Less is not worth leaving a server for, in ms.
const LEAST_MS: i64 = 1000;

/// How long a client may hold requests because its server has told of a drain.
///
/// A server may tell again and again. So the time for which a client holds requests is taken from
/// an allowance of a day, which grows only by the time that passes otherwise. Requests are
/// held for a day at most, and for half of the time in the long run.
///
/// Times are in ms of a clock that does not go back.
///
/// # Invariants
///
/// - `left_ms` is what was left at `since`, at most a day.
/// - `until` is not before `since`.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    left_ms: i64,
    since: i64,
    /// The end of the last drain; `since` if that is over.
    until: i64,
}

impl Allowance {
    /// All of it, at the time `now`.
    pub const fn new(now: i64) -> Self {
        // INVARIANT: That is the most.
        Self {
            left_ms: MAX_MS as i64,
            since: now,
            until: now,
        }
    }

    /// The server tells at `now` of a drain of `told_ms`; returns for how many ms of it requests
    /// may be held: at least a second, or 0. What was told before does not count any more.
    pub fn begin(&mut self, now: i64, told_ms: u32) -> u32 {
        self.end(now);
        let granted = self.left_ms.min(i64::from(told_ms));
        if granted < LEAST_MS {
            return 0;
        }
        // INVARIANT: It is not negative.
        self.until = now.wrapping_add(granted);
        // At most `MAX_MS`, and not negative.
        u32::try_from(granted).unwrap_or(MAX_MS)
    }

    /// From `now` on nothing is held any more.
    pub fn end(&mut self, now: i64) {
        let until = self.until.clamp(self.since, now.max(self.since));
        let held = until.wrapping_sub(self.since);
        let not_held = now.wrapping_sub(until).clamp(0, i64::from(MAX_MS));
        let left = self.left_ms.wrapping_sub(held).max(0);
        // INVARIANT: `left_ms` is cut off; `until` is `since`.
        self.left_ms = left.wrapping_add(not_held).min(i64::from(MAX_MS));
        self.since = now;
        self.until = now;
    }
}
