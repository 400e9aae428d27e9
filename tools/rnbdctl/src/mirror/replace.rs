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
/// done. If the old leg has data, it stays in the mirror until the new leg has all data. `old` and
/// `new` may be the same, for a disk that was exchanged at the server. `force` takes a disk with
/// data on it, too, fills a leg anew that is in sync or is being filled, and gives up a replacement
/// whose new leg is not in the mirror.
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
    let record = records.need(name)?;
    let before = record.legs.clone();
    let (view, given_up) = load(system, record, old, force)?;
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
    let exchange = Exchange {
        records: &records,
        view: &view,
        node: &node,
        place,
        stays: leg.member.is_some_and(MemberState::has_data) && !is_same,
        new: Leg {
            fill: true,
            ..new.record(false)
        },
        device: &device,
        what: &what,
    };
    let key = identity::key(system);
    let said = exchange.begin().or_else(|error| {
        let restored = records.change(name, |record| {
            record.legs.clone_from(&before);
            true
        });
        if is_taken && !is_same {
            let _ = reserve::release(&device.path, key);
        }
        restored.and(Err(error))
    })?;
    let old = (!exchange.stays && !is_same).then(|| (old.clone(), leg.clone()));
    let gone = old.into_iter().chain(given_up);
    let gone: Vec<_> = gone.filter(|(leg, _)| *leg != new.name).collect();
    Ok(match view.record.reserve {
        true => release(said, &gone, key),
        false => said,
    })
}

/// Returns the mirror, and with `force` without a replacement whose new leg is not in the mirror.
/// That leg is returned, too; no file is changed. A replacement of the new leg `old` itself gives
/// nothing up.
fn load(
    system: &System,
    mut record: Record,
    old: &LegName,
    force: bool,
) -> Result<(View, Option<(LegName, view::Leg)>)> {
    let view = View::load(system, record.clone())?;
    let lost = view.lost_replacement().zip(view.record.legs.last());
    match lost.filter(|(_, new)| force && new.name != *old) {
        Some((leg, new)) => {
            give_up(&mut record);
            Ok((
                View::load(system, record)?,
                Some((new.name.clone(), leg.clone())),
            ))
        }
        None => Ok((view, None)),
    }
}

/// Takes the new leg of a replacement out of a record, if there is one: the old leg stays a leg.
fn give_up(record: &mut Record) {
    if record.legs.iter().any(|leg| leg.leaving) {
        record.legs.pop();
    }
    for leg in &mut record.legs {
        leg.leaving = false;
    }
}

/// Gives up the reservations of legs that are no legs any more, and returns `said` with the legs
/// that stay reserved. A server that is away keeps its reservation.
fn release(mut said: String, legs: &[(LegName, view::Leg)], key: u64) -> String {
    for (name, leg) in legs {
        let released = leg.open().map(|disk| reserve::release(&disk.path, key));
        if let Some(Err(error)) = released {
            said.push_str(&format!("; {name} stays reserved: {}", error.why()));
        }
    }
    said
}

/// A replacement that is checked, and whose new disk is reserved.
struct Exchange<'e> {
    records: &'e Records,
    view: &'e View,
    node: &'e str,
    /// The place of the old leg in the record of the view.
    place: usize,
    /// Whether the old leg stays until the new leg has all data.
    stays: bool,
    new: Leg,
    device: &'e ClientDevice,
    what: &'e str,
}

impl Exchange<'_> {
    /// Puts the new leg into the record, and has md fill the leg. Returns in words what was done.
    /// If that fails, md does not have the new disk afterwards.
    fn begin(&self) -> Result<String> {
        let (Some(leg), Some(old)) = (
            self.view.legs.get(self.place),
            self.view.record.legs.get(self.place),
        ) else {
            return Ok(String::new());
        };
        // `replace` has taken a leg out before that is replaced by its own disk.
        if !self.stays && leg.member.is_some() && old.name != self.new.name {
            take_out(self.node, leg, self.what)?;
        }
        // The record comes first: from it the service goes on if this program is killed.
        self.records.change(&self.view.record.name, |record| {
            // `load` has allowed that.
            give_up(record);
            change_legs(record, self.place, &self.new, self.stays)
        })?;
        // md may look for a new disk already, as a replacement of the leg was given up.
        let members = self.view.array.iter().flat_map(|array| &array.members);
        let mut wanted = members.filter(|member| member.is_replaced);
        let disk = leg.device.as_ref().filter(|_| self.stays);
        let disk = disk.filter(|disk| !wanted.any(|member| member.disk == disk.name));
        let disk = disk.map(|disk| disk.path.as_str());
        let said = begin_fill(self.node, &self.new, self.device, disk, self.what)?;
        Ok(match self.stays {
            true => {
                let old = &old.name;
                format!("{said}; {old} stays in the mirror until all data is copied")
            }
            false => said,
        })
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
        && reserve::take_new_leg(&device.path, identity::key(system))? == Taken::New;
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
    match hindrance(view, place, new, force) {
        Some((why, hint)) => Err(Error::new(Kind::Busy, what, why).hint(hint)),
        None => Ok((place, leg)),
    }
}

/// Returns the reason why the leg at `place` cannot be replaced by `new` now, and what to do;
/// `None` if it can be replaced.
fn hindrance(view: &View, place: usize, new: &LegName, force: bool) -> Option<(String, String)> {
    if let Some(replaced) = replacement(view) {
        return Some(replaced);
    }
    let legs = &view.record.legs;
    let (old, leg) = (&legs.get(place)?.name, view.legs.get(place)?);
    let because = |why: String, hint: &str| Some((why, hint.to_owned()));
    if leg.member == Some(MemberState::Filling) && new == old && !force {
        return because(
            format!("md is filling {old}"),
            "wait: rnbdctl mirror status; or fill the leg anew with --force",
        );
    }
    let others: Vec<_> = (view.legs.iter().zip(legs).enumerate())
        .filter(|(at, _)| *at != place)
        .map(|(_, (other, record))| (other.member, &record.name))
        .collect();
    let is_last = !others
        .iter()
        .any(|(member, _)| *member == Some(MemberState::InSync));
    let has_data = leg.member.is_some_and(MemberState::has_data);
    if has_data && new == old && is_last {
        let why = "no other leg has all data".to_owned();
        return because(
            why,
            "bring the other legs back, or wait until they have all data: rnbdctl mirror status",
        );
    }
    if has_data && new == old && !force {
        return because(
            format!("{old} has data"),
            "give another disk as the new leg; or have the leg filled anew with --force",
        );
    }
    // md would fill the new disk in the place of the missing leg, and not of this leg.
    let lacking = others
        .iter()
        .find(|(member, _)| !member.is_some_and(MemberState::has_data));
    if let Some((_, other)) = lacking.filter(|_| has_data && new != old) {
        let why = format!("{other} is missing from the mirror, or is being filled");
        let hint = format!(
            "replace {other} first, or wait until {other} has all data: rnbdctl mirror status"
        );
        return Some((why, hint));
    }
    None
}

/// Returns the reason why no leg can be replaced while a leg is being replaced, and what to do;
/// `None` if no leg is being replaced. The new leg is the last leg of the record.
fn replacement(view: &View) -> Option<(String, String)> {
    let legs = &view.record.legs;
    let (old, new) = legs.iter().find(|leg| leg.leaving).zip(legs.last())?;
    let (old, new) = (&old.name, &new.name);
    let why = format!("{old} is being replaced by {new}");
    Some(match view.lost_replacement() {
        Some(_) => (
            format!("{why}, and {new} is not in the mirror"),
            format!(
                "bring the new leg back; or give that replacement up: rnbdctl mirror replace {} \
                 {old} NEW-DISK@SESSION --force",
                view.record.name
            ),
        ),
        None => (
            why,
            "wait until the new leg has all data: rnbdctl mirror status".to_owned(),
        ),
    })
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
