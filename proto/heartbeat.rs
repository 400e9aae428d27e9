// SPDX-License-Identifier: GPL-2.0

//! When to send a heartbeat and when to give a path up.
//!
//! Each end sends its own heartbeats. Every interval it calls [`tick`] with its count of missed
//! intervals. Anything that the end receives on the path sets the count to zero.

use crate::rtrs::{
    HB_INTERVAL_MS,
    HB_MISSED_MAX, //
};

/// The interval of heartbeats, and how many intervals may be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time between two calls of [`tick`] in ms; not zero.
    pub interval_ms: u32,
    /// The path is lost when more intervals than this have been missed.
    pub missed_max: u32,
}

impl Settings {
    /// C's: 5 s and 5 intervals.
    pub const DEFAULT: Self = Self {
        interval_ms: HB_INTERVAL_MS,
        missed_max: HB_MISSED_MAX,
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What to do at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a heartbeat; the next tick is after an interval.
    Send,
    /// No message has come since the last heartbeat: send nothing; the next tick is after an
    /// interval.
    Wait,
    /// The peer is gone: the path is lost; there is no next tick.
    Fail,
}

/// The end of an interval (C: `hb_work`): what to do, and the new count of
/// missed intervals.
pub const fn tick(missed: u32, settings: &Settings) -> (Action, u32) {
    if is_silent(missed, settings) {
        return (Action::Fail, missed);
    }
    let action = if missed == 0 {
        Action::Send
    } else {
        Action::Wait
    };
    // The largest count stays: with the largest setting a path is never lost.
    (action, missed.saturating_add(1))
}

/// Whether a peer has been silent for so long that the path is lost.
pub const fn is_silent(missed: u32, settings: &Settings) -> bool {
    missed > settings.missed_max
}
