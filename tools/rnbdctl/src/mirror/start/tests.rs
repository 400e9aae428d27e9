// SPDX-License-Identifier: GPL-2.0

//! The start of mirrors of two legs, and of three.

use std::collections::BTreeSet;

use super::*;

const A: u16 = 0;
const B: u16 = 1;
const C: u16 = 2;

fn superblock(place: u16, events: u64, active: &[u16]) -> Superblock {
    Superblock {
        array: "ab".repeat(16),
        name: "rnbd-mirror:db".to_owned(),
        leg: format!("{place:032x}"),
        legs: 2,
        events,
        is_clean: false,
        number: place.into(),
        role: Role::Active(place),
        is_partial: false,
        replaces: false,
        write_mostly: false,
        failfast: true,
        active: active.iter().copied().collect::<BTreeSet<_>>(),
        places: (0..4)
            .map(|place| active.contains(&place).then_some(place))
            .collect(),
    }
}

/// A leg that is here, with `in_sync` of its record.
fn here(place: u16, events: u64, active: &[u16], in_sync: Option<bool>) -> Leg {
    Leg {
        superblock: Some(superblock(place, events, active)),
        in_sync,
        fill: false,
        kept: true,
    }
}

/// A leg that is not here.
fn away(in_sync: Option<bool>) -> Leg {
    Leg {
        superblock: None,
        in_sync,
        fill: false,
        kept: false,
    }
}

fn newer(known: &[usize], missing: usize) -> Decision {
    Decision::Refuse(Reason::MayBeNewer {
        known: known.to_vec(),
        missing,
    })
}

#[test]
fn both_legs_are_here() {
    let yes = Some(true);
    for (what, legs, decision) in [
        (
            "whole",
            [here(A, 9, &[A, B], yes), here(B, 9, &[A, B], yes)],
            Decision::Start(vec![0, 1]),
        ),
        (
            "the client crashed between two superblocks",
            [here(A, 10, &[A, B], yes), here(B, 9, &[A, B], yes)],
            Decision::Start(vec![0, 1]),
        ),
        (
            "without a record, on another machine",
            [here(A, 9, &[A, B], None), here(B, 9, &[A, B], None)],
            Decision::Start(vec![0, 1]),
        ),
        (
            "B was away",
            [here(A, 15, &[A], yes), here(B, 9, &[A, B], Some(false))],
            Decision::Start(vec![0]),
        ),
        (
            "B was away, and the record does not know it yet",
            [here(A, 15, &[A], yes), here(B, 9, &[A, B], yes)],
            Decision::Start(vec![0]),
        ),
        (
            "B missed events, and A does not say that it failed",
            [here(A, 15, &[A, B], yes), here(B, 9, &[A, B], yes)],
            Decision::Start(vec![0]),
        ),
        (
            "each went on without the other",
            [here(A, 15, &[A], yes), here(B, 12, &[B], Some(false))],
            Decision::Refuse(Reason::Split(0, 1)),
        ),
    ] {
        assert_eq!(decide(&legs, None), decision, "{what}");
    }
}

#[test]
fn one_leg_is_here() {
    let (yes, no) = (Some(true), Some(false));
    for (what, legs, decision) in [
        (
            // B is lost, writes go on, A is lost, B is back, the client boots.
            "the old leg alone",
            [away(yes), here(B, 9, &[A, B], no)],
            newer(&[0], 1),
        ),
        (
            "the old leg alone, and the client crashed before it could note that",
            [away(yes), here(B, 9, &[A, B], yes)],
            newer(&[0], 1),
        ),
        (
            "the old leg alone, on another machine",
            [away(None), here(B, 9, &[A, B], None)],
            newer(&[], 1),
        ),
        (
            "the leg that went on alone",
            [here(A, 15, &[A], yes), away(no)],
            Decision::Start(vec![0]),
        ),
        (
            "the leg that went on alone, on another machine",
            [here(A, 15, &[A], None), away(None)],
            Decision::Start(vec![0]),
        ),
        (
            "it went on alone once, and the record knows that the other one has gone on since",
            [away(yes), here(B, 9, &[B], no)],
            newer(&[0], 1),
        ),
        (
            "nothing",
            [away(yes), away(yes)],
            Decision::Refuse(Reason::NoLeg),
        ),
    ] {
        assert_eq!(decide(&legs, None), decision, "{what}");
    }
}

#[test]
fn a_mirror_that_was_stopped_in_order() {
    let legs = |kept: bool, events: u64, in_sync: bool| {
        let mut leg = here(A, events, &[A, B], Some(in_sync));
        leg.kept = kept;
        [leg, away(Some(true))]
    };
    assert_eq!(
        decide(&legs(true, 9, true), Some(9)),
        Decision::Start(vec![0])
    );
    // Another machine may have used the leg.
    assert_eq!(decide(&legs(false, 9, true), Some(9)), newer(&[1], 1));
    assert_eq!(decide(&legs(true, 10, true), Some(9)), newer(&[1], 1));
    assert_eq!(decide(&legs(true, 9, false), Some(9)), newer(&[1], 1));
    assert_eq!(decide(&legs(true, 9, true), None), newer(&[1], 1));
}

#[test]
fn legs_that_do_not_have_all_data() {
    let yes = Some(true);
    let mut filling = here(B, 9, &[A, B], yes);
    if let Some(superblock) = &mut filling.superblock {
        superblock.is_partial = true;
    }
    let legs = [here(A, 9, &[A, B], yes), filling.clone()];
    assert_eq!(decide(&legs, None), Decision::Start(vec![0]));
    // A leg that is to replace a leg has the place of that leg, which is not here.
    let mut replacing = filling.clone();
    if let Some(superblock) = &mut replacing.superblock {
        superblock.replaces = true;
    }
    let legs = [here(A, 9, &[A, B], yes), replacing];
    assert_eq!(decide(&legs, None), newer(&[], 1));
    let legs = [away(yes), filling.clone()];
    assert_eq!(decide(&legs, None), Decision::Refuse(Reason::NoFullLeg));
    assert_eq!(forced(&legs), Decision::Refuse(Reason::NoFullLeg));
    for role in [Role::Spare, Role::Faulty] {
        let mut leg = here(B, 9, &[A], yes);
        if let Some(superblock) = &mut leg.superblock {
            superblock.role = role;
        }
        assert_eq!(
            decide(&[away(yes), leg], None),
            Decision::Refuse(Reason::NoFullLeg)
        );
    }
    let mut to_fill = here(B, 99, &[B], yes);
    to_fill.fill = true;
    let legs = [here(A, 9, &[A], yes), to_fill];
    assert_eq!(decide(&legs, None), Decision::Start(vec![0]));
}

#[test]
fn the_administrator_has_the_last_word() {
    let (yes, no) = (Some(true), Some(false));
    let legs = [away(yes), here(B, 9, &[A, B], no)];
    assert_eq!(forced(&legs), Decision::Start(vec![1]));
    // The administrator has to say whose data counts.
    let legs = [here(A, 15, &[A], yes), here(B, 12, &[B], no)];
    assert_eq!(forced(&legs), Decision::Refuse(Reason::Split(0, 1)));
    let legs = [away(no), here(B, 12, &[B], no)];
    assert_eq!(forced(&legs), Decision::Start(vec![1]));
    // Two of three legs are the same: both are kept.
    let all = [A, B, C];
    let legs = [here(A, 9, &all, yes), here(B, 9, &all, yes), away(yes)];
    assert_eq!(forced(&legs), Decision::Start(vec![0, 1]));
    assert_eq!(
        forced(&[away(yes), away(yes)]),
        Decision::Refuse(Reason::NoLeg)
    );
}

#[test]
fn three_legs() {
    let (yes, no) = (Some(true), Some(false));
    let all = [A, B, C];
    let legs = [here(A, 9, &all, yes), here(B, 9, &all, yes), away(yes)];
    assert_eq!(decide(&legs, None), newer(&[2], 1));
    let legs = [here(A, 9, &[A, B], yes), here(B, 9, &[A, B], yes), away(no)];
    assert_eq!(decide(&legs, None), Decision::Start(vec![0, 1]));
    let legs = [away(yes), here(B, 9, &all, yes), away(yes)];
    assert_eq!(decide(&legs, None), newer(&[0, 2], 2));
    // C was away first, then B; A went on alone.
    let legs = [
        here(A, 20, &[A], yes),
        here(B, 15, &[A, B], no),
        here(C, 9, &all, no),
    ];
    assert_eq!(decide(&legs, None), Decision::Start(vec![0]));
    let legs = [away(yes), here(B, 15, &[A, B], no), here(C, 9, &all, no)];
    assert_eq!(decide(&legs, None), newer(&[0], 1));
}

#[test]
fn a_leg_that_was_left_behind_is_not_started_from() {
    let yes = Some(true);
    // The event counts are equal: md lowers a count by 1 when it notes that all writes are done.
    let legs = [here(A, 10, &[A, B], yes), here(B, 10, &[B], yes)];
    assert_eq!(decide(&legs, None), Decision::Start(vec![1]));
    assert_eq!(forced(&legs), Decision::Start(vec![1]));
    let legs = [here(A, 11, &[A, B], yes), here(B, 10, &[B], yes)];
    assert_eq!(decide(&legs, None), Decision::Start(vec![1]));
}

#[test]
fn a_leg_that_was_replaced_does_not_stand_for_the_new_leg() {
    let yes = Some(true);
    // The disk with the number 2 has the place of B.
    let replaced = |leg: &mut Leg| {
        if let Some(superblock) = &mut leg.superblock {
            superblock.places = vec![Some(A), None, Some(B)];
        }
    };
    let mut near = here(A, 20, &[A, B], yes);
    replaced(&mut near);
    let old = here(B, 19, &[A, B], None);
    let legs = [near.clone(), old.clone()];
    assert_eq!(decide(&legs, None), newer(&[], 1));
    assert_eq!(forced(&legs), Decision::Start(vec![0]));
    let mut new = here(B, 20, &[A, B], yes);
    replaced(&mut new);
    if let Some(superblock) = &mut new.superblock {
        superblock.number = 2;
    }
    let legs = [near, old, new];
    assert_eq!(decide(&legs, None), Decision::Start(vec![0, 2]));
}

#[test]
fn a_start_waits_for_legs_that_are_about_to_be_mapped() {
    let yes = Some(true);
    let legs = [here(A, 9, &[A, B], yes), away(yes)];
    assert!(should_wait(&legs, Some(9)));
    // The start would be refused: the leg that is not here may have newer data.
    assert!(should_wait(&legs, None));
    assert!(should_wait(&[away(yes), away(yes)], None));
    // Two legs went on without each other: no leg that is missing helps.
    assert!(!should_wait(
        &[here(A, 9, &[A], yes), here(B, 9, &[B], yes)],
        None
    ));
    let legs = [here(A, 15, &[A], yes), away(Some(false))];
    assert!(!should_wait(&legs, None));
    let legs = [here(A, 9, &[A, B], yes), here(B, 9, &[A, B], yes)];
    assert!(!should_wait(&legs, Some(9)));
}

#[test]
fn after_a_take_over_the_leg_that_was_taken_last_counts() {
    let leg = |place, events, is_clean, kept| {
        let mut leg = here(place, events, &[A, B, C], None);
        leg.kept = kept;
        if let Some(superblock) = &mut leg.superblock {
            superblock.is_clean = is_clean;
        }
        leg
    };
    let (new, kept) = (false, true);
    for (what, legs, chosen, expected) in [
        (
            "writes were in flight",
            [leg(A, 9, false, new), leg(B, 9, false, new)],
            &[0, 1][..],
            &[1][..],
        ),
        (
            "B has noted that writes begin",
            [leg(A, 9, true, new), leg(B, 10, false, new)],
            &[0, 1],
            &[1],
        ),
        (
            "B has noted two changes",
            [leg(A, 9, true, new), leg(B, 10, true, new)],
            &[0, 1],
            &[1],
        ),
        (
            "all writes were done",
            [leg(A, 9, true, new), leg(B, 9, true, new)],
            &[0, 1],
            &[0, 1],
        ),
        (
            "no other machine could write",
            [leg(A, 9, false, kept), leg(B, 9, false, kept)],
            &[0, 1],
            &[0, 1],
        ),
        (
            "B was this machine's already",
            [leg(A, 9, false, new), leg(B, 9, false, kept)],
            &[0, 1],
            &[0],
        ),
        (
            "B lacks data",
            [leg(A, 9, false, new), leg(B, 7, false, new)],
            &[0],
            &[0],
        ),
    ] {
        assert_eq!(after_take_over(&legs, chosen.to_vec()), expected, "{what}");
    }
}
