// SPDX-License-Identifier: GPL-2.0

//! Announced maintenance: its time, and how long a client believes in it.

use proto::{
    drain::{
        refusal_ms,
        seconds_of,
        told_ms,
        Allowance,
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
    let mut allowance = Allowance::new(5);
    assert_eq!(allowance.begin(5, 600_000), 600_000);
    allowance.end(60_005);
    // Twice a day for a year, ten minutes each.
    for half_day in 1..730 {
        let now = 5 + half_day * (DAY / 2);
        assert_eq!(allowance.begin(now, 600_000), 600_000, "{half_day}");
        allowance.end(now + 600_000);
    }
}

#[test]
fn a_day_is_the_most() {
    let mut allowance = Allowance::new(0);
    assert_eq!(allowance.begin(0, u32::MAX), MAX_MS);
    // Told again before it is over, and when it is over.
    assert_eq!(allowance.begin(DAY / 2, MAX_MS), MAX_MS / 2);
    assert_eq!(allowance.begin(DAY, MAX_MS), 0);
    assert_eq!(allowance.begin(DAY + 999, MAX_MS), 0, "not worth it");
    assert_eq!(allowance.begin(DAY + 1000, MAX_MS), 1000);
    assert_eq!(allowance.begin(DAY + 2000, MAX_MS), 0);
    assert_eq!(allowance.begin(100 * DAY, MAX_MS), MAX_MS);
}

#[test]
fn the_time_until_the_end_counts_and_not_what_was_told() {
    let mut allowance = Allowance::new(0);
    assert_eq!(allowance.begin(0, MAX_MS), MAX_MS);
    allowance.end(1000);
    assert_eq!(allowance.begin(1000, MAX_MS), MAX_MS - 1000);
    // Nobody says that it is over.
    let mut allowance = Allowance::new(0);
    assert_eq!(allowance.begin(0, 1000), 1000);
    assert_eq!(allowance.begin(3000, MAX_MS), MAX_MS);
}

#[test]
fn half_of_the_time_in_the_long_run() {
    // A server that tells each second.
    for told in [999, 1000, 60_000, MAX_MS] {
        let mut allowance = Allowance::new(0);
        let mut held = 0;
        let seconds = 4 * i64::from(MAX_SECONDS);
        for second in 0..seconds {
            held += i64::from(allowance.begin(second * 1000, told).min(1000));
        }
        assert!(held <= DAY + (seconds * 1000 - DAY) / 2 + 1000, "{told}");
    }
}

#[test]
fn a_clock_that_stands_or_jumps_does_no_harm() {
    let mut allowance = Allowance::new(i64::MIN);
    for now in [i64::MIN, 0, 0, i64::MAX, i64::MAX, 5, i64::MIN] {
        for told in [0, 1, MAX_MS, u32::MAX] {
            assert!(allowance.begin(now, told) <= told.min(MAX_MS));
        }
        allowance.end(now);
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
