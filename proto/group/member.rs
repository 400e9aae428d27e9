// SPDX-License-Identifier: GPL-2.0

//! The states of a group's member.
//!
//! ```text
//!             a write failed, or leave_out   rejoin             in_sync, with an empty list
//!   InSync ──────────────────▶ Behind ──────────────▶ CatchingUp ──────────────────▶ InSync
//!                                ▲                        │
//!                                └────────────────────────┘ a write failed, or leave_out
//! ```
//!
//! | state | gets new writes | is read | its list |
//! |---|---|---|---|
//! | `InSync` | yes | yes | is empty |
//! | `Behind` | no | no | grows by every new write |
//! | `CatchingUp` | yes | no | shrinks as the user brings the member what it lacks |
//!
//! A member in sync may fall behind while it has writes in flight. Such a write may still be
//! confirmed, and then is not on the list. Only the user knows the effect of its writes, so only
//! the user can say that the member [has](Member::resolved) what it missed.

use core::ops::DerefMut;

use super::missed::{
    Missed,
    Range, //
};

/// Whether a member has all writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The member has confirmed all writes that have ended.
    InSync,
    /// The member missed writes, and gets no new writes.
    Behind,
    /// The member missed writes, and gets new writes.
    CatchingUp,
}

impl State {
    /// The state as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InSync => "in-sync",
            Self::Behind => "behind",
            Self::CatchingUp => "catching-up",
        }
    }
}

/// Why a member does not change its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The change does not begin in the member's state.
    WrongState,
    /// The member's list has writes.
    MissesWrites,
    /// The member's list has no free place to split a range.
    NoPlace,
}

/// A member of a group.
///
/// # Invariants
///
/// The list is empty in the state `InSync`.
pub struct Member<S> {
    state: State,
    missed: Missed<S>,
}

impl<S: DerefMut<Target = [Range]>> Member<S> {
    /// A member that has all writes. Its list uses `places`, at least two.
    pub fn new(places: S) -> Self {
        // INVARIANT: The list is empty.
        Self {
            state: State::InSync,
            missed: Missed::new(places),
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The writes that the member has not confirmed.
    pub fn missed(&self) -> &Missed<S> {
        &self.missed
    }

    /// Write `number` is about to be sent. Returns whether this member gets the write; otherwise
    /// the write is put on the list.
    pub fn begin(&mut self, number: u64) -> bool {
        match self.state {
            State::InSync | State::CatchingUp => true,
            State::Behind => {
                self.missed.add(number);
                false
            }
        }
    }

    /// The member got write `number` and has not confirmed it. Returns whether the member has
    /// fallen behind by that. A second call for the same write changes nothing more.
    pub fn failed(&mut self, number: u64) -> bool {
        self.missed.add(number);
        let was = core::mem::replace(&mut self.state, State::Behind);
        was != State::Behind
    }

    /// Leaves the member out, for the user: the member gets no new writes, as if it had failed.
    pub fn leave_out(&mut self) {
        self.state = State::Behind;
    }

    /// The member gets new writes again.
    pub fn rejoin(&mut self) -> Result<(), Refusal> {
        if self.state != State::Behind {
            return Err(Refusal::WrongState);
        }
        self.state = State::CatchingUp;
        Ok(())
    }

    /// Removes the writes from `first` to `last` from the list, in any state: the user says that
    /// the member has the effect of these writes.
    pub fn resolved(&mut self, first: u64, last: u64) -> Result<(), Refusal> {
        match self.missed.remove(first, last) {
            true => Ok(()),
            false => Err(Refusal::NoPlace),
        }
    }

    /// The member may be read again.
    pub fn in_sync(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::CatchingUp if self.missed.is_empty() => {
                self.state = State::InSync;
                Ok(())
            }
            State::CatchingUp => Err(Refusal::MissesWrites),
            State::InSync | State::Behind => Err(Refusal::WrongState),
        }
    }
}
