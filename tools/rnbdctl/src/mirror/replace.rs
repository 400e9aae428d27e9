// SPDX-License-Identifier: GPL-2.0

//! Replaces legs of a mirror by other disks.

use super::act;
use super::array::MemberState;
use super::create;
use super::create::PlannedLeg;
use super::record::Leg;
use super::record::Record;
use super::record::Records;
use super::repair;
use super::reserve;
use super::reserve::Taken;
use super::tool;
use super::view;
use super::LegName;
use super::MirrorName;
use super::View;
use crate::identity;
use crate::model::ClientDevice;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// Replaces the leg `old` by the disk `new`, has md fill the new leg, and returns in words what was
/// done. If the old leg is in sync, it stays in the mirror until the new leg has all data. `old`
/// and `new` may be the same, for a disk that was exchanged at the server. `force` takes a disk
/// with data on it, too, and fills a leg anew that is in sync.
///
/// The error is [`Kind::NotFound`] if `old` is no leg or `new` is not mapped, [`Kind::Usage`] if
/// `new` is another leg or makes no mirror with the other legs, and [`Kind::Busy`] if the mirror
/// does not run, if a leg is being filled or replaced, if only `old` has all data, or if the disk
/// is in use. After an error the record has the old legs.
pub fn replace(
    system: &System,
    name: &MirrorName,
    old: &LegName,
    new: &PlannedLeg,
    force: bool,
) -> Result<String> {
    let what = format!("replacing {old} of mirror {name}");
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let view = View::load(system, records.need(name)?)?;
    let Some(array) = &view.array else {
        return Err(Error::new(Kind::Busy, what, "the mirror does not run")
            .hint("start it with: rnbdctl mirror assemble"));
    };
    let node = format!("/dev/{}", array.md);
    let (place, leg) = going(&view, old, &new.name, force, &what)?;
    check_with_others(system, &view, place, new, &what)?;
    create::check_unclaimed(&records, name, &new.name, &what)?;
    let is_same = new.name == *old;
    if is_same && leg.member.is_some() {
        take_out(&node, leg, &what)?;
    }
    let (device, is_taken) = ready(system, &view, &new.name, force, &what)?;
    let key = identity::key(system);
    let stays = leg.member == Some(MemberState::InSync) && !is_same;
    if !stays && !is_same && leg.member.is_some() {
        take_out(&node, leg, &what)?;
    }
    // The record comes first: from it the service goes on if this program is killed.
    let planned = Leg {
        fill: true,
        ..new.record(false)
    };
    records.change(name, |record| change_legs(record, place, &planned, stays))?;
    let old_node = leg.device.as_ref().map(|gone| gone.path.as_str());
    let filled = begin_fill(&node, &planned, &device, old_node.filter(|_| stays), &what);
    match filled {
        Ok(said) if stays => Ok(format!(
            "{said}; {old} stays in the mirror until all data is copied"
        )),
        Ok(said) => {
            if let Some(gone) = leg.open().filter(|_| view.record.reserve && !is_same) {
                reserve::release(&gone.path, key)?;
            }
            Ok(said)
        }
        Err(error) => {
            records.change(name, |record| {
                record.legs.clone_from(&view.record.legs);
                true
            })?;
            if is_taken && !is_same {
                let _ = reserve::release(&device.path, key);
            }
            Err(error)
        }
    }
}

/// Returns the disk of a new leg with the settings of a leg, and whether its reservation is new.
fn ready(
    system: &System,
    view: &View,
    new: &LegName,
    force: bool,
    what: &str,
) -> Result<(ClientDevice, bool)> {
    let device = create::usable(system, new, what)?;
    if !force {
        create::check_blank(&device, what)?;
    }
    act::prepare(system, &device)?;
    let is_taken = view.record.reserve
        && reserve::take(&device.path, identity::key(system), false)? == Taken::New;
    Ok((device, is_taken))
}

/// Puts the new leg into a record: beside the leg at `place` if that leg stays for now, else in its
/// place. Returns whether the record has changed.
fn change_legs(record: &mut Record, place: usize, new: &Leg, stays: bool) -> bool {
    let Some(old) = record.legs.get_mut(place) else {
        return false;
    };
    match stays {
        true => {
            old.leaving = true;
            record.legs.push(new.clone());
        }
        false => old.clone_from(new),
    }
    true
}

/// Has md fill a disk as a leg, in the place of the leg with the node `old` if there is one. If
/// that fails, md does not have the disk afterwards.
fn begin_fill(
    node: &str,
    leg: &Leg,
    device: &ClientDevice,
    old: Option<&str>,
    what: &str,
) -> Result<String> {
    let said = repair::fill(node, leg, device)?;
    let Some(old) = old else {
        return Ok(said);
    };
    let args = [node, "--replace", old, "--with", &device.path];
    match tool::run("mdadm", &args).and_then(|ran| ran.ok(what)) {
        Ok(_) => Ok(said),
        Err(error) => {
            for action in ["--fail", "--remove"] {
                let _ = tool::run("mdadm", &[node, action, &device.path]);
            }
            Err(error)
        }
    }
}

/// Checks that the new leg makes a mirror with the legs that stay: legs of two servers, not all of
/// them write-mostly.
fn check_with_others(
    system: &System,
    view: &View,
    place: usize,
    new: &PlannedLeg,
    what: &str,
) -> Result {
    let others = view.record.legs.iter().enumerate();
    let others: Vec<_> = others
        .filter(|(index, _)| *index != place)
        .map(|(_, leg)| leg)
        .collect();
    if new.write_mostly && others.iter().all(|leg| leg.write_mostly) {
        let why = "all legs would be write-mostly: reads need a leg that is not";
        return Err(Error::new(Kind::Usage, what, why));
    }
    let names = others.iter().map(|leg| &leg.name).chain([&new.name]);
    create::check_servers(system, &names.collect::<Vec<_>>(), what)
}

/// Returns the leg `old`, and its place in the record, or the reason why it cannot be replaced now.
fn going<'v>(
    view: &'v View,
    old: &LegName,
    new: &LegName,
    force: bool,
    what: &str,
) -> Result<(usize, &'v view::Leg)> {
    let legs = &view.record.legs;
    let place = legs.iter().position(|leg| leg.name == *old);
    let Some((place, leg)) = place.and_then(|place| Some((place, view.legs.get(place)?))) else {
        let why = format!("{old} is no leg of this mirror");
        return Err(
            Error::new(Kind::NotFound, what, why).hint("see its legs with: rnbdctl mirror status")
        );
    };
    if new != old && legs.iter().any(|leg| leg.name == *new) {
        let why = format!("{new} is already a leg of this mirror");
        return Err(Error::new(Kind::Usage, what, why));
    }
    let busy = |why: String, hint: &str| Err(Error::new(Kind::Busy, what, why).hint(hint));
    if legs.iter().any(|leg| leg.leaving) {
        let why = "a leg of this mirror is being replaced".to_owned();
        return busy(
            why,
            "wait until the new leg has all data: rnbdctl mirror status",
        );
    }
    let others = view.legs.iter().enumerate().filter(|(at, _)| *at != place);
    let mut others = others.map(|(_, other)| other.member == Some(MemberState::InSync));
    let is_last = !others.clone().any(|in_sync| in_sync);
    let is_in_sync = leg.member == Some(MemberState::InSync);
    if is_in_sync && new == old && (is_last || !force) {
        let why = match is_last {
            true => format!("{old} is the only leg with all data"),
            false => format!("{old} has all data"),
        };
        return busy(
            why,
            match is_last {
                true => "give another disk as the new leg",
                false => {
                    "give another disk as the new leg; or have the leg filled anew with --force"
                }
            },
        );
    }
    // md would fill the new disk in the place of the missing leg, and not of this leg.
    if is_in_sync && new != old && !others.all(|in_sync| in_sync) {
        let why = "another leg of this mirror is missing, or is being filled".to_owned();
        return busy(
            why,
            "replace the missing leg first, or wait until it has all data",
        );
    }
    Ok((place, leg))
}

/// Takes a leg out of the array. md first marks the leg as failed, as it does not take out a leg in
/// use.
fn take_out(node: &str, leg: &view::Leg, what: &str) -> Result {
    let Some(device) = &leg.device else {
        return Ok(());
    };
    if leg.member != Some(MemberState::Faulty) {
        tool::run("mdadm", &[node, "--fail", &device.path])?.ok(what)?;
    }
    tool::run("mdadm", &[node, "--remove", &device.path])?
        .ok(what)
        .map(drop)
}
