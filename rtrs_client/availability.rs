// SPDX-License-Identifier: GPL-2.0

//! Whether a session has a path that is up, and what the server is told of that.
//!
//! A request whose path fails goes to another one, in the same chunk of the server's memory, and
//! the server has the second one wait for the first. Without another path the request is given up,
//! and its chunk is soon used for something else, although the server may still be at work on it.
//! So a path that connects tells how many requests were given up so far, and if that has changed
//! the server makes a new session, with other chunks, when it has ended the old one. No path that
//! is up, or comes up, may have told less: see [`Availability::giving_up`].

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

/// Counts the paths that are up, and tells the user when the last one goes and the first one comes.
#[pin_data]
pub(crate) struct Availability {
    #[pin]
    state: Mutex<State>,
    events: Arc<dyn SessionEvents>,
    /// Times are kept relative to this one, since only plain numbers can be atomic.
    origin: Instant<Monotonic>,
    /// When the last path was lost, in ms after `origin`.
    outage_began: Atomic<i64>,
    /// No path has been up since.
    is_out: Atomic<bool>,
}

struct State {
    /// The paths that were up and have not been taken down yet.
    up: usize,
    /// How often a path came up, modulo 2^32.
    times_up: u32,
    /// How many requests were given up, modulo 2^32.
    given_up: u32,
    /// The user has the session, so that it can be told of changes.
    opened: bool,
    /// The server is being left: no path comes up before all of them have gone, so that the server
    /// gets rid of the session.
    leaving: bool,
}

/// What a path is to know of its session when it asks the server for its first connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct ConnectSnapshot {
    /// A path was up, or had requests that may go to this one.
    up: bool,
    /// How many requests the session had given up, modulo 2^32.
    pub(crate) given_up: u32,
}

impl ConnectSnapshot {
    /// Whether the server may make a new session.
    ///
    /// Not while another path is up, as far as this side knows, or has requests that may go to
    /// this one: the server may have forgotten the session and that path. The user would not be
    /// told that a new session has none of what it has opened, and the numbers of its devices
    /// would come to mean others.
    pub(crate) fn let_make_session(&self) -> bool {
        !self.up
    }
}

impl Availability {
    /// No path is up, and the user does not have the session yet.
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

    /// From here on the user is told when the last path is lost, and when the first is up again; or
    /// not any more. Sleeps.
    pub(crate) fn tell_user(&self, opened: bool) {
        self.state.lock().opened = opened;
    }

    /// What a path is to know that is about to ask the server. Sleeps.
    pub(crate) fn snapshot(&self) -> ConnectSnapshot {
        let state = self.state.lock();
        ConnectSnapshot {
            up: state.up != 0,
            given_up: state.given_up,
        }
    }

    /// A request is about to be given up that the server may be at work on. Process context.
    ///
    /// A path that asks from here on tells the server; one that has asked before and is not up yet
    /// will not come up. Those that are up must be taken down before the request's chunk is used
    /// again.
    pub(crate) fn giving_up(&self) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.wrapping_add(1);
    }

    /// How often a path of the session came up, modulo 2^32. Sleeps.
    pub(crate) fn times_up(&self) -> u32 {
        self.state.lock().times_up
    }

    /// Whether a path is up, or was and has not been taken down yet. Sleeps.
    pub(crate) fn has_path_up(&self) -> bool {
        self.state.lock().up != 0
    }

    /// Runs `f` while no path comes up or is taken down. Sleeps.
    pub(crate) fn without_change<R>(&self, f: impl FnOnce() -> R) -> R {
        let _state = self.state.lock();
        f()
    }

    /// Has `fail` fail all paths, if a path is up and `is_meant` returns true; no path comes up
    /// before all have been taken down. Both run while no path comes up or is taken down, and must
    /// not call [`Self`]. Sleeps.
    pub(crate) fn leave(&self, is_meant: impl FnOnce() -> bool, fail: impl FnOnce()) {
        let mut state = self.state.lock();
        if state.up == 0 || !is_meant() {
            return;
        }
        state.leaving = true;
        fail();
    }

    /// Counts a path as up, if `establish` says that it may take requests now. Process context.
    ///
    /// `ECONNABORTED` if it does not, if the server is being left, or, with a line in the log for
    /// `session`, if requests were given up since `snapshot`, which the server was not told.
    pub(crate) fn path_up(
        &self,
        session: &str,
        snapshot: &ConnectSnapshot,
        establish: impl FnOnce() -> bool,
    ) -> Result {
        let mut state = self.state.lock();
        if state.given_up != snapshot.given_up {
            kernel_ext::pr_info_ratelimited!(
                "{}: another path was lost with requests while this one was connecting\n",
                session
            );
            return Err(ECONNABORTED);
        }
        if state.leaving || !establish() {
            return Err(ECONNABORTED);
        }
        // At most as many as a session has paths.
        state.up = state.up.wrapping_add(1);
        state.times_up = state.times_up.wrapping_add(1);
        self.is_out.store(false, ordering::Release);
        if state.opened && state.up == 1 {
            self.events.link_event(LinkEvent::Reconnected);
        }
        Ok(())
    }

    /// A path that was up has no requests left and takes none. Process context.
    pub(crate) fn path_down(&self) {
        let mut state = self.state.lock();
        // It was counted when it came up.
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

    /// Whether a request that finds no path comes before the loss of the last one has been noted.
    /// Any context.
    pub(crate) fn is_about_to_be_lost(&self) -> bool {
        !self.is_out.load(ordering::Acquire)
    }
}
