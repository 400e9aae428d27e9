// SPDX-License-Identifier: GPL-2.0

//! Decides whether a mirror may be started, and from which legs.
//!
//! A leg is *here* if its disk takes requests and has a superblock of the mirror.
//!
//! A mirror must never start from a leg that was away while other legs got writes. A rule of md
//! makes this decidable: when a leg fails, md first writes on all other legs that the failed leg
//! takes part no longer, and only then begins the next write. So
//!
//! - a leg whose superblock names no other leg as taking part has all data, as no other leg can
//!   have got later writes;
//! - a leg whose superblock names a leg that is not here may be an old leg, as the named leg may
//!   have gone on without it. The start is refused, unless this machine stopped the mirror in
//!   order, the leg is as it was then, and no other machine could use the leg in between.
//!
//! The rule says nothing about the writes that are in flight when a leg fails: md confirms these
//! before it has written the superblocks. So a machine that takes the legs of a running mirror from
//! another machine starts from the leg that it took last ([`after_take_over`]).
//!
//! The record ([`super::record`]) makes a start possible in this last case only. Besides, it gives
//! the reason of a refusal, and it can forbid a start that the superblocks would allow.

use super::superblock::Role;
use super::superblock::Superblock;

/// A leg before the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The leg's superblock; `None` if the leg is not here.
    pub superblock: Option<Superblock>,
    /// Whether the leg had all data according to this machine's record; `None` without a record.
    pub in_sync: Option<bool>,
    /// Whether the leg has to be filled before its data counts.
    pub fill: bool,
    /// Whether this machine has had the leg reserved without a break.
    pub kept: bool,
}

/// The decision about a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The mirror starts from these legs, given by index. The other legs are added afterwards.
    Start(Vec<usize>),
    /// The mirror is not started now.
    Refuse(Reason),
}

/// The reason why a mirror is not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No leg is here.
    NoLeg,
    /// None of the legs that are here has all data.
    NoFullLeg,
    /// Legs that are not here may have newer data.
    MayBeNewer {
        /// The legs that are not here and had all data according to the record, by index.
        known: Vec<usize>,
        /// The number of legs that may have newer data, at least 1.
        missing: usize,
    },
    /// These two legs, given by index, went on without each other.
    Split(usize, usize),
}

/// A full leg: it is here and has a place, it is not partial, and it need not be filled.
struct Full<'l> {
    index: usize,
    place: u16,
    superblock: &'l Superblock,
}

/// Decides about the start of a mirror with these legs. `stopped` is the event count of the legs in
/// sync if this machine stopped the mirror in order.
pub fn decide(legs: &[Leg], stopped: Option<u64>) -> Decision {
    let full = match full(legs) {
        Ok(full) => full,
        Err(reason) => return Decision::Refuse(reason),
    };
    if let Some((a, b)) = split(&full) {
        return Decision::Refuse(Reason::Split(a, b));
    }
    let Some((fresh, missing)) = fresh(legs, &full) else {
        return Decision::Refuse(Reason::NoFullLeg);
    };
    let is_as_stopped = |leg: &&Full<'_>| {
        let own = legs.get(leg.index);
        own.is_some_and(|own| own.kept && own.in_sync == Some(true))
            && stopped == Some(leg.superblock.events)
    };
    let is_untouched = fresh.iter().all(is_as_stopped);
    let known = absent_in_sync(legs);
    // The record speaks against the start if the legs to start from went away, and a leg that is
    // not here did not.
    let is_outdated = !known.is_empty()
        && (fresh.iter()).all(|leg| {
            legs.get(leg.index)
                .is_some_and(|own| own.in_sync == Some(false))
        });
    if (missing > 0 && !is_untouched) || is_outdated {
        return Decision::Refuse(Reason::MayBeNewer {
            known,
            missing: missing.max(1),
        });
    }
    Decision::Start(fresh.iter().map(|leg| leg.index).collect())
}

/// Decides about a start that the administrator forces: from the newest full legs. Data that only
/// other legs have is lost. If two legs went on without each other, the start is refused: event
/// counts do not say whose data the administrator wants.
pub fn forced(legs: &[Leg]) -> Decision {
    let full = match full(legs) {
        Ok(full) => full,
        Err(reason) => return Decision::Refuse(reason),
    };
    if let Some((a, b)) = split(&full) {
        return Decision::Refuse(Reason::Split(a, b));
    }
    match fresh(legs, &full) {
        Some((fresh, _)) => Decision::Start(fresh.iter().map(|leg| leg.index).collect()),
        None => Decision::Refuse(Reason::NoFullLeg),
    }
}

/// Returns the legs to start from if legs were taken from another machine, one after another in the
/// order of `legs`. `chosen` is the decision about the start; the superblocks were read after the
/// last leg was taken.
///
/// A leg that is taken fails at the other machine. Its md then confirms writes that only the other
/// legs have, and cannot note that on any leg once the last leg is taken. So the leg that was taken
/// last has all confirmed writes; a leg that was taken earlier may lack some.
///
/// If all superblocks are clean and have the same event count, the legs are the same: md marks the
/// legs as not clean before it sends the first write.
pub fn after_take_over(legs: &[Leg], chosen: Vec<usize>) -> Vec<usize> {
    let of = |index: &usize| legs.get(*index);
    let superblocks = || {
        chosen
            .iter()
            .filter_map(|index| of(index)?.superblock.as_ref())
    };
    let events = superblocks().next().map(|first| first.events);
    let are_same = superblocks().all(|leg| leg.is_clean && Some(leg.events) == events);
    // No other machine could write to a leg that this machine has had reserved without a break.
    let taken = |index: &&usize| of(index).is_some_and(|leg| !leg.kept);
    match chosen.iter().rfind(taken) {
        Some(&last) if !are_same => vec![last],
        Some(_) | None => chosen,
    }
}

/// Returns whether a start should wait for a while, for a leg that is not here. The start would
/// leave out a leg that is in sync by the record, or would be refused for the lack of a leg. When a
/// machine boots, such a leg is usually mapped a moment later.
pub fn should_wait(legs: &[Leg], stopped: Option<u64>) -> bool {
    match decide(legs, stopped) {
        Decision::Start(_) => !absent_in_sync(legs).is_empty(),
        // No leg that is missing can change that.
        Decision::Refuse(Reason::Split(..)) => false,
        Decision::Refuse(Reason::NoLeg | Reason::NoFullLeg | Reason::MayBeNewer { .. }) => true,
    }
}

/// Returns the full legs, at least one.
fn full(legs: &[Leg]) -> Result<Vec<Full<'_>>, Reason> {
    if legs.iter().all(|leg| leg.superblock.is_none()) {
        return Err(Reason::NoLeg);
    }
    let full = legs.iter().enumerate().filter_map(|(index, leg)| {
        let superblock = leg
            .superblock
            .as_ref()
            .filter(|found| !found.is_partial && !leg.fill)?;
        match superblock.role {
            Role::Active(place) => Some(Full {
                index,
                place,
                superblock,
            }),
            Role::Spare | Role::Faulty => None,
        }
    });
    let full: Vec<_> = full.collect();
    match full.is_empty() {
        true => Err(Reason::NoFullLeg),
        false => Ok(full),
    }
}

/// Returns whether the leg `a` says that the leg `b` takes part no longer.
fn excludes(a: &Full<'_>, b: &Full<'_>) -> bool {
    a.superblock.place_of(b.superblock) != Some(b.place)
}

/// Returns whether another leg went on without this leg. Event counts alone do not tell: md lowers
/// the count by 1 when it notes that all writes are done.
fn is_outlived(leg: &Full<'_>, full: &[Full<'_>]) -> bool {
    full.iter()
        .any(|other| excludes(other, leg) && !excludes(leg, other))
}

/// Returns two legs if each says that the other leg takes part no longer.
/// Two disks with the same place are no such legs: one disk has replaced the other disk, and the
/// superblocks of other legs show which disk is the old disk.
fn split(full: &[Full<'_>]) -> Option<(usize, usize)> {
    full.iter().enumerate().find_map(|(at, a)| {
        let mut later = full.iter().skip(at).skip(1);
        let b = later.find(|b| a.place != b.place && excludes(a, b) && excludes(b, a))?;
        Some((a.index, b.index))
    })
}

/// Returns the legs that are as new as the newest leg, and the number of legs that the newest leg
/// names as taking part and that are not here. The event counts of legs in sync differ by 1 at
/// most; `mdadm` allows the same difference.
fn fresh<'f, 'l>(legs: &[Leg], full: &'f [Full<'l>]) -> Option<(Vec<&'f Full<'l>>, usize)> {
    let newest = full
        .iter()
        .filter(|leg| !is_outlived(leg, full))
        .max_by_key(|leg| leg.superblock.events)?;
    let is_fresh = |leg: &&Full<'_>| {
        leg.superblock.events.checked_add(1) >= Some(newest.superblock.events)
            && !excludes(newest, leg)
    };
    let fresh = full.iter().filter(is_fresh).collect();
    let is_here = |place: u16| {
        let mut here = legs.iter().filter_map(|leg| leg.superblock.as_ref());
        // A leg that is to replace another leg has the same place, and so has a leg that was
        // replaced. Neither stands for the leg that is not here, which may have gone on.
        here.any(|found| {
            found.role == Role::Active(place)
                && !found.replaces
                && newest.superblock.place_of(found) == Some(place)
        })
    };
    let missing = newest
        .superblock
        .active
        .iter()
        .filter(|&&place| !is_here(place));
    Some((fresh, missing.count()))
}

/// Returns the legs that are not here and had all data according to the record, by index.
fn absent_in_sync(legs: &[Leg]) -> Vec<usize> {
    let absent = legs
        .iter()
        .enumerate()
        .filter(|(_, leg)| leg.superblock.is_none() && leg.in_sync == Some(true));
    absent.map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests;
