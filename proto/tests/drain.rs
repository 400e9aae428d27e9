// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance: its time, and how long a client waits for the server.

use proto::{
    drain::{
        may_leave,
        refusal_ms,
        seconds_of,
        told_ms,
        ClientDrain,
        DRAIN,
        MAX_SECONDS, //
    },
    reconnect::drain_delay_ms,
    rnbd::MAX_DRAIN_MS as MAX_MS,
    Errno, //
};

const DAY: i64 = MAX_MS as i64;

#[test]
fn a_time_is_zero_or_up_to_a_day() {
    for (text, seconds) in [("0", 0), ("1\n", 1), ("600", 600), ("86400\n", 86_400)] {
        assert_eq!(DRAIN.parse(text.as_bytes()), Ok(seconds), "{text:?}");
    }
    for (text, errno) in [
        ("", Errno::EINVAL),
        ("off", Errno::EINVAL),
        ("-1", Errno::EINVAL),
        ("10m", Errno::EINVAL),
        ("86401", Errno::EINVAL),
        ("99999999999999999999", Errno::ERANGE),
    ] {
        let refused = DRAIN.parse(text.as_bytes()).unwrap_err();
        assert_eq!(refused.errno(), errno, "{text:?}");
        assert!(refused.message().as_str().starts_with("drain: "), "{text}");
    }
}

#[test]
fn seconds_and_milliseconds() {
    for (ms, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (MAX_MS, MAX_SECONDS)] {
        assert_eq!(seconds_of(ms), seconds, "{ms} ms");
    }
}

#[test]
fn clients_wait_longer_than_they_are_refused() {
    for seconds in [1, 2, 600, MAX_SECONDS - 10, MAX_SECONDS, u32::MAX] {
        let refused = refusal_ms(seconds);
        assert_eq!(refused, seconds.min(MAX_SECONDS - 10) * 1000, "{seconds} s");
        assert_eq!(told_ms(refused), refused + 10_000, "{seconds} s");
    }
    assert_eq!((refusal_ms(0), told_ms(1)), (0, 10_001));
    assert_eq!(told_ms(u32::MAX), MAX_MS);
}

#[test]
fn what_is_told_is_believed() {
    let mut drain = ClientDrain::new(5);
    assert_eq!(drain.begin(5, 600_000), Some(600_000));
    assert_eq!(back_and_open(&mut drain, 60_005), Some(60_000));
    // Twice a day for a year, ten minutes each.
    for half_day in 1..730 {
        let now = 5 + half_day * (DAY / 2);
        assert_eq!(drain.begin(now, 600_000), Some(600_000), "{half_day}");
        back_and_open(&mut drain, now + 600_000);
    }
}

/// The server is back, and has opened all devices.
fn back_and_open(drain: &mut ClientDrain, now: i64) -> Option<i64> {
    let away_ms = drain.came_back(now);
    drain.end(now);
    assert_eq!((drain.held_until(), drain.is_away()), (None, false));
    away_ms
}

#[test]
fn a_day_is_the_most() {
    let mut drain = ClientDrain::new(0);
    assert_eq!(drain.begin(0, u32::MAX), Some(MAX_MS));
    // The server announces the drain again before the time is over, and when it is over.
    assert_eq!(drain.begin(DAY / 2, MAX_MS), Some(MAX_MS / 2));
    assert_eq!(drain.begin(DAY, MAX_MS), None);
    assert_eq!(drain.begin(DAY + 999, MAX_MS), None, "not worth it");
    assert_eq!(drain.begin(DAY + 1000, MAX_MS), Some(1000));
    assert_eq!(drain.begin(DAY + 2000, MAX_MS), None);
    assert_eq!(drain.begin(100 * DAY, MAX_MS), Some(MAX_MS));
}

#[test]
fn a_time_that_is_too_short_takes_the_place_of_a_long_one() {
    for told in [0, 1, 999] {
        let mut drain = ClientDrain::new(0);
        assert_eq!(drain.begin(0, MAX_MS), Some(MAX_MS));
        assert_eq!(drain.begin(5000, told), None, "{told}");
        // Time without held requests does not count as held, and the other way round.
        assert_eq!(drain.held_until(), Some(5000), "{told}");
        assert_eq!(drain.excused_until(), Some(5000), "{told}");
        assert!(!drain.has_run_out(6000), "{told}");
        assert_eq!(drain.came_back(6000), None, "{told}");
    }
    // A time that is too short does not begin a drain either.
    let mut drain = ClientDrain::new(0);
    assert_eq!(drain.begin(0, 999), None);
    assert_eq!((drain.held_until(), drain.is_away()), (None, false));
}

#[test]
fn the_time_until_the_end_counts_and_not_what_was_told() {
    let mut drain = ClientDrain::new(0);
    assert_eq!(drain.begin(0, MAX_MS), Some(MAX_MS));
    back_and_open(&mut drain, 1000);
    assert_eq!(drain.begin(1000, MAX_MS), Some(MAX_MS - 1000));
    // The server does not say that the drain is over.
    let mut drain = ClientDrain::new(0);
    assert_eq!(drain.begin(0, 1000), Some(1000));
    assert_eq!(drain.begin(3000, MAX_MS), Some(MAX_MS));
}

#[test]
fn half_of_the_time_in_the_long_run() {
    // A server that announces a drain each second, and a server that announces a day and takes it
    // back.
    for told in [
        [999, 999],
        [1000, 1000],
        [60_000, 60_000],
        [MAX_MS, MAX_MS],
        [MAX_MS, 1],
    ] {
        let mut drain = ClientDrain::new(0);
        let mut held = 0;
        let seconds = 4 * i64::from(MAX_SECONDS);
        for second in 0..seconds {
            let now = second * 1000;
            drain.begin(now, told[usize::from(second % 5 != 0)]);
            let until = drain.held_until().unwrap_or(now);
            held += (until - now).clamp(0, 1000);
        }
        assert!(
            held <= DAY + (seconds * 1000 - DAY) / 2 + 1000,
            "{told:?}: {held}"
        );
    }
}

#[test]
fn a_device_may_be_awaited_when_the_server_is_back() {
    let mut drain = ClientDrain::new(0);
    drain.begin(0, 600_000);
    drain.end(1000);
    assert_eq!(drain.held_until(), Some(600_000), "the server is away");
    assert_eq!(drain.came_back(2000), Some(2000));
    assert_eq!(drain.came_back(3000), None, "once");
    assert_eq!(
        (drain.held_until(), drain.is_away()),
        (Some(600_000), false)
    );
    assert!(!drain.has_run_out(700_000), "it was back");
    drain.end(5000);
    assert_eq!(drain.held_until(), None);
    // The five seconds were taken from the allowance, and as much has come back since.
    assert_eq!(drain.begin(5000, MAX_MS), Some(MAX_MS - 5000));
}

#[test]
fn a_device_that_never_comes_is_awaited_for_ten_minutes() {
    let mut drain = ClientDrain::new(0);
    drain.begin(0, MAX_MS);
    drain.came_back(300_000);
    assert_eq!(drain.held_until(), Some(900_000));
    // The allowance is left for the next drain.
    assert_eq!(drain.begin(DAY, 610_000), Some(610_000));
}

#[test]
fn a_client_leaves_if_it_can_wait_until_it_is_let_in() {
    for (granted, told, leaves) in [
        (610_000, 610_000, true),
        (600_000, 610_000, true),
        (599_999, 610_000, false),
        (1000, 11_001, false),
        (1000, 1000, true),
        (u32::MAX, u32::MAX, true),
        (5000, MAX_MS, false),
    ] {
        assert_eq!(may_leave(granted, told), leaves, "{granted} of {told}");
    }
}

#[test]
fn the_time_runs_out_once() {
    let mut drain = ClientDrain::new(0);
    assert!(!drain.has_run_out(5));
    drain.begin(0, 2000);
    assert!(!drain.has_run_out(1999));
    assert!(drain.has_run_out(2000));
    assert!(!drain.has_run_out(2001));
    assert_eq!(drain.held_until(), Some(2000), "until the server is back");
    assert_eq!(drain.came_back(3000), None, "after the time");
    // The next drain begins when it is announced.
    drain.begin(10_000, 2000);
    assert!(drain.has_run_out(12_000));
    drain.begin(20_000, 2000);
    assert_eq!(drain.came_back(21_500), Some(1500));
}

#[test]
fn attempts_are_excused_for_a_minute_after_the_return() {
    let mut drain = ClientDrain::new(0);
    assert_eq!(drain.excused_until(), None);
    drain.begin(0, MAX_MS);
    assert_eq!(drain.excused_until(), Some(DAY));
    back_and_open(&mut drain, 5000);
    assert_eq!(drain.excused_until(), Some(65_000));
    drain.begin(100_000, 20_000);
    back_and_open(&mut drain, 110_000);
    assert_eq!(
        drain.excused_until(),
        Some(120_000),
        "no longer than was told"
    );
}

#[test]
fn a_clock_that_stands_or_jumps_does_no_harm() {
    let mut drain = ClientDrain::new(i64::MIN);
    for now in [i64::MIN, 0, 0, i64::MAX, i64::MAX, 5, i64::MIN] {
        for told in [0, 1, MAX_MS, u32::MAX] {
            let held = drain.begin(now, told);
            assert!(held.is_none_or(|held| held <= told.min(MAX_MS)));
        }
        drain.has_run_out(now);
        drain.came_back(now);
        drain.end(now);
    }
}

#[test]
fn attempts_come_each_second() {
    for longest in [1, 100, 999, 1000, 30_000, u32::MAX] {
        let most = longest.min(1000);
        for random in [0, 1, 250, 12_345, u32::MAX] {
            let delay = drain_delay_ms(longest, random);
            assert!(
                delay >= most - most / 4 && delay <= most,
                "{longest} {random}"
            );
        }
    }
    assert_eq!(drain_delay_ms(0, 7), 1);
}
