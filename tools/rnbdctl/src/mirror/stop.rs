// SPDX-License-Identifier: GPL-2.0

//! Stops and removes mirrors.
//!
//! `stop` and `remove` wait until no other process works on the mirror. They may hang while a disk
//! of the mirror hangs. So a process that works on several mirrors has a thread for each mirror.

use super::array;
use super::record::now;
use super::record::Leg;
use super::record::Records;
use super::record::Stopped;
use super::reserve;
use super::superblock::Found;
use super::tool;
use super::LegName;
use super::MirrorName;
use super::View;
use crate::identity;
use crate::Kind;
use crate::Result;
use crate::System;

/// How to stop a mirror.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopOptions {
    /// Give the reservations up, so that another machine can start the mirror. This machine then
    /// does not start the mirror when it boots.
    pub release: bool,
    /// The service may start the mirror again, as the machine only stops its services. Otherwise
    /// the mirror stays stopped until an administrator starts it, or the machine boots again.
    pub for_shutdown: bool,
}

/// A leg that was left as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The leg.
    pub leg: LegName,
    /// The reason, in words.
    pub why: String,
}

impl Left {
    fn new(leg: &Leg, why: impl Into<String>) -> Self {
        Self {
            leg: leg.name.clone(),
            why: why.into(),
        }
    }
}

/// The reason why a leg was left whose disk takes no requests.
const AWAY: &str = "could not reach its disk";

/// Stops a mirror. The result is the legs that keep their reservations though they were to be given
/// up.
pub fn stop(system: &System, name: &MirrorName, options: StopOptions) -> Result<Vec<Left>> {
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let view = View::load(system, records.need(name)?)?;
    let uuid = view.record.uuid.clone();
    if !options.for_shutdown {
        // From here on the service does not start the mirror again.
        records.hold(name, true)?;
    }
    let result = stopped_now(system, &records, view, options.release);
    // A mirror that still runs is not held: the service starts it again if it is lost.
    let runs = || array::find(system, &uuid).is_ok_and(|array| array.is_some());
    if result.is_err() && !options.for_shutdown && runs() {
        records.hold(name, false)?;
    }
    result
}

/// Stops the mirror, whose lock the caller has.
fn stopped_now(
    system: &System,
    records: &Records,
    mut view: View,
    release: bool,
) -> Result<Vec<Left>> {
    let name = view.record.name.clone();
    let name = &name;
    let what = format!("stopping mirror {name}");
    if let Some(array) = view.array.take() {
        if let Some(in_sync) = View::load(system, view.record.clone())?.members_in_sync() {
            records.change(name, |record| record.note(&in_sync, now()))?;
        }
        let node = format!("/dev/{}", array.md);
        tool::run("mdadm", &["--stop", &node])?
            .ok(&what)
            .map_err(|error| {
                error.hint(
                    "unmount the mirror, and stop programs that have it open: lsblk, fuser -v",
                )
            })?;
        view = View::load(system, records.need(name)?)?;
        view.read_legs(system);
        // After a release another machine may change the legs, so the event count proves nothing.
        let stopped = stopped(&view).filter(|_| !release && !array.is_broken());
        records.change(name, |record| {
            record.stopped = stopped;
            true
        })?;
    }
    if !release {
        return Ok(Vec::new());
    }
    records.change(name, |record| {
        (record.released, record.stopped) = (true, None);
        true
    })?;
    Ok(match view.record.reserve {
        true => release_all(system, &view),
        false => Vec::new(),
    })
}

/// Gives up the reservations of all legs, and returns the legs that keep them.
fn release_all(system: &System, view: &View) -> Vec<Left> {
    let key = identity::key(system);
    let mut left = Vec::new();
    for (leg, record) in view.legs.iter().zip(&view.record.legs) {
        match leg.open().map(|disk| reserve::release(&disk.path, key)) {
            Some(Ok(())) => (),
            Some(Err(error)) => left.push(Left::new(record, error.why())),
            None => left.push(Left::new(record, AWAY)),
        }
    }
    left
}

/// Returns the event count of the legs in sync after a stop. `None` if one of the legs cannot be
/// read, if their counts differ, or if no leg is in sync.
fn stopped(view: &View) -> Option<Stopped> {
    let in_sync = view
        .legs
        .iter()
        .zip(&view.record.legs)
        .filter(|(_, record)| record.in_sync);
    let events: Option<Vec<u64>> = in_sync
        .map(|(leg, _)| match &leg.found {
            Some(Found::Superblock(found)) => Some(found.events),
            _ => None,
        })
        .collect();
    let events = events?;
    let first = *events.first()?;
    (events.iter().all(|&other| other == first)).then_some(Stopped { events: first })
}

/// Removes a mirror: stops it, takes the superblocks and reservations off the legs whose disks can
/// be read, and removes the record. Returns the other legs, which keep superblock and reservation.
/// A leg that another machine has reserved is such a leg: that machine may be using the mirror.
pub fn remove(system: &System, name: &MirrorName) -> Result<Vec<Left>> {
    stop(system, name, StopOptions::default())?;
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let mut view = View::load(system, records.need(name)?)?;
    view.read_legs(system);
    let key = identity::key(system);
    let mut left = Vec::new();
    for (leg, record) in view.legs.iter().zip(&view.record.legs) {
        let (Some(device), Some(found)) = (leg.open(), &leg.found) else {
            let why = match &leg.unread {
                Some(why) => format!("could not read its superblock ({why})"),
                None => AWAY.to_owned(),
            };
            let kept = match view.record.reserve {
                true => "md's superblock and the reservation",
                false => "md's superblock",
            };
            left.push(Left::new(record, format!("{why}; the disk keeps {kept}")));
            continue;
        };
        if view.record.reserve {
            match reserve::take(&device.path, key, false) {
                Ok(_) => (),
                Err(error) if error.kind() == Kind::Busy => {
                    left.push(Left::new(record, "another machine has reserved it"));
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        if matches!(found, Found::Superblock(found) if found.array == view.record.uuid) {
            tool::run("mdadm", &["--zero-superblock", &device.path])?
                .ok(&format!("taking the superblock off {}", record.name))?;
        }
        if view.record.reserve {
            reserve::release(&device.path, key)?;
        }
    }
    records.remove(name)?;
    records.hold(name, false)?;
    Ok(left)
}
