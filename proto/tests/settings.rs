// SPDX-License-Identifier: GPL-2.0

//! Settings and their ranges, and the waits between attempts to reconnect.

use proto::{
    heartbeat,
    reconnect::{
        delay_ms,
        failures,
        gives_up,
        short_lived, //
    },
    setting::{
        Setting,
        SettingError,
        ACK_TIMEOUT,
        CONNECT_TIMEOUT,
        HB_INTERVAL,
        HB_MISSED,
        HOLD_DISK_IO,
        HOLD_IO,
        IO_TIMEOUT,
        LATENCY_SECONDS,
        MAX_RECONNECT_ATTEMPTS,
        NR_CONNECTIONS,
        RECONNECT_DELAY, //
    },
    Errno, //
};

const ALL: [Setting; 11] = [
    ACK_TIMEOUT,
    NR_CONNECTIONS,
    LATENCY_SECONDS,
    HB_INTERVAL,
    HB_MISSED,
    RECONNECT_DELAY,
    CONNECT_TIMEOUT,
    MAX_RECONNECT_ATTEMPTS,
    HOLD_IO,
    HOLD_DISK_IO,
    IO_TIMEOUT,
];

#[test]
fn the_whole_range_is_taken_and_nothing_else() {
    for setting in ALL {
        for value in [setting.min, setting.least, setting.default, setting.max] {
            assert_eq!(setting.parse(format!("{value}").as_bytes()), Ok(value));
            assert_eq!(setting.parse(format!("{value}\n").as_bytes()), Ok(value));
        }
        for value in [
            i64::from(setting.min) - 1,
            i64::from(setting.max) + 1,
            i64::from(i32::MAX),
        ] {
            assert_out_of_range(setting, &format!("{value}"), Errno::EINVAL);
        }
        for text in ["2147483648", "-9223372036854775808", "99999999999999999999"] {
            assert_out_of_range(setting, text, Errno::ERANGE);
        }
        for text in ["", "\n", "x", "5 5", " 5", "0x10", "1.5"] {
            assert!(matches!(
                setting.parse(text.as_bytes()),
                Err(SettingError::NotANumber { .. })
            ));
        }
        assert!(matches!(
            setting.parse(b"\xff"),
            Err(SettingError::NotANumber { .. })
        ));
    }
}

#[test]
fn a_range_may_have_a_gap_above_its_smallest_value() {
    assert_eq!((IO_TIMEOUT.min, IO_TIMEOUT.least), (0, 1000));
    for value in ["1", "999"] {
        assert_out_of_range(IO_TIMEOUT, value, Errno::EINVAL);
    }
    for setting in ALL.into_iter().filter(|setting| *setting != IO_TIMEOUT) {
        assert_eq!(setting.least, setting.min, "{}", setting.name);
    }
}

#[track_caller]
fn assert_out_of_range(setting: Setting, text: &str, errno: Errno) {
    let error = setting.parse(text.as_bytes()).expect_err(text);
    let text = text.as_bytes();
    assert_eq!(
        error,
        SettingError::OutOfRange {
            setting,
            text,
            errno
        }
    );
    assert_eq!(error.errno(), errno);
}

#[test]
fn errors_name_the_setting() {
    let error = HB_INTERVAL.parse(b"9").unwrap_err();
    assert_eq!(
        error.to_string(),
        "hb_interval_ms: 9 is not between 10 and 600000"
    );
    let error = IO_TIMEOUT.parse(b"999").unwrap_err();
    assert_eq!(
        error.to_string(),
        "io_timeout_ms: 999 is neither 0 nor between 1000 and 86400000"
    );
    let error = HOLD_IO.parse(b"a\"\n\x1b[").unwrap_err();
    assert_eq!(
        error.to_string(),
        "hold_io_ms: not a number: \"a\\\"\\n\\x1b[\""
    );
}

#[test]
fn the_defaults_are_those_of_c() {
    let defaults = heartbeat::Settings::DEFAULT;
    assert_eq!(HB_INTERVAL.default as u32, defaults.interval_ms);
    assert_eq!(HB_MISSED.default as u32, defaults.missed_max);
    assert_eq!(RECONNECT_DELAY.default, 30_000);
    assert_eq!(CONNECT_TIMEOUT.default, 30_000);
    assert_eq!(MAX_RECONNECT_ATTEMPTS.default, -1);
    assert_eq!(HOLD_IO.default, 0);
}

#[test]
fn waits_double_up_to_the_longest() {
    let waits: Vec<u32> = (0..9).map(|failed| delay_ms(failed, 30_000, 0)).collect();
    assert_eq!(
        waits,
        [468, 936, 1872, 3744, 7488, 14976, 29952, 30_000, 30_000]
    );
    for failed in [10, 31, 32, 33, u32::MAX] {
        assert_eq!(delay_ms(failed, 30_000, 0), 30_000);
    }
}

#[test]
fn only_attempts_after_the_longest_wait_count() {
    for max in [1, 2, 9999] {
        let waits = (0..).map(|failed| delay_ms(failed, 64_000, 0));
        let attempts = waits
            .zip(0..)
            .take_while(|&(_, failed)| !gives_up(failed, max));
        let counted = attempts.filter(|&(wait, _)| wait == 64_000).count();
        assert_eq!(counted, usize::try_from(max).unwrap());
    }
    assert!(gives_up(u32::MAX, i32::MAX));
    assert!(gives_up(0, 0), "none at all");
    for failed in [0, 1, 10_000, u32::MAX] {
        assert!(!gives_up(failed, -1), "any number");
        assert!(!gives_up(failed, i32::MIN), "any number");
    }
}

#[test]
fn up_to_a_quarter_of_a_wait_is_random() {
    for longest in [0, 1, 2, 63, 64, 100, 30_000, 3_600_000, u32::MAX] {
        for failed in [0, 1, 5, 40] {
            let whole = delay_ms(failed, longest, 0);
            let mut least = whole;
            let mut most = 0;
            for step in 0..1000u32 {
                let random = step.wrapping_mul(2_654_435_761);
                let delay = delay_ms(failed, longest, random);
                least = least.min(delay);
                most = most.max(delay);
            }
            assert!(least >= 1 && least >= whole - whole / 4);
            assert!(most <= whole && most <= longest.max(1));
            if whole > 1000 {
                assert!(least < whole - whole / 5, "{least} of {whole}");
            }
        }
    }
}

#[test]
fn a_path_is_up_for_long_or_it_counts() {
    assert_eq!(short_lived(0, 0, 30_000), 1);
    assert_eq!(short_lived(1, 29_999, 30_000), 2);
    assert_eq!(short_lived(2, 30_000, 30_000), 0);
    assert_eq!(short_lived(2, i64::MAX, u32::MAX), 0);
    assert_eq!(short_lived(u32::MAX, 1, 2), u32::MAX);
    assert_eq!(short_lived(0, i64::from(u32::MAX) - 1, u32::MAX), 1);
    assert_eq!(short_lived(2, -1, 0), 3);
}

#[test]
fn only_the_first_short_life_is_no_failure() {
    for (failed, short, all) in [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 1),
        (3, 0, 3),
        (3, 1, 3),
        (3, 4, 6),
        (u32::MAX, 2, u32::MAX),
        (1, u32::MAX, u32::MAX),
    ] {
        assert_eq!(failures(failed, short), all, "{failed} {short}");
    }
}
