// SPDX-License-Identifier: GPL-2.0

//! Groups: the list of missed writes compared with a set, the states of members, the word of a
//! request, and the choice of the member that is read.

use std::collections::BTreeSet;

use proto::group::{
    member::{
        Member,
        Refusal,
        State, //
    },
    missed::{
        Missed,
        Range, //
    },
    pending::{
        ended,
        End,
        Party,
        Word, //
    },
    reads::{
        average,
        ReadPolicy, //
    },
    Members,
    MAX_MEMBERS, //
};

fn list(places: usize) -> Missed<Vec<Range>> {
    Missed::new(vec![Range::EMPTY; places])
}

fn ranges(missed: &Missed<Vec<Range>>) -> Vec<(u64, u64)> {
    let ranges = missed.ranges().iter();
    ranges.map(|range| (range.first, range.last)).collect()
}

fn numbers(missed: &Missed<Vec<Range>>) -> BTreeSet<u64> {
    let ranges = missed.ranges().iter();
    ranges.flat_map(|range| range.first..=range.last).collect()
}

/// Checks that ranges are in order, that no range is empty, and that no range touches the next.
fn is_in_order(missed: &Missed<Vec<Range>>) {
    let all = ranges(missed);
    assert!(all.iter().all(|(first, last)| first <= last), "{all:?}");
    let mut pairs = all.windows(2);
    assert!(pairs.all(|pair| pair[0].1 + 1 < pair[1].0), "{all:?}");
}

/// Numbers that look random, the same in every run.
fn numbers_from(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

#[test]
fn writes_that_follow_each_other_take_one_place() {
    let mut missed = list(2);
    for number in 5..1000 {
        missed.add(number);
    }
    assert_eq!(ranges(&missed), [(5, 999)]);
    // Writes in falling order, and each write twice.
    let mut missed = list(2);
    for number in (5..1000).rev().chain(5..1000) {
        missed.add(number);
    }
    assert_eq!(ranges(&missed), [(5, 999)]);
    assert!(missed.is_exact());
}

#[test]
fn a_write_between_two_ranges_joins_them() {
    let mut missed = list(4);
    for number in [1, 3, 7, 5] {
        missed.add(number);
    }
    assert_eq!(ranges(&missed), [(1, 1), (3, 3), (5, 5), (7, 7)]);
    missed.add(4);
    assert_eq!(ranges(&missed), [(1, 1), (3, 5), (7, 7)]);
    missed.add(2);
    missed.add(6);
    assert_eq!(ranges(&missed), [(1, 7)]);
    assert!(missed.is_exact());
}

#[test]
fn the_ends_of_the_numbers_do_not_overflow() {
    let mut missed = list(4);
    for number in [u64::MAX, 0, u64::MAX - 1, 1] {
        missed.add(number);
    }
    assert_eq!(ranges(&missed), [(0, 1), (u64::MAX - 1, u64::MAX)]);
    assert!(missed.remove(0, 0) && missed.remove(u64::MAX, u64::MAX));
    assert_eq!(ranges(&missed), [(1, 1), (u64::MAX - 1, u64::MAX - 1)]);
    assert!(missed.remove(0, u64::MAX));
    assert!(missed.is_empty());
}

#[test]
fn with_places_enough_the_list_is_a_set() {
    let mut random = numbers_from(0x1234_5678_9abc_def1);
    for _ in 0..300 {
        let (mut missed, mut model) = (list(64), BTreeSet::new());
        for _ in 0..200 {
            if random(4) != 0 {
                let number = random(100);
                missed.add(number);
                model.insert(number);
            } else {
                let first = random(100);
                let last = first + random(10);
                assert!(missed.remove(first, last));
                model.retain(|number| *number < first || last < *number);
            }
            is_in_order(&missed);
            assert_eq!(numbers(&missed), model);
            assert!((0..110).all(|number| missed.has(number) == model.contains(&number)));
            assert!(missed.is_exact());
        }
    }
}

#[test]
fn without_places_enough_no_write_is_lacking() {
    let mut random = numbers_from(0x0fed_cba9_8765_4321);
    for places in 2..6 {
        for _ in 0..200 {
            let (mut missed, mut model) = (list(places), BTreeSet::new());
            for _ in 0..100 {
                let number = random(100);
                missed.add(number);
                model.insert(number);
                is_in_order(&missed);
                assert!(missed.ranges().len() <= places);
                assert!(numbers(&missed).is_superset(&model));
                if missed.is_exact() {
                    assert_eq!(numbers(&missed), model);
                }
            }
            // A list that becomes empty is exact again.
            assert!(missed.remove(0, 100));
            assert!(missed.is_empty() && missed.is_exact());
        }
    }
}

#[test]
fn what_is_closest_is_joined_first() {
    let mut missed = list(3);
    for number in [10, 20, 24, 90] {
        missed.add(number);
    }
    assert_eq!(ranges(&missed), [(10, 10), (20, 24), (90, 90)]);
    assert!(!missed.is_exact());
}

#[test]
fn a_removal_that_lacks_a_place_changes_nothing() {
    let mut missed = list(2);
    (1..=9).for_each(|number| missed.add(number));
    missed.add(20);
    assert!(!missed.remove(5, 5));
    assert_eq!(ranges(&missed), [(1, 9), (20, 20)]);
    assert!(missed.remove(9, 9));
    assert!(missed.remove(20, 20) && missed.remove(5, 5));
    assert_eq!(ranges(&missed), [(1, 4), (6, 8)]);
}

fn member() -> Member<Vec<Range>> {
    Member::new(vec![Range::EMPTY; 8])
}

#[test]
fn a_member_that_fails_is_behind_until_it_has_all() {
    let mut one = member();
    assert!(one.begin(1) && one.begin(2) && one.begin(3));
    assert!(one.failed(2), "it has just fallen behind");
    // Write 3 was in flight, and is confirmed. Writes 4 and 5 are not sent to the member.
    assert!(!one.begin(4) && !one.begin(5));
    assert!(!one.failed(2), "it had fallen behind before");
    let listed: Vec<u64> = numbers(one.missed()).into_iter().collect();
    assert_eq!(listed, [2, 4, 5]);
    assert_eq!(one.in_sync(), Err(Refusal::WrongState));
    assert_eq!(one.rejoin(), Ok(()));
    assert_eq!(one.state(), State::CatchingUp);
    assert!(one.begin(6), "new writes come to it");
    assert_eq!(one.in_sync(), Err(Refusal::MissesWrites));
    assert_eq!(one.resolved(1, 4), Ok(()));
    assert_eq!(one.in_sync(), Err(Refusal::MissesWrites));
    assert_eq!(one.resolved(5, 5), Ok(()));
    assert_eq!(one.in_sync(), Ok(()));
    assert_eq!(one.state(), State::InSync);
}

#[test]
fn a_member_that_fails_as_it_catches_up_is_behind_again() {
    let mut one = member();
    one.failed(1);
    assert_eq!(one.rejoin(), Ok(()));
    assert_eq!(one.rejoin(), Err(Refusal::WrongState));
    assert!(one.begin(2));
    assert!(one.failed(2));
    assert_eq!(one.state(), State::Behind);
    assert!(!one.begin(3));
    assert_eq!(ranges(one.missed()), [(1, 3)]);
}

#[test]
fn a_member_can_be_left_out() {
    let mut one = member();
    assert!(one.begin(1));
    one.leave_out();
    assert!(!one.begin(2));
    assert_eq!(ranges(one.missed()), [(2, 2)]);
    assert_eq!(one.rejoin(), Ok(()));
    one.leave_out();
    assert_eq!(one.state(), State::Behind);
}

#[test]
fn a_member_in_sync_has_nothing_to_catch_up() {
    let mut one = member();
    assert_eq!(one.rejoin(), Err(Refusal::WrongState));
    assert_eq!(one.in_sync(), Err(Refusal::WrongState));
    assert_eq!(one.resolved(1, 10), Ok(()));
    assert!(one.missed().is_empty());
}

#[test]
fn a_late_failure_is_on_the_list_though_the_user_has_resolved_it() {
    let mut one = member();
    assert!(one.begin(1) && one.begin(2));
    one.failed(1);
    assert_eq!(one.rejoin(), Ok(()));
    assert_eq!(one.resolved(1, 2), Ok(()));
    assert_eq!(one.in_sync(), Ok(()));
    // Write 2 was in flight all the time, and fails now.
    assert!(one.failed(2));
    assert_eq!(
        (one.state(), ranges(one.missed())),
        (State::Behind, vec![(2, 2)])
    );
}

/// How a party ends a request, for one of the 27 ways in which three members can do so.
fn way(number: u32, party: Party) -> End {
    let digit = match party {
        Party::Sender => 0,
        Party::Member(0) => number % 3,
        Party::Member(3) => number / 3 % 3,
        Party::Member(_) => number / 9,
    };
    [End::Confirmed, End::Refused, End::Unanswered][digit as usize]
}

#[test]
fn exactly_the_last_party_finds_that_it_is_over() {
    let members = Members::NONE.with(0).with(3).with(15);
    let parties = [
        Party::Sender,
        Party::Member(0),
        Party::Member(3),
        Party::Member(15),
    ];
    // All orders, and all ways to fail.
    for order in 0..24 {
        for failing in 0..27u32 {
            let mut left: Vec<Party> = parties.to_vec();
            let (mut order, mut value, mut over) = (order, Word::begin(members).to_u64(), 0);
            while !left.is_empty() {
                let party = left.remove(order % left.len());
                order /= left.len() + 1;
                let change = ended(party, way(failing, party));
                let word = Word::after(value, change);
                value = value.wrapping_add(change);
                assert_eq!(word.to_u64(), value);
                assert_eq!(word.is_over(), left.is_empty());
                over += u32::from(word.is_over());
            }
            assert_eq!(over, 1);
            let word = Word::from_u64(value);
            for member in [0, 3, 15] {
                let how = way(failing, Party::Member(member));
                assert_eq!(word.failed().has(member), how != End::Confirmed);
                assert_eq!(word.unanswered().has(member), how == End::Unanswered);
            }
            assert!(!word.failed().has(1) && !word.unanswered().has(1));
        }
    }
}

#[test]
fn threads_that_end_a_request_at_the_same_time_find_one_last() {
    use std::sync::atomic::{
        AtomicU32,
        AtomicU64,
        Ordering, //
    };
    let all = (0..MAX_MEMBERS).fold(Members::NONE, Members::with);
    for _ in 0..100 {
        let word = AtomicU64::new(Word::begin(all).to_u64());
        let over = AtomicU32::new(0);
        let end = |party, how| {
            let change = ended(party, how);
            let before = word.fetch_add(change, Ordering::SeqCst);
            over.fetch_add(
                u32::from(Word::after(before, change).is_over()),
                Ordering::SeqCst,
            );
        };
        std::thread::scope(|scope| {
            for half in 0..2 {
                scope.spawn(move || {
                    (0..MAX_MEMBERS)
                        .filter(|member| member % 2 == half)
                        .for_each(|member| match member % 3 {
                            0 => end(Party::Member(member), End::Refused),
                            _ => end(Party::Member(member), End::Confirmed),
                        });
                });
            }
            end(Party::Sender, End::Confirmed);
        });
        assert_eq!(over.load(Ordering::SeqCst), 1);
        let failed: Vec<usize> = Word::from_u64(word.load(Ordering::SeqCst))
            .failed()
            .iter()
            .collect();
        assert_eq!(failed, [0, 3, 6, 9, 12, 15]);
    }
}

#[test]
fn members_are_a_set() {
    let some = Members::NONE.with(2).with(9);
    assert_eq!(some.iter().collect::<Vec<_>>(), [2, 9]);
    assert_eq!(some.without(Members::only(2)), Members::only(9));
    assert!(Members::only(MAX_MEMBERS).is_empty());
    assert!(!some.has(MAX_MEMBERS) && !some.has(34));
    assert_eq!(Members::from_bits(u32::MAX).iter().count(), MAX_MEMBERS);
}

#[test]
fn reads_go_by_the_policy() {
    let allowed = Members::NONE.with(1).with(2).with(5);
    let none = |_| 0;
    let turns: Vec<_> = (0..4)
        .map(|turn| ReadPolicy::RoundRobin.choose(allowed, turn, none))
        .collect();
    assert_eq!(turns, [Some(1), Some(2), Some(5), Some(1)]);
    assert_eq!(ReadPolicy::Fixed(5).choose(allowed, 0, none), Some(5));
    assert_eq!(ReadPolicy::Fixed(0).choose(allowed, 0, none), Some(1));
    let latency = |member| if member == 2 { 10 } else { 20 };
    let fastest = (1..64).map(|turn| ReadPolicy::LeastLatency.choose(allowed, turn, latency));
    assert!(fastest.into_iter().all(|chosen| chosen == Some(2)));
    // The other members are read now and then.
    let probes: Vec<_> = (0..3)
        .map(|probe| ReadPolicy::LeastLatency.choose(allowed, probe * 64, latency))
        .collect();
    assert_eq!(probes, [Some(1), Some(2), Some(5)]);
    for policy in [
        ReadPolicy::RoundRobin,
        ReadPolicy::LeastLatency,
        ReadPolicy::Fixed(1),
    ] {
        assert_eq!(policy.choose(Members::NONE, 7, none), None);
    }
}

#[test]
fn policies_have_names() {
    assert_eq!(
        ReadPolicy::parse(b"round-robin\n"),
        Ok(ReadPolicy::RoundRobin)
    );
    assert_eq!(
        ReadPolicy::parse(b"least-latency"),
        Ok(ReadPolicy::LeastLatency)
    );
    assert_eq!(ReadPolicy::parse(b"15\n"), Ok(ReadPolicy::Fixed(15)));
    for wrong in [
        &b"16"[..],
        b"",
        b"-1",
        b"fast",
        b"\xff",
        b"99999999999999999999999",
    ] {
        assert!(ReadPolicy::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn latencies_follow_the_latest_reads() {
    assert_eq!(average(0, 0), 1);
    assert_eq!(average(0, 800), 800);
    assert_eq!(average(800, 1600), 900);
    let settled = (0..100).fold(800, |known, _| average(known, 80));
    assert!((80..100).contains(&settled), "{settled}");
    assert_ne!(average(1, 1), 0);
    assert!(average(u64::MAX, u64::MAX) > u64::MAX / 2);
}
