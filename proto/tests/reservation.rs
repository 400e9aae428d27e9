// SPDX-License-Identifier: GPL-2.0

//! The rules of persistent reservations.

use proto::{
    reservation::{
        Access,
        Refused,
        Role,
        Table, //
    },
    rnbd::{
        Command,
        Kind,
        Op,
        Report,
        MAX_REGISTRANTS, //
    },
    Errno, //
};

type Machines = Table<u32>;

/// The machines. Machine N has the key 10 * N, unless a test registers it with another key.
const HOLDER: u32 = 1;
const OTHER: u32 = 2;
const THIRD: u32 = 3;
const STRANGER: u32 = 9;

fn key(who: u32) -> u64 {
    10 * u64::from(who)
}

fn register(table: &mut Machines, who: u32, key: u64) {
    let command = Command::Register {
        key: 0,
        new: key,
        ignore_key: false,
    };
    assert_eq!(table.execute(&who, &command), Ok(()));
}

fn reserve(table: &mut Machines, who: u32, kind: Kind) -> Result<(), Refused> {
    table.execute(
        &who,
        &Command::Reserve {
            key: key(who),
            kind,
        },
    )
}

fn release(table: &mut Machines, who: u32, kind: Kind) -> Result<(), Refused> {
    table.execute(
        &who,
        &Command::Release {
            key: key(who),
            kind,
        },
    )
}

fn preempt(table: &mut Machines, who: u32, victim: u64, kind: Kind) -> Result<(), Refused> {
    let key = key(who);
    table.execute(&who, &Command::Preempt { key, victim, kind })
}

/// Three machines are registered.
fn registered() -> Machines {
    let mut table = Machines::new();
    for who in [HOLDER, OTHER, THIRD] {
        register(&mut table, who, key(who));
    }
    table
}

/// Three machines are registered, and `HOLDER` has reserved the disk.
fn reserved(kind: Kind) -> Machines {
    let mut table = registered();
    assert_eq!(reserve(&mut table, HOLDER, kind), Ok(()));
    table
}

fn keys(table: &Machines) -> Vec<u64> {
    table.registrants().map(|(_, key)| key).collect()
}

fn holder(table: &Machines) -> Option<(Kind, Option<u32>)> {
    let (kind, holder) = table.reservation()?;
    Some((kind, holder.map(|(who, _)| *who)))
}

#[test]
fn access_goes_by_type_and_role() {
    use Access::{
        None as Nothing,
        ReadOnly,
        ReadWrite, //
    };
    // Holder, registrant, stranger.
    let wanted = [
        (Kind::WriteExclusive, [ReadWrite, ReadOnly, ReadOnly]),
        (Kind::ExclusiveAccess, [ReadWrite, Nothing, Nothing]),
        (
            Kind::WriteExclusiveRegistrants,
            [ReadWrite, ReadWrite, ReadOnly],
        ),
        (
            Kind::ExclusiveAccessRegistrants,
            [ReadWrite, ReadWrite, Nothing],
        ),
        (Kind::WriteExclusiveAll, [ReadWrite, ReadWrite, ReadOnly]),
        (Kind::ExclusiveAccessAll, [ReadWrite, ReadWrite, Nothing]),
    ];
    assert_eq!(wanted.len(), Kind::ALL.len());
    for (kind, access) in wanted {
        let roles = [Role::Holder, Role::Registrant, Role::Stranger];
        assert_eq!(roles.map(|role| kind.access(role)), access, "{kind:?}");
        let table = reserved(kind);
        let got = [HOLDER, OTHER, STRANGER].map(|who| table.access(&who));
        assert_eq!(got, access, "{kind:?}");
    }
    for who in [HOLDER, STRANGER] {
        assert_eq!(registered().access(&who), ReadWrite);
        assert_eq!(Machines::new().access(&who), ReadWrite);
    }
}

#[test]
fn operations_need_access() {
    for op in Op::ALL.iter().copied() {
        let writes = !matches!(op, Op::Read | Op::Flush);
        assert!(Access::ReadWrite.allows(op));
        assert_eq!(Access::ReadOnly.allows(op), !writes, "{op:?}");
        assert_eq!(Access::None.allows(op), op == Op::Flush, "{op:?}");
    }
    for access in [Access::None, Access::ReadOnly, Access::ReadWrite] {
        assert_eq!(Access::from_u32(access.to_u32()), access);
    }
    assert_eq!(Access::from_u32(3), Access::None);
}

#[test]
fn keys_are_registered_changed_and_removed() {
    let mut table = Machines::new();
    let mut command = |key, new, ignore_key| {
        let command = Command::Register {
            key,
            new,
            ignore_key,
        };
        let result = table.execute(&HOLDER, &command);
        (result, keys(&table), table.generation())
    };
    assert_eq!(command(0, 0, false), (Ok(()), vec![], 0), "nothing");
    assert_eq!(command(7, 0, true), (Ok(()), vec![], 0), "nothing either");
    let conflict = Err(Refused::Conflict);
    assert_eq!(command(7, 8, false), (conflict, vec![], 0), "no such key");
    assert_eq!(command(7, 8, true), (Ok(()), vec![8], 1));
    assert_eq!(command(0, 9, false), (conflict, vec![8], 1), "has one");
    assert_eq!(command(7, 9, false), (conflict, vec![8], 1), "another one");
    assert_eq!(command(8, 9, false), (Ok(()), vec![9], 2));
    assert_eq!(command(9, 9, false), (Ok(()), vec![9], 3), "the same");
    assert_eq!(command(0, 5, true), (Ok(()), vec![5], 4));
    assert_eq!(command(4, 0, false), (conflict, vec![5], 4), "remove");
    assert_eq!(command(5, 0, false), (Ok(()), vec![], 5));
    assert_eq!(command(0, u64::MAX, false), (Ok(()), vec![u64::MAX], 6));
    assert_eq!(command(1, 0, true), (Ok(()), vec![], 7));
}

#[test]
fn a_holder_keeps_the_reservation_with_another_key() {
    let mut table = reserved(Kind::ExclusiveAccess);
    let change = Command::Register {
        key: key(HOLDER),
        new: 77,
        ignore_key: false,
    };
    assert_eq!(table.execute(&HOLDER, &change), Ok(()));
    assert_eq!(
        table.reservation(),
        Some((Kind::ExclusiveAccess, Some((&HOLDER, 77))))
    );
}

#[test]
fn the_reservation_goes_with_its_last_holder() {
    let unregister = |table: &mut Machines, who| {
        let command = Command::Register {
            key: key(who),
            new: 0,
            ignore_key: false,
        };
        assert_eq!(table.execute(&who, &command), Ok(()));
    };
    for kind in Kind::ALL.iter().copied() {
        let mut table = reserved(kind);
        unregister(&mut table, OTHER);
        assert!(holder(&table).is_some(), "{kind:?}");
        unregister(&mut table, HOLDER);
        assert_eq!(holder(&table).is_some(), kind.is_of_all(), "{kind:?}");
        unregister(&mut table, THIRD);
        assert_eq!(holder(&table), None, "{kind:?}");
        assert!(table.is_empty());
    }
}

#[test]
fn every_type_is_reserved_and_released_by_every_role() {
    let conflict = Err(Refused::Conflict);
    for kind in Kind::ALL.iter().copied() {
        let other_kind = Kind::ALL[kind as usize % 6];
        let mut table = reserved(kind);
        let generation = table.generation();
        let before = table.clone();
        assert_eq!(reserve(&mut table, HOLDER, kind), Ok(()), "again");
        assert_eq!(reserve(&mut table, HOLDER, other_kind), conflict);
        assert_eq!(reserve(&mut table, STRANGER, kind), conflict);
        let of_others = if kind.is_of_all() { Ok(()) } else { conflict };
        assert_eq!(reserve(&mut table, OTHER, kind), of_others, "{kind:?}");
        assert_eq!(reserve(&mut table, OTHER, other_kind), conflict);
        let wrong_key = Command::Reserve { key: 99, kind };
        assert_eq!(table.execute(&HOLDER, &wrong_key), conflict);

        assert_eq!(release(&mut table, STRANGER, kind), conflict);
        let wrong_key = Command::Release { key: 99, kind };
        assert_eq!(table.execute(&HOLDER, &wrong_key), conflict);
        let wrong_kind = release(&mut table, HOLDER, other_kind);
        assert_eq!(wrong_kind, Err(Refused::WrongKind), "{kind:?}");
        if !kind.is_of_all() {
            assert_eq!(release(&mut table, OTHER, kind), Ok(()), "not theirs");
            assert_eq!(release(&mut table, OTHER, other_kind), Ok(()));
        }
        assert_eq!(table, before, "{kind:?}");
        let who = if kind.is_of_all() { OTHER } else { HOLDER };
        assert_eq!(release(&mut table, who, kind), Ok(()));
        assert_eq!(holder(&table), None);
        assert_eq!(release(&mut table, who, kind), Ok(()), "without one");
        assert_eq!(table.generation(), generation, "no change of keys");
        assert_eq!(keys(&table), [10, 20, 30]);
    }
}

#[test]
fn a_registrant_clears_everything() {
    for kind in Kind::ALL.iter().copied() {
        let mut table = reserved(kind);
        let clear = |key| Command::Clear { key };
        let conflict = Err(Refused::Conflict);
        assert_eq!(table.execute(&STRANGER, &clear(0)), conflict);
        assert_eq!(table.execute(&OTHER, &clear(10)), conflict);
        let generation = table.generation();
        assert_eq!(table.execute(&OTHER, &clear(20)), Ok(()));
        assert!(table.is_empty());
        assert_eq!(holder(&table), None);
        assert_eq!(table.generation(), generation + 1);
    }
}

#[test]
fn the_holder_is_preempted() {
    for kind in Kind::ALL.iter().copied() {
        for to in Kind::ALL.iter().copied() {
            let mut table = reserved(kind);
            let generation = table.generation();
            assert_eq!(preempt(&mut table, OTHER, key(HOLDER), to), Ok(()));
            assert_eq!(keys(&table), [20, 30]);
            assert_eq!(table.generation(), generation + 1);
            let wanted = match (kind.is_of_all(), to.is_of_all()) {
                // The remaining registrants hold the reservation.
                (true, _) => (kind, None),
                (false, true) => (to, None),
                (false, false) => (to, Some(OTHER)),
            };
            assert_eq!(holder(&table), Some(wanted), "{kind:?} by {to:?}");
            assert!(table.access(&HOLDER) < Access::ReadWrite, "{kind:?}");
            assert_eq!(table.access(&OTHER), Access::ReadWrite, "{kind:?}");
        }
    }
}

#[test]
fn a_registrant_is_preempted() {
    for kind in Kind::ALL.iter().copied() {
        let mut table = reserved(kind);
        let before = holder(&table);
        assert_eq!(preempt(&mut table, OTHER, key(THIRD), kind), Ok(()));
        assert_eq!(keys(&table), [10, 20]);
        assert_eq!(holder(&table), before, "{kind:?}");
        // A machine can remove its own key.
        assert_eq!(preempt(&mut table, OTHER, key(OTHER), kind), Ok(()));
        assert_eq!(keys(&table), [10]);
        assert_eq!(holder(&table), before, "{kind:?}");
    }
    let mut table = registered();
    let kind = Kind::ExclusiveAccess;
    assert_eq!(preempt(&mut table, OTHER, key(HOLDER), kind), Ok(()));
    assert_eq!((keys(&table), holder(&table)), (vec![20, 30], None));
}

#[test]
fn preempting_is_refused() {
    for kind in Kind::ALL.iter().copied() {
        let mut table = reserved(kind);
        let before = table.clone();
        let conflict = Err(Refused::Conflict);
        assert_eq!(preempt(&mut table, STRANGER, 10, kind), conflict);
        assert_eq!(preempt(&mut table, OTHER, 99, kind), conflict, "nobody's");
        let wrong_key = Command::Preempt {
            key: 10,
            victim: 30,
            kind,
        };
        assert_eq!(table.execute(&OTHER, &wrong_key), conflict);
        if !kind.is_of_all() {
            let no_key = preempt(&mut table, OTHER, 0, kind);
            assert_eq!(no_key, Err(Refused::NoKey));
        }
        assert_eq!(table, before, "{kind:?}");
    }
    let mut table = registered();
    let no_key = preempt(&mut table, OTHER, 0, Kind::WriteExclusive);
    assert_eq!(no_key, Err(Refused::NoKey), "without a reservation");
}

#[test]
fn a_reservation_of_all_is_taken_with_the_key_0() {
    for of_all in [Kind::WriteExclusiveAll, Kind::ExclusiveAccessAll] {
        for to in Kind::ALL.iter().copied() {
            let mut table = reserved(of_all);
            assert_eq!(preempt(&mut table, OTHER, 0, to), Ok(()));
            assert_eq!(keys(&table), [20]);
            let held_by = (!to.is_of_all()).then_some(OTHER);
            assert_eq!(holder(&table), Some((to, held_by)));
            // The same works without other registrants.
            let again = if to.is_of_all() { 0 } else { key(OTHER) };
            assert_eq!(preempt(&mut table, OTHER, again, of_all), Ok(()));
            assert_eq!(holder(&table), Some((of_all, None)));
        }
        let mut table = reserved(of_all);
        for victim in [10, 30] {
            assert_eq!(preempt(&mut table, OTHER, victim, of_all), Ok(()));
        }
        assert_eq!(preempt(&mut table, OTHER, 20, of_all), Ok(()));
        assert_eq!(holder(&table), None, "nobody is left to hold it");
    }
}

#[test]
fn a_holder_changes_the_type_by_its_own_key() {
    let mut table = reserved(Kind::WriteExclusive);
    register(&mut table, 4, key(HOLDER));
    let to = Kind::ExclusiveAccessRegistrants;
    assert_eq!(preempt(&mut table, HOLDER, key(HOLDER), to), Ok(()));
    assert_eq!(holder(&table), Some((to, Some(HOLDER))));
    assert_eq!(keys(&table), [10, 20, 30], "others with the same key");
}

#[test]
fn keys_that_several_have_are_removed_together() {
    let mut table = Machines::new();
    for who in [HOLDER, THIRD, 4, 5] {
        register(&mut table, who, key(HOLDER));
    }
    register(&mut table, OTHER, key(OTHER));
    let kind = Kind::WriteExclusive;
    assert_eq!(reserve(&mut table, HOLDER, kind), Ok(()));
    assert_eq!(preempt(&mut table, OTHER, key(HOLDER), kind), Ok(()));
    assert_eq!(keys(&table), [20]);
    assert_eq!(holder(&table), Some((kind, Some(OTHER))));
}

#[test]
fn a_table_has_an_end() {
    let mut table = Machines::new();
    for who in 0..MAX_REGISTRANTS as u32 {
        register(&mut table, who, 1);
    }
    let before = table.clone();
    let register = Command::Register {
        key: 0,
        new: 1,
        ignore_key: false,
    };
    assert_eq!(table.execute(&1000, &register), Err(Refused::Full));
    assert_eq!(table, before);
    assert_eq!(table.report().keys(), [1; MAX_REGISTRANTS]);
    let kind = Kind::ExclusiveAccess;
    let takes = Command::Reserve { key: 1, kind };
    assert_eq!(table.execute(&63, &takes), Ok(()));
    assert_eq!(table.access(&62), Access::None);
    let preempt = Command::Preempt {
        key: 1,
        victim: 1,
        kind,
    };
    assert_eq!(table.execute(&5, &preempt), Ok(()));
    assert_eq!(holder(&table), Some((kind, Some(5))));
    assert_eq!(table.execute(&1000, &register), Ok(()));
    table.reset();
    assert!(table.is_empty());
    assert_eq!(table.access(&1000), Access::ReadWrite);
}

#[test]
fn errors_are_those_of_the_kernel() {
    let errnos = [
        (Refused::Conflict, Errno::EBADE),
        (Refused::WrongKind, Errno::EINVAL),
        (Refused::NoKey, Errno::EINVAL),
        (Refused::Full, Errno::ENOSPC),
    ];
    for (refused, errno) in errnos {
        assert_eq!(refused.errno(), errno);
        assert!(!refused.message().as_str().is_empty());
    }
}

#[test]
fn a_report_is_a_message() {
    let table = reserved(Kind::ExclusiveAccess);
    let report = table.report();
    assert_eq!(report.keys(), [10, 20, 30]);
    assert_eq!((report.generation, report.key), (3, 10));
    let bytes = report.to_bytes();
    assert_eq!(bytes.len(), 536);
    assert_eq!(bytes[..12], [11, 0, 0, 0, 3, 0, 0, 0, 10, 0, 0, 0]);
    assert_eq!(bytes[16..24], [2, 0, 3, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[24], 10);
    assert_eq!(Report::parse(&bytes), Ok(report));
    for (at, value) in [(0, 10), (16, 7), (18, 65)] {
        let mut bytes = bytes;
        bytes[at] = value;
        assert!(Report::parse(&bytes).is_err(), "byte {at}");
    }
    assert!(Report::parse(&bytes[..535]).is_err());
    let of_all = reserved(Kind::WriteExclusiveAll).report();
    assert_eq!(
        (of_all.kind, of_all.key),
        (Some(Kind::WriteExclusiveAll), 0)
    );
    let none = registered().report();
    assert_eq!((none.kind, none.key), (None, 0));
    assert_eq!(Report::parse(&none.to_bytes()), Ok(none));
}
