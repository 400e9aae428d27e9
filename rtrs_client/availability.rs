// SPDX-License-Identifier: GPL-2.0

//! Whether a session has a path that is up, and what the server is told of that: rule 3 of failover
//! in Documentation/design.md.
//!
//! A request whose path fails goes to another path when the server has ended the first path (the
//! fence, `path/teardown.rs`). It keeps its chunk of the server's memory, and the server has the
//! second copy wait for the first. Without another path the request is given up. Then its chunk is
//! soon used for another request, and a newer write to the same place may be sent, although the
//! server may still be at work on the old request. So a path that connects tells the server how
//! many requests were given up so far. If that count has changed, the server ends the old session
//! and then makes a new one, with other chunks. No path that is up, or comes up, may have told
//! less: see [`Availability::giving_up`].

use kernel::{
    new_mutex,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::prelude::*;

use crate::events::{
    LinkEvent,
    SessionEvents, //
};

/// Counts the paths that are up, and tells the user when the last path goes and when the first
/// comes.
#[pin_data]
pub(crate) struct Availability {
    #[pin]
    state: Mutex<State>,
    events: Arc<dyn SessionEvents>,
    /// Times are kept relative to this time, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the last path was lost, in ms after `origin`.
    outage_began: Atomic<i64>,
    /// Whether no path has been up since `outage_began`.
    is_out: Atomic<bool>,
}

struct State {
    /// The paths that were up and have not been taken down yet.
    up: usize,
    /// How often a path came up, modulo 2^32.
    times_up: u32,
    /// How many requests were given up, modulo 2^32.
    given_up: u32,
    /// Whether the user has the session, so that it can be told of changes.
    opened: bool,
    /// Whether the server is being left. No path comes up before all paths have gone, so that the
    /// server gets rid of the session.
    leaving: bool,
}

/// The state of a session when a path asks the server for its first connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectSnapshot {
    /// Whether a path was up, or was not taken down yet, so that its requests may go to this path.
    up: bool,
    /// How many requests the session had given up, modulo 2^32.
    pub(crate) given_up: u32,
}

impl ConnectSnapshot {
    /// Whether the server may make a new session.
    ///
    /// It may not while another path is up as far as this end knows, or is not taken down yet, so
    /// that its requests may go to this path. The server may have forgotten the session and the
    /// other path. Its new session would have nothing open, the user would not be told of that, and
    /// the numbers of the user's devices would come to mean other devices.
    pub(crate) fn let_make_session(&self) -> bool {
        !self.up
    }
}

impl Availability {
    /// Makes the state of a session without a path that is up, which the user does not have yet.
    pub(crate) fn new(events: Arc<dyn SessionEvents>) -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(
                State { up: 0, times_up: 0, given_up: 0, opened: false, leaving: false },
                "Availability::state"
            ),
            events,
            origin: Instant::now(),
            outage_began: Atomic::new(0),
            is_out: Atomic::new(true),
        })
    }

    /// Sets whether the user is told when the last path is lost, and when the first path is up
    /// again. Sleeps.
    pub(crate) fn tell_user(&self, opened: bool) {
        self.state.lock().opened = opened;
    }

    /// The state of the session, for a path that is about to ask the server. Sleeps.
    pub(crate) fn snapshot(&self) -> ConnectSnapshot {
        let state = self.state.lock();
        ConnectSnapshot {
            up: state.up != 0,
            given_up: state.given_up,
        }
    }

    /// Counts a request that is about to be given up, and that the server may be at work on.
    /// Process context.
    ///
    /// A path that asks for its first connection from here on tells the server. A path that has
    /// asked before and is not up yet will not come up. The caller fails the paths that are up
    /// before the request's tag, and so its chunk, is used again.
    pub(crate) fn giving_up(&self) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.wrapping_add(1);
    }

    /// How often a path of the session came up, modulo 2^32. Sleeps.
    pub(crate) fn times_up(&self) -> u32 {
        self.state.lock().times_up
    }

    /// Whether a path is up, or was up and has not been taken down yet. Sleeps.
    pub(crate) fn has_path_up(&self) -> bool {
        self.state.lock().up != 0
    }

    /// Runs `f` while no path comes up or is taken down. Sleeps.
    pub(crate) fn without_change<R>(&self, f: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        f()
    }

    /// Calls `fail` to fail all paths, if a path is up and `is_meant` returns true. No path comes
    /// up before all have been taken down. Both closures run while no path comes up or is taken
    /// down, and must not call [`Self`]. Sleeps.
    pub(crate) fn leave(&self, is_meant: impl FnOnce() -> bool, fail: impl FnOnce()) {
        let mut state = self.state.lock();
        if state.up == 0 || !is_meant() {
            return;
        }
        state.leaving = true;
        fail();
    }

    /// Counts a path as up, if `establish` returns that it may take requests now. Process context.
    ///
    /// `ECONNABORTED` if the path may not take requests, or if the server is being left. Also if
    /// requests were given up since `snapshot`, because the server was not told of them; then the
    /// log has a line for `session`.
    pub(crate) fn path_up(
        &self,
        session: &str,
        snapshot: &ConnectSnapshot,
        establish: impl FnOnce() -> bool,
    ) -> Result {
        let mut state = self.state.lock();
        if state.given_up != snapshot.given_up {
            kernel_ext::pr_info_ratelimited!(
                "{}: another path was lost with requests in flight while this path was connecting; \
                 if writing to add_path failed, write the path to add_path again\n",
                session
            );
            return Err(ECONNABORTED);
        }
        if state.leaving || !establish() {
            return Err(ECONNABORTED);
        }
        // A session has far fewer paths.
        state.up = state.up.wrapping_add(1);
        state.times_up = state.times_up.wrapping_add(1);
        self.is_out.store(false, ordering::Release);
        if state.opened && state.up == 1 {
            self.events.link_event(LinkEvent::Reconnected);
        }
        Ok(())
    }

    /// Counts a path as down: it was up, has no requests left and takes none. Process context.
    pub(crate) fn path_down(&self) {
        let mut state = self.state.lock();
        // The path was counted when it came up.
        state.up = state.up.wrapping_sub(1);
        if state.up != 0 {
            return;
        }
        state.leaving = false;
        let now = self.origin.elapsed().as_millis();
        self.outage_began.store(now, ordering::Relaxed);
        self.is_out.store(true, ordering::Release);
        if state.opened {
            self.events.link_event(LinkEvent::Disconnected);
        }
    }

    /// Whether the last path was lost less than `ms` ago. Any context.
    pub(crate) fn was_lost_within(&self, ms: u32) -> bool {
        let began = self.outage_began.load(ordering::Relaxed);
        // Both are times of one clock, which does not go back.
        self.origin.elapsed().as_millis().wrapping_sub(began) < i64::from(ms)
    }

    /// Whether the loss of the last path has not been noted yet, for a request that finds no path.
    /// Any context.
    pub(crate) fn is_about_to_be_lost(&self) -> bool {
        !self.is_out.load(ordering::Acquire)
    }
}
