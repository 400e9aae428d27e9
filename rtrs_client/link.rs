// SPDX-License-Identifier: GPL-2.0

//! Which paths of a session are up, and what the server is told of them.
//!
//! A request whose path fails goes to another one, in the same chunk of the server's memory, and
//! the server has the second one wait for the first. Without another path the request is given up,
//! and its chunk is soon used for something else, although the server may still be at work on it.
//! So a path that connects tells how many requests were given up so far, and if that has changed
//! the server makes a new session, with other chunks, when it has ended the old one. No path that
//! is up, or comes up, may have told less: see [`Session::giving_up`].

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use crate::session::{
    LinkEvent,
    Session, //
};

/// Counts the paths that are up, and serialises the events that tell the user of it.
#[pin_data]
pub(crate) struct Link {
    #[pin]
    state: Mutex<State>,
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
}

/// What a path is to know of its session when it asks the server for its first connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asked {
    /// A path was up, or had requests that may go to this one.
    up: bool,
    /// How many requests the session had given up, modulo 2^32.
    pub(crate) given_up: u32,
}

impl Asked {
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

impl Link {
    /// No path is up, and the user does not have the session yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(
                State { up: 0, times_up: 0, given_up: 0, opened: false },
                "Link::state"
            ),
        })
    }
}

impl Session {
    /// From here on the user is told when the last path is lost, and when the first is up again; or
    /// not any more. Sleeps.
    pub(crate) fn tell_user(&self, opened: bool) {
        self.link.state.lock().opened = opened;
    }

    /// What a path is to know that is about to ask the server. Sleeps.
    pub(crate) fn ask(&self) -> Asked {
        let link = self.link.state.lock();
        Asked {
            up: link.up != 0,
            given_up: link.given_up,
        }
    }

    /// A request is about to be given up that the server may be at work on. Process context.
    ///
    /// A path that asks from here on tells the server; one that has asked before and is not up yet
    /// will not come up. Those that are up must be taken down before the request's chunk is used
    /// again.
    pub(crate) fn giving_up(&self) {
        let mut link = self.link.state.lock();
        link.given_up = link.given_up.wrapping_add(1);
    }

    /// How often a path of the session came up, modulo 2^32. Sleeps.
    pub(crate) fn times_up(&self) -> u32 {
        self.link.state.lock().times_up
    }

    /// Whether a path is up, or was and has not been taken down yet. Sleeps.
    pub(crate) fn has_path_up(&self) -> bool {
        self.link.state.lock().up != 0
    }

    /// Runs `f` while no path comes up or is taken down. Sleeps.
    pub(crate) fn without_change<R>(&self, f: impl FnOnce() -> R) -> R {
        let _link = self.link.state.lock();
        f()
    }

    /// Counts a path as up, if `establish` says that it may take requests now. Process context.
    ///
    /// `ECONNABORTED` if it does not, or if requests were given up since `asked`, which the server
    /// was not told.
    pub(crate) fn path_up(&self, asked: &Asked, establish: impl FnOnce() -> bool) -> Result {
        let mut link = self.link.state.lock();
        if link.given_up != asked.given_up {
            kernel_ext::pr_info_ratelimited!(
                "{}: another path was lost with requests while this one was connecting\n",
                self.name_text()
            );
            return Err(ECONNABORTED);
        }
        if !establish() {
            return Err(ECONNABORTED);
        }
        link.up = link.up.saturating_add(1);
        link.times_up = link.times_up.wrapping_add(1);
        self.outage.end();
        if link.opened && link.up == 1 {
            self.events().link_event(LinkEvent::Reconnected);
        }
        Ok(())
    }

    /// A path that was up has no requests left and takes none. Process context.
    pub(crate) fn path_down(&self) {
        let mut link = self.link.state.lock();
        link.up = link.up.saturating_sub(1);
        if link.up != 0 {
            return;
        }
        self.outage.begin();
        if link.opened {
            self.events().link_event(LinkEvent::Disconnected);
        }
    }
}
