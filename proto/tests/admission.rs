// SPDX-License-Identifier: GPL-2.0

//! The decisions on requests for connections.

use proto::admission::{
    decide,
    no_room,
    Asks,
    Limits,
    Scope,
    Usage, //
};

const LIMITS: Limits = Limits {
    all: Usage {
        sessions: 4,
        paths: 20,
        connections: 100,
        half_open: 8,
    },
    per_client: Usage {
        sessions: 2,
        paths: 10,
        connections: 50,
        half_open: 3,
    },
};
const NONE: Usage = Usage {
    sessions: 0,
    paths: 0,
    connections: 0,
    half_open: 0,
};

fn refusal(client: Usage, all: Usage, asks: Asks) -> String {
    decide(&LIMITS, &client, &all, asks)
        .expect_err("nothing was refused")
        .to_string()
}

#[test]
fn what_is_below_its_limits_is_admitted() {
    for asks in [Asks::Path, Asks::Connection, Asks::Session] {
        assert_eq!(decide(&LIMITS, &NONE, &NONE, asks), Ok(None), "{asks:?}");
    }
    let client = Usage {
        sessions: 1,
        paths: 9,
        connections: 49,
        half_open: 2,
    };
    let all = Usage {
        sessions: 3,
        paths: 19,
        connections: 99,
        half_open: 7,
    };
    for asks in [Asks::Path, Asks::Connection, Asks::Session] {
        assert_eq!(decide(&LIMITS, &client, &all, asks), Ok(None), "{asks:?}");
    }
}

#[test]
fn a_limit_is_the_most_and_names_its_parameter() {
    let cases = [
        (
            Usage {
                sessions: 2,
                ..NONE
            },
            NONE,
            Asks::Session,
            "the address has 2 sessions, as many as max_sessions_per_client allows",
        ),
        (
            NONE,
            Usage {
                sessions: 4,
                ..NONE
            },
            Asks::Session,
            "there are 4 sessions, as many as max_sessions allows",
        ),
        (
            Usage { paths: 10, ..NONE },
            NONE,
            Asks::Path,
            "the address has 10 paths, as many as max_paths_per_client allows",
        ),
        (
            NONE,
            Usage { paths: 20, ..NONE },
            Asks::Path,
            "there are 20 paths, as many as max_paths allows",
        ),
        (
            Usage {
                connections: 50,
                ..NONE
            },
            NONE,
            Asks::Connection,
            "the address has 50 connections, as many as max_connections_per_client allows",
        ),
        (
            NONE,
            Usage {
                connections: 100,
                ..NONE
            },
            Asks::Path,
            "there are 100 connections, as many as max_connections allows",
        ),
    ];
    for (client, all, asks, text) in cases {
        assert_eq!(refusal(client, all, asks), text);
    }
}

#[test]
fn another_kind_of_use_does_not_count() {
    let full = Usage {
        sessions: 4,
        paths: 20,
        connections: 100,
        half_open: 8,
    };
    for (asks, usage) in [
        (
            Asks::Path,
            Usage {
                paths: 0,
                connections: 0,
                half_open: 0,
                ..full
            },
        ),
        (
            Asks::Connection,
            Usage {
                connections: 0,
                ..full
            },
        ),
        (
            Asks::Session,
            Usage {
                sessions: 0,
                ..full
            },
        ),
    ] {
        assert_eq!(decide(&LIMITS, &usage, &usage, asks), Ok(None), "{asks:?}");
    }
}

#[test]
fn half_open_paths_make_room_for_newer_ones() {
    // The address's own half-open paths are closed first: it is the address that floods.
    let client = Usage {
        half_open: 3,
        ..NONE
    };
    let all = Usage {
        half_open: 8,
        ..NONE
    };
    assert_eq!(
        decide(&LIMITS, &client, &all, Asks::Path),
        Ok(Some(Scope::Client))
    );
    assert_eq!(
        decide(&LIMITS, &NONE, &all, Asks::Path),
        Ok(Some(Scope::All))
    );
    for (scope, text) in [
        (
            Scope::Client,
            "the address has 3 half-open paths, as many as max_half_open_per_client allows",
        ),
        (
            Scope::All,
            "there are 8 half-open paths, as many as max_half_open allows",
        ),
    ] {
        assert_eq!(no_room(&LIMITS, scope).to_string(), text);
    }
}

#[test]
fn zero_is_no_limit() {
    let limits = Limits {
        all: NONE,
        per_client: NONE,
    };
    let most = Usage {
        sessions: u32::MAX,
        paths: u32::MAX,
        connections: u32::MAX,
        half_open: u32::MAX,
    };
    for asks in [Asks::Path, Asks::Connection, Asks::Session] {
        assert_eq!(decide(&limits, &most, &most, asks), Ok(None), "{asks:?}");
    }
}
