// SPDX-License-Identifier: GPL-2.0

//! No older write lands after a newer write, whatever is lost and however long any step takes.
//!
//! The checker visits all states of [`model`]. For most rules a test leaves the rule out, and the
//! checker has to find a run that breaks a property.

#![allow(missing_docs)]

mod model;
mod steps;

use model::{Data, Fence, Rules, Says, Wait};
use stateright::{Checker, Model};

const STALE: &str = "nothing older after something newer";
const HANGS: &str = "no request hangs";

/// Two paths, with this many losses and this many new connections.
fn two_paths(rules: Rules, losses: u8, connects: u8) -> Fence {
    Fence {
        rules,
        paths: 2,
        losses,
        connects,
        full: 0,
    }
}

fn holds(fence: Fence) {
    let checker = fence.checker().spawn_bfs().join();
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

fn finds(fence: Fence, what: &'static str) {
    let checker = fence.checker().spawn_bfs().join();
    eprintln!("{} states", checker.unique_state_count());
    let path = checker
        .discovery(what)
        .unwrap_or_else(|| panic!("not found: {what}"));
    eprintln!("{what}: {:?}", path.into_actions());
}

/// The modules' rules are enough, however the server keeps data from changes.
#[test]
fn ours() {
    for data in [Data::InPlace, Data::Copied, Data::Invalidated] {
        holds(two_paths(
            Rules {
                data,
                ..Rules::OURS
            },
            2,
            1,
        ));
    }
}

/// The rules are also enough when requests that were given up are offered again, in another
/// session.
#[test]
fn held_requests() {
    holds(two_paths(
        Rules {
            hold: true,
            ..Rules::OURS
        },
        2,
        1,
    ));
}

#[test]
fn paths_come_back_twice() {
    holds(two_paths(Rules::OURS, 2, 2));
}

#[test]
fn three_paths() {
    holds(Fence {
        rules: Rules::OURS,
        paths: 3,
        losses: 2,
        connects: 0,
        full: 0,
    });
}

/// A server without owners of chunks would have to wait for the disk.
#[test]
fn owners() {
    let without = Rules {
        owners: false,
        ..Rules::OURS
    };
    finds(two_paths(without, 1, 0), STALE);
    holds(two_paths(
        Rules {
            says: Says::AfterRequests,
            ..without
        },
        2,
        1,
    ));
}

/// The state of a path forbids that a request begins, but packets still get into chunks until the
/// queue pairs are drained.
#[test]
fn ended_before_the_drain() {
    finds(
        two_paths(
            Rules {
                says: Says::BeforeDrain,
                ..Rules::OURS
            },
            1,
            0,
        ),
        STALE,
    );
}

/// No time is long enough, however the server keeps data from changes.
#[test]
fn a_clock() {
    for data in [Data::InPlace, Data::Copied, Data::Invalidated] {
        finds(
            two_paths(
                Rules {
                    wait: Wait::Clock,
                    data,
                    ..Rules::OURS
                },
                1,
                0,
            ),
            STALE,
        );
    }
}

/// The server disconnects a path before it drains the queue pairs.
#[test]
fn a_disconnection() {
    finds(
        two_paths(
            Rules {
                wait: Wait::Disconnected,
                ..Rules::OURS
            },
            1,
            0,
        ),
        STALE,
    );
}

/// The path that carries the question may be lost while another path comes up. That path has to
/// carry the question, too.
#[test]
fn one_question() {
    finds(
        two_paths(
            Rules {
                asks_again: false,
                ..Rules::OURS
            },
            2,
            1,
        ),
        HANGS,
    );
}

/// A server whose send queue is full drops its message that a path has ended.
#[test]
fn a_full_server() {
    let full = |repeats| Fence {
        full: 1,
        ..two_paths(
            Rules {
                repeats,
                ..Rules::OURS
            },
            1,
            1,
        )
    };
    finds(full(false), HANGS);
    holds(full(true));
}

/// If no path is left to ask the server by, a path that comes up later must not get the requests.
#[test]
fn sent_without_an_end() {
    finds(
        two_paths(
            Rules {
                gives_up: false,
                ..Rules::OURS
            },
            2,
            1,
        ),
        STALE,
    );
}

/// Requests that were given up may still arrive in the chunks of the old session.
#[test]
fn given_up_in_the_same_session() {
    finds(
        two_paths(
            Rules {
                new_session: false,
                ..Rules::OURS
            },
            2,
            1,
        ),
        STALE,
    );
}

/// Requests that were given up may still be at work in the old session.
#[test]
fn a_session_while_the_old_one_is_at_work() {
    finds(
        two_paths(
            Rules {
                session_waits: false,
                ..Rules::OURS
            },
            2,
            1,
        ),
        STALE,
    );
}
