// SPDX-License-Identifier: GPL-2.0

//! Which paths of a session are up, and what the server is told of them.
//!
//! A request whose path fails goes to another one, in the same chunk of the server's memory, and the
//! server has the second one wait for the first. Without another path the request is given up, and
//! its chunk is soon used for something else, although the server may still be at work on it. So a
//! path that connects says whether requests may have been given up; then the server takes it only
//! when all chunks are free. That must still be true when the path comes up, and not change before
//! it takes requests.

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
    /// Those of them that are being taken down.
    going: usize,
    /// How often a path began to be taken down.
    losses: u64,
    /// The user has the session, so that it can be told of changes.
    opened: bool,
}

/// How the other paths were when one asked the server for its first connection.
#[derive(Clone, Copy)]
pub(crate) struct Others {
    /// A path was up, or had requests that may go to this one.
    up: bool,
    /// A path was up that was not being taken down.
    carry_on: bool,
    losses: u64,
}

impl Others {
    /// Whether requests may have been given up that the server is still at work on.
    pub(crate) fn may_have_given_up(&self) -> bool {
        !self.carry_on
    }

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
                State { up: 0, going: 0, losses: 0, opened: false },
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

    /// The other paths, for one that is about to ask the server. Sleeps.
    pub(crate) fn others(&self) -> Others {
        let link = self.link.state.lock();
        Others {
            up: link.up != 0,
            carry_on: link.up > link.going,
            losses: link.losses,
        }
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
    /// `ECONNABORTED` if it does not, or if another path was lost since `asked`: its requests may
    /// have been given up, which the server was not told.
    pub(crate) fn path_up(&self, asked: &Others, establish: impl FnOnce() -> bool) -> Result {
        let mut link = self.link.state.lock();
        if link.losses != asked.losses {
            pr_info!(
                "{}: another path was lost while this one was connecting\n",
                self.name_text()
            );
            return Err(ECONNABORTED);
        }
        if !establish() {
            return Err(ECONNABORTED);
        }
        link.up = link.up.saturating_add(1);
        self.outage.end();
        if link.opened && link.up == 1 {
            self.events().link_event(LinkEvent::Reconnected);
        }
        Ok(())
    }

    /// A path that was up takes no requests any more; those that it has are sent on other paths, or
    /// given up, after this. Process context.
    pub(crate) fn path_going(&self) {
        let mut link = self.link.state.lock();
        link.going = link.going.saturating_add(1);
        link.losses = link.losses.wrapping_add(1);
    }

    /// A path that was going has no requests left. Process context.
    pub(crate) fn path_down(&self) {
        let mut link = self.link.state.lock();
        link.going = link.going.saturating_sub(1);
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
