// SPDX-License-Identifier: GPL-2.0

//! Tends mirrors: starts them, brings legs back, and notes which legs have all data.
//!
//! `tend` waits until no other process works on the mirror. It may hang while a disk of the mirror
//! hangs. So a process that tends several mirrors has a thread for each mirror.

use super::act;
use super::act::StartOptions;
use super::array::MemberState;
use super::record::now;
use super::record::Leg;
use super::record::Record;
use super::record::Records;
use super::reserve;
use super::reserve::Taken;
use super::start;
use super::tend::LegState;
use super::tend::Step;
use super::tool;
use super::tool::Ran;
use super::view;
use super::LegName;
use super::MirrorName;
use super::View;
use crate::identity;
use crate::model::ClientDevice;
use crate::model::DeviceState;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// How to tend a mirror.
#[derive(Clone, Copy, Debug, Default)]
pub struct TendOptions {
    /// Do not start the mirror yet if a leg is missing that is in sync by the record, and do not
    /// refuse the start yet for the lack of a leg.
    pub patient: bool,
    /// Reserve the legs in the array again: a server may have lost a reservation.
    pub reserve: bool,
    /// Add no leg, and take no leg with bad blocks out: a leg was added a short time ago, and has
    /// failed since.
    pub pauses: bool,
}

/// Does what a mirror needs now. A mirror that does not run is started, unless an administrator has
/// stopped it. A broken mirror is stopped. In a running mirror failed legs are taken out, and legs
/// that are back are added; a failure at a leg does not keep the other legs from their steps.
pub fn tend(system: &System, name: &MirrorName, options: TendOptions) -> Result<Tended> {
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let mut tended = Tended::default();
    let Some(record) = records.load(name)? else {
        return Ok(tended);
    };
    let mut view = View::load(system, record)?;
    let Some(array) = view.array.clone() else {
        let stays_stopped = records.is_held(name)
            || view.record.released
            || (options.patient && waits_for_legs(system, &mut view));
        if !stays_stopped {
            let node = act::started(system, view, &StartOptions::default())?;
            tended.done.push(format!("started as {node}"));
        }
        return Ok(tended);
    };
    let node = format!("/dev/{}", array.md);
    if array.is_broken() {
        // A program that has the mirror open keeps it from being stopped; its writes fail.
        let what = format!("stopping mirror {name}, which has lost its last leg");
        tool::run("mdadm", &["--stop", &node])?.ok(&what)?;
        tended
            .done
            .push("stopped: the mirror had lost its last leg".to_owned());
        return Ok(tended);
    }
    if array.is_read_auto() {
        act::allow_writes(
            system,
            &array.uuid,
            &format!("letting md write to mirror {name}"),
        )?;
        tended.done.push("md may write now".to_owned());
    }
    let taken_out = take_failed_out(system, &view, &node, &mut tended);
    if tended.has_changed(taken_out) {
        view = View::load(system, view.record)?;
    }
    let ended = end_replacement(system, &view, &node, &mut tended);
    if tended.has_changed(ended) {
        view = View::load(system, records.need(name)?)?;
    }
    if options.reserve {
        reserve_members(system, &view, &mut tended);
    }
    if options.pauses {
        return Ok(tended);
    }
    tend_legs(system, &mut view, &node, &mut tended);
    Ok(tended)
}

/// Returns whether the start of this mirror should wait for legs that are not here yet.
fn waits_for_legs(system: &System, view: &mut View) -> bool {
    view.read_legs(system);
    let stopped = view.record.stopped.map(|stopped| stopped.events);
    start::should_wait(&view.for_start(&vec![true; view.legs.len()]), stopped)
}

/// Takes failed disks out of the array, and spare disks that are no legs. A program that was killed
/// while it replaced a leg leaves such a spare. Returns whether a disk was taken out.
fn take_failed_out(system: &System, view: &View, node: &str, tended: &mut Tended) -> Result<bool> {
    let failed = view.array.iter().flat_map(|array| &array.members);
    let failed = failed.filter(|member| member.state == MemberState::Faulty);
    let failed: Vec<_> = failed.map(|member| member.disk.clone()).collect();
    if !failed.is_empty() {
        let what = format!("removing failed legs of mirror {}", view.record.name);
        tool::run("mdadm", &[node, "--remove", "failed"])?.ok(&what)?;
        tended
            .done
            .push("removed failed legs from the mirror".to_owned());
        release_replaced(system, view, &failed);
    }
    let spares = view.orphans(MemberState::Filling);
    for disk in &spares {
        let disk = format!("/dev/{disk}");
        let what = format!(
            "removing {disk}, which is no leg of mirror {}",
            view.record.name
        );
        for action in ["--fail", "--remove"] {
            tool::run("mdadm", &[node, action, &disk])?.ok(&what)?;
        }
        tended.done.push(format!("removed {disk}, which is no leg"));
    }
    Ok(!failed.is_empty() || !spares.is_empty())
}

/// Goes on with the replacement of a leg: tells md to replace the leg, if a program was killed
/// before it did, and removes the leg from the record when the new leg has all data. Returns
/// whether it has done something.
fn end_replacement(system: &System, view: &View, node: &str, tended: &mut Tended) -> Result<bool> {
    if let Some((old, new)) = view.stalled_replacement() {
        let args = [node, "--replace", &old.path, "--with", &new.path];
        tool::run("mdadm", &args)?.ok(&replacing(view, old))?;
        tended
            .done
            .push(format!("md replaces {} by {}", old.path, new.path));
        return Ok(true);
    }
    let gone = view.replaced();
    for name in &gone {
        if view.record.reserve {
            let leg = view.legs.iter().zip(&view.record.legs);
            let leg = leg.filter(|(_, record)| record.name == *name);
            for device in leg.filter_map(|(leg, _)| leg.open()) {
                let _ = reserve::release(&device.path, identity::key(system));
            }
        }
        tended
            .done
            .push(format!("{name} is replaced, and no leg any more"));
    }
    if !gone.is_empty() {
        Records::of(system).change(&view.record.name, |record| {
            record.legs.retain(|leg| !gone.contains(&leg.name));
            true
        })?;
    }
    Ok(!gone.is_empty())
}

/// Returns the words for the replacement of a leg, by its disk.
fn replacing(view: &View, old: &ClientDevice) -> String {
    format!(
        "replacing {}@{} of mirror {}",
        old.device_path, old.session, view.record.name
    )
}

/// Reserves the legs in the array again. A server that was restarted may have lost the
/// reservations, while md has not lost the leg.
fn reserve_members(system: &System, view: &View, tended: &mut Tended) {
    let members = view.legs.iter().zip(&view.record.legs).filter(|(leg, _)| {
        leg.member
            .is_some_and(|member| member != MemberState::Faulty)
    });
    for (device, record) in members.filter_map(|(leg, record)| Some((leg.open()?, record))) {
        if device.io_unanswered.is_some_and(|nr| nr > 0) || !view.record.reserve {
            continue;
        }
        match reserve::take(&device.path, identity::key(system), false) {
            Ok(Taken::Kept) => (),
            Ok(Taken::New) => {
                let line = format!(
                    "reserved {} again: its server had lost the reservation",
                    record.name
                );
                tended.done.push(line);
            }
            Err(error) => tended.failed.push(error.of(reserving(view, record))),
        }
    }
}

/// Returns the words for the reservation of a leg.
fn reserving(view: &View, leg: &Leg) -> String {
    format!("reserving {} of mirror {}", leg.name, view.record.name)
}

/// Gives up the reservation of each disk that is no leg any more, as it was replaced. A server that
/// is away keeps its reservation.
fn release_replaced(system: &System, view: &View, disks: &[String]) {
    let orphans = view.orphans(MemberState::Faulty);
    if view.record.reserve {
        for disk in disks.iter().filter(|&disk| orphans.contains(disk)) {
            let _ = reserve::release(&format!("/dev/{disk}"), identity::key(system));
        }
    }
}

/// The work that [`tend`] has done on a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tended {
    /// Each step that was done, in words.
    pub done: Vec<String>,
    /// The error of each step that failed.
    pub failed: Vec<Error>,
    /// Whether a leg was added.
    pub has_added: bool,
}

impl Tended {
    /// Returns whether a step may have changed the array. The error of the step is noted.
    fn has_changed(&mut self, step: Result<bool>) -> bool {
        step.unwrap_or_else(|error| {
            self.failed.push(error);
            // A step that has failed may have done a part of its work.
            true
        })
    }
}

/// Has each leg take the step that it needs.
fn tend_legs(system: &System, view: &mut View, node: &str, tended: &mut Tended) {
    view.read_legs(system);
    for (index, state) in view.states().into_iter().enumerate() {
        match tend_leg(system, view, index, state, node) {
            Ok(None) => (),
            Ok(Some(done)) => {
                tended.has_added |= state.step() != Some(Step::TakeOut);
                tended.done.push(done);
            }
            Err(error) => tended.failed.push(error),
        }
    }
}

fn tend_leg(
    system: &System,
    view: &View,
    index: usize,
    state: LegState,
    node: &str,
) -> Result<Option<String>> {
    let Some((leg, record)) = view.legs.get(index).zip(view.record.legs.get(index)) else {
        return Ok(None);
    };
    let (Some(step), Some(device)) = (state.step(), leg.open()) else {
        return Ok(None);
    };
    // `tend` has taken failed legs out, all at once. A leg that is being replaced stays in the
    // array until the new leg has all data.
    if step == Step::Remove || (step == Step::TakeOut && record.leaving) {
        return Ok(None);
    }
    if step == Step::TakeOut {
        return take_holed_out(system, view, index, node).map(Some);
    }
    act::prepare(system, device)?;
    if view.record.reserve {
        reserve::take(&device.path, identity::key(system), false)
            .map_err(|error| error.of(reserving(view, record)))?;
    }
    // From here on the leg changes, so the mirror cannot start again as it was stopped.
    let records = Records::of(system);
    records.change(&view.record.name, |record| record.stopped.take().is_some())?;
    let mut refused = String::new();
    if step == Step::ReAdd {
        let ran = tool::run("mdadm", &[node, "--re-add", &device.path])?;
        if ran.is_ok() {
            let said = format!(
                "added {} again: md copies the data that the leg lacks",
                record.name
            );
            return Ok(Some(said));
        }
        check_open(system, view, &record.name, &ran)?;
        // The note comes first: if filling is cut off, the leg may have no superblock, and only
        // the record says that the leg has to be filled.
        note_fill(&records, view, &record.name)?;
        refused = format!(", as md refused to copy only what it lacks ({})", ran.why());
    }
    let said = format!("{}{refused}", fill(node, record, device)?);
    match view.load_again(system)?.stalled_replacement() {
        Some((old, new)) => {
            let args = [node, "--replace", &old.path, "--with", &new.path];
            tool::run("mdadm", &args)?.ok(&replacing(view, old))?;
            Ok(Some(format!("{said}, and replaces {} then", old.path)))
        }
        None => Ok(Some(said)),
    }
}

/// Checks that a leg is open that md has refused to add again, so that the loss of the leg is not
/// the reason. A leg that was lost meanwhile gets only the data that it lacks when it is back.
fn check_open(system: &System, view: &View, leg: &LegName, refused: &Ran) -> Result {
    match view::device(system, leg)? {
        Some(device) if device.state == DeviceState::Open => Ok(()),
        _ => {
            let what = format!("adding {leg} to mirror {} again", view.record.name);
            Err(refused.error(&what))
        }
    }
}

/// Notes in the record that a leg has to be filled as a whole.
fn note_fill(records: &Records, view: &View, wanted: &LegName) -> Result {
    let note = |record: &mut Record| {
        let mut legs = record.legs.iter_mut();
        legs.find(|leg| leg.name == *wanted)
            .map(|leg| leg.fill = true)
            .is_some()
    };
    records.change(&view.record.name, note).map(drop)
}

/// Takes a leg with bad blocks out of the array. It is added and filled afterwards. A leg stays if
/// no other leg has all data.
fn take_holed_out(system: &System, view: &View, index: usize, node: &str) -> Result<String> {
    let Some((leg, record)) = view.legs.get(index).zip(view.record.legs.get(index)) else {
        return Ok(String::new());
    };
    let what = format!("taking {} out of mirror {}", record.name, view.record.name);
    let has_all = |leg: &view::Leg| leg.member == Some(MemberState::InSync);
    let Some(device) = leg
        .device
        .as_ref()
        .filter(|_| view.legs.iter().any(has_all))
    else {
        let why = "the leg could not store some blocks, and no other leg has all data";
        return Err(Error::new(Kind::Failed, what, why).hint(
            "bring legs back that are away, or replace them; then replace this leg by another \
             disk: rnbdctl mirror replace",
        ));
    };
    note_fill(&Records::of(system), view, &record.name)?;
    for action in ["--fail", "--remove"] {
        tool::run("mdadm", &[node, action, &device.path])?.ok(&what)?;
    }
    Ok(format!(
        "took {} out: its disk could not store some blocks",
        record.name
    ))
}

/// Adds a disk as a leg that md fills as a whole, and returns in words what was done.
pub(super) fn fill(node: &str, leg: &Leg, device: &ClientDevice) -> Result<String> {
    let mut args = vec![node, "--add-spare"];
    args.extend(leg.write_mostly.then_some("--write-mostly"));
    args.extend(leg.failfast.then_some("--failfast"));
    args.push(&device.path);
    tool::run("mdadm", &args)?.ok(&format!("adding {}", leg.name))?;
    Ok(format!("added {}: md copies all data to the leg", leg.name))
}

/// Notes in the record which legs of a running mirror are in sync. Returns the mirror, and whether
/// the record has changed; `None` if this machine has no record of the mirror.
///
/// No disk of the mirror is read, so a disk that hangs does not block this call.
pub fn note(system: &System, name: &MirrorName) -> Result<Option<(View, bool)>> {
    let records = Records::of(system);
    let Some(record) = records.load(name)? else {
        return Ok(None);
    };
    let mut view = View::load(system, record)?;
    let Some(in_sync) = view.members_in_sync() else {
        return Ok(Some((view, false)));
    };
    if !view.record.clone().note(&in_sync, 0) {
        return Ok(Some((view, false)));
    }
    // Another process may have changed the legs since the record was read.
    let mut is_news = false;
    let legs: Vec<_> = view
        .record
        .legs
        .iter()
        .map(|leg| leg.name.clone())
        .collect();
    let changed = records.change(name, |record| {
        is_news = record.legs.iter().map(|leg| &leg.name).eq(&legs) && record.note(&in_sync, now());
        is_news
    })?;
    match changed {
        Some(record) if is_news => view.record = record,
        Some(_) => (),
        None => return Ok(None),
    }
    Ok(Some((view, is_news)))
}
