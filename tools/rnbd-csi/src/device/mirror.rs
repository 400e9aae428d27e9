// SPDX-License-Identifier: GPL-2.0

//! Mirrored volumes on this node: md's RAID1 over their legs, by the library of `rnbdctl`.
//!
//! The mirror of a volume has a name that is made of the volume's id. While the volume is on this
//! node, the library's record says which legs are in sync, and a note ([`super::note`]) says how
//! the servers are reached. When the volume is taken away, the record is parked
//! ([`super::parked`]), and the legs stay reserved: if no other node takes them over, this node can
//! start the mirror from one leg.

mod missing;

use std::fs;

use rnbdctl::identity;
use rnbdctl::mirror::act;
use rnbdctl::mirror::create;
use rnbdctl::mirror::create::Plan;
use rnbdctl::mirror::create::PlannedLeg;
use rnbdctl::mirror::grow;
use rnbdctl::mirror::record::Records;
use rnbdctl::mirror::reserve;
use rnbdctl::mirror::stop;
use rnbdctl::mirror::stop::StopOptions;
use rnbdctl::mirror::superblock::Found;
use rnbdctl::mirror::tend::LegState;
use rnbdctl::mirror::view::State;
use rnbdctl::mirror::LegName;
use rnbdctl::mirror::MirrorName;
use rnbdctl::mirror::Record;
use rnbdctl::mirror::View;
use rnbdctl::model::AccessMode as Access;
use rnbdctl::Kind;
use rnbdctl::System;

use super::disk::Disks;
use super::not_staged;
use super::note::Notes;
use super::parked::Parked;
use super::refused;
use super::Device;
use crate::capability;
use crate::fail;
use crate::filesystem;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::volume::id;
use crate::volume::Context;
use crate::volume::DiskId;
use crate::volume::MirrorId;
use crate::volume::VolumeId;

/// How long requests to a leg wait while no path is up: a mirror goes on with the other legs.
const HOLD_MS: i32 = 0;

/// The mirrored volumes of this node.
#[derive(Debug)]
pub(super) struct Mirrors {
    system: System,
}

impl Mirrors {
    /// Those of this machine.
    pub(super) fn new(system: System) -> Self {
        Self { system }
    }

    /// The device of a volume, if its mirror runs.
    pub(super) fn find(&self, id: &MirrorId) -> Result<Option<Device>> {
        let Some(view) = self.view(&name(id)?)? else {
            return Ok(None);
        };
        Ok(view.array.map(|array| Device {
            name: array.md,
            bytes: array.size,
            access: Some(Access::Rw),
        }))
    }

    /// The names of the devices of all mirrored volumes that run.
    pub(super) fn running(&self) -> Result<Vec<String>> {
        let mut views = rnbdctl::mirror::view::all(&self.system)?;
        views.retain(|view| id::is_volume(&view.record.name));
        let arrays = views.into_iter().filter_map(|view| view.array);
        Ok(arrays.map(|array| array.md).collect())
    }

    fn view(&self, name: &MirrorName) -> Result<Option<View>> {
        match self.record(name)? {
            Some(record) => Ok(Some(View::load(&self.system, record)?)),
            None => Ok(None),
        }
    }

    /// This machine's record of a mirror.
    fn record(&self, name: &MirrorName) -> Result<Option<Record>> {
        let record = Records::of(&self.system).load(name);
        record.map_err(refused::unreadable)
    }

    /// Maps the legs of a volume and starts its mirror, unless it runs. Returns the device.
    ///
    /// A leg whose server cannot be reached may be missing, if the other legs show that they have
    /// all data; [`Self::map_missing`] maps it later. After an error all legs are unmapped, also
    /// legs that an earlier call has mapped. If that fails, too, a line in the log says so.
    pub(super) fn bring(
        &self,
        id: &MirrorId,
        context: &Context,
        access: Access,
        disks: &Disks,
    ) -> Result<Device> {
        capability::check_mirrored(access).map_err(Status::invalid)?;
        let name = name(id)?;
        let found = self.find(id)?;
        let notes = Notes::of(&self.system);
        notes.save(&name, &VolumeId::Mirror(id.clone()), context)?;
        fail::point("mirror.noted");
        if let Some(device) = found {
            return Ok(device);
        }
        let brought = Parked::of(&self.system)
            .fetch(&name)
            .and_then(|()| map_legs(id, context, disks))
            .and_then(|missing| self.start(id, &name, context, disks, missing))
            .and_then(|()| self.find(id)?.ok_or_else(|| gone(id)));
        match &brought {
            // What fails here is done again, and told, by `map_missing`.
            Ok(_) => drop(self.take_over(&name)),
            Err(_) => {
                if let Err(more) = self.take_away(id, disks) {
                    eprintln!("rnbd-csi: a part of {id} stays: {}", more.message);
                }
            }
        }
        brought
    }

    /// Starts the mirror of a volume. `missing` has an error for each leg that could not be mapped;
    /// all other legs are mapped.
    fn start(
        &self,
        id: &MirrorId,
        name: &MirrorName,
        context: &Context,
        disks: &Disks,
        missing: Vec<Status>,
    ) -> Result {
        let started = self.start_here(id, name, context, disks);
        // The service of the machine may have been quicker.
        if self.find(id)?.is_some() {
            fail::point("mirror.started");
            return Ok(());
        }
        let Err(status) = started else {
            return Err(gone(id));
        };
        Err(match missing.into_iter().next() {
            None => status,
            Some(leg) => Status::new(leg.code, format!("{}; {}", status.message, leg.message)),
        })
    }

    fn start_here(
        &self,
        id: &MirrorId,
        name: &MirrorName,
        context: &Context,
        disks: &Disks,
    ) -> Result {
        let system = &self.system;
        let options = refused::start_options();
        if self.is_known(id, name)? {
            return Ok(act::start(system, name, &options).map(drop)?);
        }
        let legs: Vec<_> = id.legs().iter().map(|leg| planned(leg, disks)).collect();
        let mut known: Vec<_> = legs.iter().map(|leg| leg.record(false)).collect();
        let record = Record::new(name.clone(), String::new(), true, known.clone());
        let mut view = View::load(system, record)?;
        self.read_legs(&mut view)?;
        if !was_written(&view) {
            need_all(id, &view)?;
            return self.create(name, legs, &view, context.zeroes);
        }
        for (record, leg) in known.iter_mut().zip(&view.legs) {
            // An empty leg is filled: an earlier filling was cut off, or the disk was made anew at
            // the server. A disk with other data is none of this volume's, and stays as it is.
            record.fill = match (&leg.found, leg.open()) {
                (Some(Found::Nothing), Some(device)) => {
                    filesystem::content(&system.device_node(&device.name))?.is_none()
                }
                _ => false,
            };
        }
        Ok(act::adopt(system, name, known, true, &options).map(drop)?)
    }

    /// Reads the superblocks of the legs. The thread that tends mirrors reads superblocks, too, and
    /// a second read of a disk fails while the first read goes on. So this call takes the mirror's
    /// lock, as that thread does.
    fn read_legs(&self, view: &mut View) -> Result {
        let _lock = Records::of(&self.system).lock_mirror(&view.record.name)?;
        view.read_legs(&self.system);
        Ok(())
    }

    /// Whether this machine has a record of the mirror. Two kinds of records are removed:
    ///
    /// - of a mirror that was never written to, which is created anew: a driver may have been
    ///   killed when it created the mirror;
    /// - of an older mirror: the volume was deleted, and made again under the same name.
    fn is_known(&self, id: &MirrorId, name: &MirrorName) -> Result<bool> {
        let Some(mut view) = self.view(name)? else {
            return Ok(false);
        };
        if view.array.is_some() {
            return Ok(true);
        }
        self.read_legs(&mut view)?;
        if was_written(&view) {
            let found = view.legs.iter().map(|leg| leg.found.as_ref());
            if !is_of_older(&view.record.uuid, found) {
                return Ok(true);
            }
        } else {
            need_all(id, &view)?;
        }
        Records::of(&self.system).remove(name)?;
        Ok(false)
    }

    /// Creates the mirror of a volume whose legs are all here, and empty but for superblocks of a
    /// mirror that was never written to.
    fn create(
        &self,
        name: &MirrorName,
        legs: Vec<PlannedLeg>,
        view: &View,
        assume_clean: bool,
    ) -> Result {
        let system = &self.system;
        let key = identity::key(system);
        let disks: Vec<_> = view
            .legs
            .iter()
            .filter_map(|leg| Some((leg, leg.open()?)))
            .collect();
        for (leg, device) in &disks {
            if leg.found == Some(Found::Nothing) {
                filesystem::need_empty(&system.device_node(&device.name))?;
            }
        }
        let plan = Plan {
            name: name.clone(),
            legs,
            reserve: true,
            assume_clean,
            force: true,
        };
        let mut taken = disks
            .iter()
            .map(|(_, device)| reserve::take(&device.path, key, true));
        let created = taken
            .try_for_each(|taken| taken.map(drop))
            .and_then(|()| create::create(system, &plan).map(drop));
        if created.is_err() {
            for (_, device) in &disks {
                // The error that is told is the one that came first.
                let _ = reserve::release(&device.path, key);
            }
        }
        Ok(created?)
    }

    /// Stops the mirror of a volume and unmaps its legs. Steps that an earlier call has done are
    /// left out. The legs stay reserved; the next node takes them over.
    pub(super) fn take_away(&self, id: &MirrorId, disks: &Disks) -> Result {
        let name = name(id)?;
        let record = match self.record(&name) {
            // The record cannot be read, but no array has a leg: there is no mirror to be stopped.
            Err(_) if !self.holds_a_leg(id, disks)? => None,
            record => record?,
        };
        Notes::of(&self.system).remove(&name)?;
        if record.is_some() {
            // The service of the machine may start the mirror until it is told not to.
            stop::stop(&self.system, &name, StopOptions::default())?;
            fail::point("mirror.stopped");
        }
        for leg in id.legs() {
            disks.unmap(leg)?;
            fail::point("mirror.unmapped");
        }
        Parked::of(&self.system).park(&name)?;
        fail::point("mirror.parked");
        Ok(Records::of(&self.system).hold(&name, false)?)
    }

    /// Whether an array, or another device of this node, uses a leg of the volume.
    fn holds_a_leg(&self, id: &MirrorId, disks: &Disks) -> Result<bool> {
        for leg in id.legs() {
            let Some(device) = disks.find(leg)? else {
                continue;
            };
            let holders = self.system.sys("block").join(&device.name).join("holders");
            let mut found =
                fs::read_dir(&holders).map_err(|error| Status::io(holders.display(), error))?;
            if found.next().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The fault of a volume, in words; empty if the volume is well. `NOT_FOUND` if this node has
    /// no record of the volume.
    pub(super) fn condition(&self, id: &MirrorId, disks: &Disks) -> Result<String> {
        let view = self.view(&name(id)?)?.ok_or_else(|| not_staged(id))?;
        let states = view.states();
        let mut said = Vec::new();
        for (leg, state) in id.legs().iter().zip(of_legs(id, &view, &states, disks)) {
            let path = match disks.find(leg)? {
                Some(device) => disks.condition(&device)?,
                None => "it is not mapped".to_owned(),
            };
            match (state, path.is_empty()) {
                (Some(LegState::InSync), true) => (),
                (Some(state), true) => said.push(format!("leg {leg} is {}", state.as_str())),
                (Some(LegState::InSync), false) => said.push(format!("leg {leg}: {path}")),
                (Some(state), false) => {
                    said.push(format!("leg {leg} is {}: {path}", state.as_str()))
                }
                (None, _) => said.push(format!("{leg} is no leg of the mirror")),
            }
        }
        let state = view.state(&states);
        if said.is_empty() && state == State::Recovering {
            said.push("md makes the legs the same".to_owned());
        }
        Ok(match said.is_empty() {
            true => String::new(),
            false => format!("the mirror is {}: {}", state.as_str(), said.join("; ")),
        })
    }

    /// Has the mirror of a volume use all of its legs; returns its size.
    ///
    /// `UNAVAILABLE` if the mirror is not whole: the orchestrator makes the call again, which would
    /// not be so after `FAILED_PRECONDITION`.
    pub(super) fn grow(&self, id: &MirrorId) -> Result<u64> {
        let grown = grow::grow(&self.system, &name(id)?).map_err(later)?;
        fail::point("mirror.grown");
        Ok(grown)
    }

    /// Parks the records of volumes that are not on this node. The node has booted without having
    /// taken them away, and no orchestrator takes a volume from a node that has lost it. A call
    /// that was cut off has left a note or a mapped leg, and is made again.
    pub(super) fn park_lost(&self) -> Result {
        let notes = Notes::of(&self.system);
        let mut views = rnbdctl::mirror::view::all(&self.system)?;
        views.retain(|view| {
            let is_here = view.array.is_some() || view.legs.iter().any(|leg| leg.device.is_some());
            let name = &view.record.name;
            id::is_volume(name) && !is_here && !notes.has(name)
        });
        for view in views {
            Parked::of(&self.system).park(&view.record.name)?;
        }
        Ok(())
    }
}

/// Maps the legs of a volume. Returns an error for each leg that could not be mapped. If a server
/// refuses a leg, or if no leg could be mapped, this call fails.
fn map_legs(id: &MirrorId, context: &Context, disks: &Disks) -> Result<Vec<Status>> {
    let mut missing = Vec::new();
    for leg in id.legs() {
        match disks.map(leg, context, Access::Rw, HOLD_MS) {
            Ok(_) => (),
            Err(mut status) => {
                status.message = format!("leg {leg}: {}", status.message);
                // A leg that another node has must not be done without.
                if !matches!(status.code, Code::Unavailable | Code::NotFound) {
                    return Err(status);
                }
                missing.push(status);
            }
        }
        fail::point("mirror.mapped");
    }
    match missing.len() == id.legs().len() {
        true => Err(missing.swap_remove(0)),
        false => Ok(missing),
    }
}

/// The name of the mirror of a volume.
fn name(id: &MirrorId) -> Result<MirrorName> {
    id.mirror_name().map_err(Status::internal)
}

fn leg_name(leg: &DiskId, disks: &Disks) -> LegName {
    LegName {
        disk: leg.path().to_owned(),
        session: leg.session(disks.node_id()),
    }
}

fn planned(leg: &DiskId, disks: &Disks) -> PlannedLeg {
    PlannedLeg {
        name: leg_name(leg, disks),
        write_mostly: false,
        failfast: true,
    }
}

/// The state of each leg of a volume; `None` for a leg that the mirror's record does not have.
fn of_legs(
    id: &MirrorId,
    view: &View,
    states: &[LegState],
    disks: &Disks,
) -> Vec<Option<LegState>> {
    let state = |leg: &DiskId| {
        let wanted = leg_name(leg, disks);
        let mut legs = view.record.legs.iter().zip(states);
        legs.find(|(record, _)| record.name == wanted)
            .map(|(_, state)| *state)
    };
    id.legs().iter().map(state).collect()
}

/// Whether the legs that are here show that the mirror was written to.
fn was_written(view: &View) -> bool {
    let mut legs = view.legs.iter();
    legs.any(|leg| leg_was_written(leg.found.as_ref()))
}

/// Whether what is on a leg shows that its mirror was written to. mdadm creates a mirror with the
/// event count 0, and md raises the count before the first write, and never makes it 0 again.
fn leg_was_written(found: Option<&Found>) -> bool {
    match found {
        Some(Found::Superblock(superblock)) => superblock.events > 0,
        Some(Found::Damaged(_)) => true,
        Some(Found::Nothing) | None => false,
    }
}

/// Whether legs have superblocks of a mirror, but none has one of the mirror with that UUID.
fn is_of_older<'f>(uuid: &str, legs: impl Iterator<Item = Option<&'f Found>>) -> bool {
    let found = legs.filter_map(|found| match found {
        Some(Found::Superblock(superblock)) => Some(superblock.array.as_str()),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    !found.is_empty() && !found.contains(&uuid)
}

/// An error unless all legs are here and were read: only then it is certain that there is no
/// mirror yet.
fn need_all(id: &MirrorId, view: &View) -> Result {
    let mut legs = id.legs().iter().zip(&view.legs);
    match legs.find(|(_, leg)| leg.open().is_none() || leg.found.is_none()) {
        None => Ok(()),
        Some((leg, _)) => Err(Status::new(
            Code::Unavailable,
            format!("the mirror of a new volume is made when all legs are here; {leg} is not"),
        )),
    }
}

/// The failure of a growth that is possible later, when the mirror is whole.
fn later(error: rnbdctl::Error) -> Status {
    let is_later = error.kind() == Kind::Busy;
    let mut status = Status::from(error);
    if is_later {
        status.code = Code::Unavailable;
    }
    status
}

fn gone(id: &MirrorId) -> Status {
    Status::new(
        Code::Unavailable,
        format!("the mirror of {id} does not run"),
    )
}

#[cfg(test)]
mod tests {
    use rnbdctl::mirror::superblock::Role;
    use rnbdctl::mirror::superblock::Superblock;

    use super::*;

    #[test]
    fn a_leg_that_cannot_be_read_may_have_data() {
        assert!(!leg_was_written(None));
        assert!(!leg_was_written(Some(&Found::Nothing)));
        assert!(leg_was_written(Some(&Found::Damaged("x"))));
    }

    #[test]
    fn a_mirror_that_is_not_whole_grows_later() {
        let status = later(rnbdctl::Error::new(Kind::Busy, "growing", "not in sync"));
        assert_eq!(status.code, Code::Unavailable);
        let status = later(rnbdctl::Error::new(Kind::NotFound, "growing", "no record"));
        assert_eq!(status.code, Code::NotFound);
    }

    #[test]
    fn a_volume_is_taken_away_also_if_its_record_cannot_be_read() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let id = VolumeId::parse("a+b:x").unwrap();
        let VolumeId::Mirror(id) = id else {
            panic!("{id}");
        };
        let mut record = Record::new(name(&id).unwrap(), "ab".repeat(16), true, Vec::new());
        record.version = 99;
        let records = Records::of(&system);
        records.save(&record).unwrap();
        let mirrors = Mirrors::new(system.clone());
        let error = mirrors.find(&id).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        let disks = Disks::new(system, "node1");
        mirrors.take_away(&id, &disks).unwrap();
        assert!(records.names().unwrap().is_empty());
    }

    fn superblock(uuid: &str) -> Found {
        Found::Superblock(Superblock {
            array: uuid.to_owned(),
            name: String::new(),
            leg: String::new(),
            legs: 2,
            events: 1,
            is_clean: true,
            number: 0,
            role: Role::Active(0),
            is_partial: false,
            replaces: false,
            write_mostly: false,
            failfast: true,
            active: [0, 1].into(),
            places: vec![Some(0), Some(1)],
        })
    }

    #[test]
    fn a_record_is_given_up_only_if_no_leg_goes_by_it() {
        let (old, new) = (superblock("old"), superblock("new"));
        let is_of_older = |legs: &[Option<&Found>]| is_of_older("old", legs.iter().copied());
        assert!(is_of_older(&[Some(&new), Some(&new)]));
        assert!(is_of_older(&[Some(&new), None]));
        assert!(!is_of_older(&[Some(&new), Some(&old)]));
        assert!(!is_of_older(&[Some(&Found::Damaged("x")), None]));
        assert!(!is_of_older(&[
            Some(&Found::Nothing),
            Some(&Found::Nothing)
        ]));
    }

    #[test]
    fn records_of_volumes_that_are_not_here_are_parked() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let records = Records::of(&system);
        let id = |disk: &str| match VolumeId::parse(&format!("a+b:{disk}")).unwrap() {
            VolumeId::Mirror(mirror) => mirror,
            VolumeId::Disk(disk) => panic!("{disk}"),
        };
        let names = ["lost", "noted"].map(|disk| name(&id(disk)).unwrap());
        let other = MirrorName::new("db").unwrap();
        for name in names.iter().chain([&other]) {
            let record = Record::new(name.clone(), "ab".repeat(16), true, Vec::new());
            records.save(&record).unwrap();
        }
        let noted = VolumeId::Mirror(id("noted"));
        let notes = Notes::of(&system);
        notes.save(&names[1], &noted, &Context::default()).unwrap();
        let mirrors = Mirrors::new(system.clone());
        mirrors.park_lost().unwrap();
        let mut left = vec![names[1].clone(), other];
        left.sort();
        assert_eq!(records.names().unwrap(), left);
        Parked::of(&system).fetch(&names[0]).unwrap();
        assert!(records.load(&names[0]).unwrap().is_some());
    }
}
