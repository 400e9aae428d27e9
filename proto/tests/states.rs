// SPDX-License-Identifier: GPL-2.0

//! Path states, open permissions and heartbeats.

use proto::{
    access::Writers,
    heartbeat::{
        is_silent,
        tick,
        Action,
        Settings, //
    },
    path_state::{
        ClientEvent,
        ClientState,
        ServerEvent,
        ServerState, //
    },
    rnbd::AccessMode,
    Errno, //
};

const CLIENT_EVENTS: &[ClientEvent] = {
    use ClientEvent::*;
    &[
        Connect,
        Established,
        Error,
        Reconnect,
        Close,
        Closed,
        Remove,
    ]
};

const SERVER_EVENTS: &[ServerEvent] = {
    use ServerEvent::*;
    &[Established, Close, Closed]
};

/// `rtrs_clt_change_state`: from, to.
const CLIENT_TRANSITIONS: &[(ClientState, ClientState)] = {
    use ClientState::*;
    &[
        (Reconnecting, Connecting),
        (Connected, Reconnecting),
        (ConnectingErr, Reconnecting),
        (Closed, Reconnecting),
        (Connecting, Connected),
        (Connecting, ConnectingErr),
        (Connecting, Closing),
        (ConnectingErr, Closing),
        (Reconnecting, Closing),
        (Connected, Closing),
        (Closing, Closed),
        (Closed, Dead),
    ]
};

#[test]
fn client_states_change_as_in_c() {
    for &from in ClientState::ALL {
        for &to in ClientState::ALL {
            assert_eq!(
                from.allows(to),
                CLIENT_TRANSITIONS.contains(&(from, to)),
                "{from:?} to {to:?}"
            );
        }
    }
}

#[test]
fn client_events_lead_somewhere_or_nowhere() {
    use ClientEvent as E;
    use ClientState::*;
    let leads = |from, event| match (from, event) {
        (Reconnecting, E::Connect) => Some(Connecting),
        (Connecting, E::Established) => Some(Connected),
        (Connecting, E::Error) => Some(ConnectingErr),
        (Connected, E::Error) => Some(Reconnecting),
        (Connected | ConnectingErr | Closed, E::Reconnect) => Some(Reconnecting),
        (Connecting | ConnectingErr | Reconnecting | Connected, E::Close) => Some(Closing),
        (Closing, E::Closed) => Some(Closed),
        (Closed, E::Remove) => Some(Dead),
        _ => None,
    };
    for &from in ClientState::ALL {
        for &event in CLIENT_EVENTS {
            let to = from.next(event);
            assert_eq!(to, leads(from, event), "{from:?} on {event:?}");
            assert!(to.is_none_or(|to| from.allows(to)));
        }
    }
}

#[test]
fn every_client_transition_has_an_event() {
    for &(from, to) in CLIENT_TRANSITIONS {
        assert!(
            CLIENT_EVENTS.iter().any(|&e| from.next(e) == Some(to)),
            "{from:?} to {to:?}"
        );
    }
}

#[test]
fn nothing_follows_a_removed_path() {
    for &event in CLIENT_EVENTS {
        assert_eq!(ClientState::Dead.next(event), None);
    }
}

#[test]
fn server_states_change_as_in_c() {
    use ServerState::*;
    let transitions = [
        (Connecting, Connected, ServerEvent::Established),
        (Connecting, Closing, ServerEvent::Close),
        (Connected, Closing, ServerEvent::Close),
        (Closing, Closed, ServerEvent::Closed),
    ];
    for &from in ServerState::ALL {
        for &to in ServerState::ALL {
            let allowed = transitions.iter().any(|t| (t.0, t.1) == (from, to));
            assert_eq!(from.allows(to), allowed, "{from:?} to {to:?}");
        }
        for &event in SERVER_EVENTS {
            let to = transitions.iter().find(|t| (t.0, t.2) == (from, event));
            assert_eq!(from.next(event), to.map(|t| t.1), "{from:?} on {event:?}");
        }
    }
}

#[test]
fn states_are_numbers_in_the_order_of_c() {
    for (i, &state) in ClientState::ALL.iter().enumerate() {
        assert_eq!(state.to_u32() as usize, i);
        assert_eq!(ClientState::try_from(i as u32), Ok(state));
    }
    assert_eq!(ClientState::try_from(7), Err(7));
    for (i, &state) in ServerState::ALL.iter().enumerate() {
        assert_eq!(state.to_u32() as usize, i);
        assert_eq!(ServerState::try_from(i as u32), Ok(state));
    }
    assert_eq!(ServerState::try_from(4), Err(4));
}

#[test]
fn sysfs_knows_two_states() {
    for &state in ClientState::ALL {
        let expected = match state {
            ClientState::Connected => "connected",
            _ => "disconnected",
        };
        assert_eq!(state.sysfs_str(), expected);
    }
}

#[test]
fn open_permissions_are_those_of_c() {
    use AccessMode::*;
    // Writers before, mode, writers after.
    let cases = [
        (0, Ro, Some(0)),
        (1, Ro, Some(1)),
        (2, Ro, Some(2)),
        (0, Rw, Some(1)),
        (1, Rw, None),
        (2, Rw, None),
        (0, Migration, Some(1)),
        (1, Migration, Some(2)),
        (2, Migration, None),
    ];
    for (before, mode, after) in cases {
        let mut writers = Writers::NONE;
        for _ in 0..before {
            writers = writers.opened(Migration).unwrap();
        }
        assert_eq!(writers.get(), before);
        let result = writers.opened(mode);
        assert_eq!(
            result.ok().map(Writers::get),
            after,
            "{mode:?} with {before} writers"
        );
        if let Err(denied) = result {
            assert_eq!(denied.errno(), Errno::EPERM);
        }
    }
}

#[test]
fn closing_makes_room_for_the_next_writer() {
    let one = Writers::NONE.opened(AccessMode::Rw).unwrap();
    let denied = one.opened(AccessMode::Rw).unwrap_err();
    assert_eq!(
        denied.message().as_str(),
        "access mode 'rw' is not possible, the device is already opened by 1 writer(s)"
    );
    assert_eq!(one.closed(AccessMode::Ro), one);
    assert_eq!(one.closed(AccessMode::Rw), Writers::NONE);
    assert_eq!(Writers::NONE.closed(AccessMode::Rw), Writers::NONE);
}

/// The number of intervals until the peer is given up, and the actions before.
fn until_failure(settings: &Settings) -> (u32, Vec<Action>) {
    let mut missed = 0;
    let mut actions = Vec::new();
    for interval in 1.. {
        let (action, now) = tick(missed, settings);
        if action == Action::Fail {
            return (interval, actions);
        }
        actions.push(action);
        missed = now;
    }
    unreachable!()
}

/// The longest time from the peer's last message to [`Action::Fail`] in ms.
fn detection_ms(settings: &Settings) -> u64 {
    u64::from(settings.interval_ms) * (u64::from(settings.missed_max) + 2)
}

#[test]
fn a_silent_peer_is_given_up_as_in_c() {
    let (intervals, actions) = until_failure(&Settings::DEFAULT);
    // Between 30 and 35 s after the peer's last message.
    assert_eq!(intervals, 7);
    assert_eq!(detection_ms(&Settings::DEFAULT), 35_000);
    // One heartbeat, and no further heartbeats while it is not answered.
    assert_eq!(actions[0], Action::Send);
    assert!(actions[1..].iter().all(|&action| action == Action::Wait));
}

#[test]
fn detection_can_be_faster_than_a_second() {
    let settings = Settings {
        interval_ms: 100,
        missed_max: 5,
    };
    let (intervals, _) = until_failure(&settings);
    assert_eq!(u64::from(intervals) * 100, detection_ms(&settings));
    assert!(detection_ms(&settings) < 1000);
}

#[test]
fn whoever_fails_is_silent() {
    let settings = Settings::DEFAULT;
    for missed in 0..20 {
        let fails = tick(missed, &settings).0 == Action::Fail;
        assert_eq!(is_silent(missed, &settings), fails, "{missed}");
    }
}

#[test]
fn a_sign_of_life_starts_over() {
    let settings = Settings::DEFAULT;
    let mut missed = 0;
    for _ in 0..settings.missed_max {
        missed = tick(missed, &settings).1;
    }
    assert_ne!(tick(missed, &settings).0, Action::Fail);
    assert_eq!(tick(0, &settings), (Action::Send, 1));
}

#[test]
fn no_setting_overflows() {
    let settings = Settings {
        interval_ms: u32::MAX,
        missed_max: u32::MAX,
    };
    assert_eq!(tick(u32::MAX, &settings), (Action::Wait, u32::MAX));
}
