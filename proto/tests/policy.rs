// SPDX-License-Identifier: GPL-2.0

//! Policies: their names, and the path that each chooses.

use proto::policy::{
    choose,
    Candidate,
    PolicyKind, //
};

#[derive(Clone, Copy)]
struct Path {
    connected: bool,
    sent_by_policy: i32,
    latency_ns: u64,
}

impl Candidate for Path {
    fn is_connected(&self) -> bool {
        self.connected
    }

    fn sent_by_policy(&self) -> i32 {
        self.sent_by_policy
    }

    fn latency_ns(&self) -> u64 {
        self.latency_ns
    }
}

fn up(sent_by_policy: i32, latency_ns: u64) -> Path {
    Path {
        connected: true,
        sent_by_policy,
        latency_ns,
    }
}

const DOWN: Path = Path {
    connected: false,
    sent_by_policy: 0,
    latency_ns: 0,
};

fn chosen(kind: PolicyKind, paths: &[Path], turn: u32) -> usize {
    choose(kind, paths.iter().copied(), || turn)
}

#[test]
fn all_spellings_of_c() {
    for &kind in PolicyKind::ALL {
        let (name, short) = kind.names();
        let number = (kind as u32).to_string();
        let shown = format!("{name} ({short}: {number})");
        for text in [
            name,
            short,
            &number,
            &shown,
            &name.to_uppercase(),
            &short.to_lowercase(),
        ] {
            assert_eq!(PolicyKind::parse(text.as_bytes()), Some(kind), "{text}");
            let line = format!("{text}\n");
            assert_eq!(PolicyKind::parse(line.as_bytes()), Some(kind), "{line:?}");
        }
    }
    for (text, kind) in [
        ("00", PolicyKind::RoundRobin),
        ("-0", PolicyKind::RoundRobin),
        ("01\n", PolicyKind::MinInflight),
        ("+2", PolicyKind::MinLatency),
        ("min-latency of all\n\n", PolicyKind::MinLatency),
    ] {
        assert_eq!(PolicyKind::parse(text.as_bytes()), Some(kind), "{text:?}");
    }
    let next = PolicyKind::ALL.len().to_string();
    for text in [
        "", "\n", &next, "-1", "1 ", "1\n\n", "256", "0x1", "m", "min", "min-", "rrr", "mi ",
        " mi", "mi\n\n", "mi \n", "round", "latency",
    ] {
        assert_eq!(PolicyKind::parse(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn policies_have_numbers() {
    for &kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::try_from(kind as u32), Ok(kind));
    }
    let next = PolicyKind::ALL.len() as u32;
    assert_eq!(PolicyKind::try_from(next), Err(next));
    assert!(PolicyKind::try_from(u32::MAX).is_err());
}

#[test]
fn a_path_that_is_down_is_not_chosen() {
    for &kind in PolicyKind::ALL {
        for turn in 0..7 {
            assert_eq!(chosen(kind, &[DOWN, up(9, 9), DOWN], turn), 1, "{kind:?}");
        }
    }
}

#[test]
fn without_any_path_that_is_up_the_first_is_tried() {
    for &kind in PolicyKind::ALL {
        for paths in [&[][..], &[DOWN], &[DOWN, DOWN]] {
            assert_eq!(chosen(kind, paths, u32::MAX), 0, "{kind:?}");
        }
    }
}

#[test]
fn round_robin_gives_every_path_that_is_up_as_many_turns() {
    let paths = [up(5, 5), DOWN, up(0, 0), up(9, 9), DOWN];
    let mut turns = [0; 5];
    for number in 0..300 {
        turns[chosen(PolicyKind::RoundRobin, &paths, number)] += 1;
    }
    assert_eq!(turns, [100, 0, 100, 100, 0]);
    assert!(paths[chosen(PolicyKind::RoundRobin, &paths, u32::MAX)].connected);
}

#[test]
fn the_least_busy_and_the_quickest() {
    let paths = [up(3, 10), up(2, 30), DOWN, up(2, 20), up(7, 5)];
    for turn in 0..9 {
        let least_busy = chosen(PolicyKind::MinInflight, &paths, turn);
        assert!([1, 3].contains(&least_busy), "turn {turn}: {least_busy}");
        assert_eq!(chosen(PolicyKind::MinLatency, &paths, turn), 4);
    }
}

#[test]
fn paths_that_are_equally_busy_take_turns() {
    for sent_by_policy in [0, 3] {
        let paths = [
            DOWN,
            up(sent_by_policy, 10),
            up(9, 1),
            up(sent_by_policy, 30),
        ];
        let mut turns = [0; 4];
        for number in 0..300 {
            turns[chosen(PolicyKind::MinInflight, &paths, number)] += 1;
        }
        assert!(turns[1] >= 100 && turns[3] >= 100, "{turns:?}");
        assert_eq!(turns[1] + turns[3], 300, "{turns:?}");
    }
}

#[test]
fn the_quickest_takes_no_turns() {
    choose(
        PolicyKind::MinLatency,
        [up(0, 0), up(1, 1)].into_iter(),
        || panic!("asked for a turn"),
    );
}
