// SPDX-License-Identifier: GPL-2.0

//! A mirror at one moment: this machine's record, the kernel's files, and the legs' superblocks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::array;
use super::array::Array;
use super::array::MemberState;
use super::record::Record;
use super::record::Records;
use super::start;
use super::superblock;
use super::superblock::Found;
use super::superblock::Role;
use super::tend::Content;
use super::tend::Facts;
use super::tend::LegState;
use super::LegName;
use crate::control::errno;
use crate::model::ClientDevice;
use crate::model::DeviceState;
use crate::Result;
use crate::System;

/// The time that a disk has for the read of its superblock.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The disks with a running read of the superblock. No second read of such a disk begins: each read
/// is a thread, and a disk that hangs would collect threads.
static BEING_READ: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A mirror at one moment.
///
/// # Invariants
///
/// `legs` has a leg for each leg of `record`, in the same order.
#[derive(Clone, Debug)]
pub struct View {
    /// The mirror's record.
    pub record: Record,
    /// The running array; `None` if the mirror does not run.
    pub array: Option<Array>,
    /// The legs.
    pub legs: Vec<Leg>,
    /// Whether this machine has the record. If not, the record was made for this moment, of legs
    /// that the user has named, and does not know which legs are in sync.
    pub is_known: bool,
}

/// A leg at one moment.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The leg's disk; `None` if it is not mapped.
    pub device: Option<ClientDevice>,
    /// The disk's state in the array; `None` if the disk is no member.
    pub member: Option<MemberState>,
    /// The content of the disk at the place of a superblock; `None` if it was not read.
    pub found: Option<Found>,
    /// The reason why the superblock could not be read; `None` if it was read, or if no read was
    /// tried.
    pub unread: Option<String>,
}

impl Leg {
    /// Returns the disk if it takes requests.
    pub fn open(&self) -> Option<&ClientDevice> {
        self.device
            .as_ref()
            .filter(|device| device.state == DeviceState::Open)
    }

    /// Returns the superblock if the disk takes requests and the superblock has this array's UUID.
    fn superblock(&self, uuid: &str) -> Option<&superblock::Superblock> {
        match (self.open(), &self.found) {
            (Some(_), Some(Found::Superblock(found))) if found.array == uuid => Some(found),
            _ => None,
        }
    }
}

/// Returns the disk of a leg; `None` if the disk is not mapped.
pub fn device(system: &System, leg: &LegName) -> Result<Option<ClientDevice>> {
    match system.client_device_name(&leg.session, &leg.disk)? {
        Some(name) => system.client_device(&name),
        None => Ok(None),
    }
}

/// Returns all mirrors that this machine has a record of, as the kernel's files show them. A mirror
/// whose record cannot be read is left out; `rnbdctl mirror status` gives the error.
pub fn all(system: &System) -> Result<Vec<View>> {
    let records = Records::of(system);
    let mut views = Vec::new();
    for name in records.names()? {
        if let Ok(Some(record)) = records.load(&name) {
            views.push(View::load(system, record)?);
        }
    }
    Ok(views)
}

/// The result of reading a superblock: its content, or the reason why it cannot be read.
type Read = std::result::Result<Found, String>;

/// Begins to read the superblock of a disk. The error says that an earlier read has not ended yet,
/// or that the thread could not be made.
fn read(node: PathBuf) -> std::result::Result<mpsc::Receiver<Read>, String> {
    let is_new = BEING_READ
        .lock()
        .is_ok_and(|mut disks| disks.insert(node.clone()));
    if !is_new {
        return Err("the disk has not responded to an earlier read yet".to_owned());
    }
    let end = |node: &PathBuf| {
        if let Ok(mut disks) = BEING_READ.lock() {
            disks.remove(node);
        }
    };
    let (sender, receiver) = mpsc::channel();
    let disk = node.clone();
    let work = move || {
        let found = superblock::read(&disk).map_err(|error| errno::text(&error));
        end(&disk);
        // Sending fails only if nothing waits for the result any more.
        let _ = sender.send(found);
    };
    if let Err(error) = thread::Builder::new().spawn(work) {
        end(&node);
        return Err(format!("making a thread: {}", errno::text(&error)));
    }
    Ok(receiver)
}

impl View {
    /// Returns the mirror of a record, as the kernel's files show it. No disk is read.
    pub fn load(system: &System, record: Record) -> Result<Self> {
        let array = array::find(system, &record.uuid)?;
        let mut legs = Vec::new();
        for leg in &record.legs {
            let device = device(system, &leg.name)?;
            let member = (array.as_ref().zip(device.as_ref()))
                .and_then(|(array, device)| array.member(&device.name));
            legs.push(Leg {
                device,
                member,
                found: None,
                unread: None,
            });
        }
        Ok(Self {
            record,
            array,
            legs,
            is_known: true,
        })
    }

    /// Returns the mirror as the kernel's files show it now. No disk is read.
    pub fn load_again(&self, system: &System) -> Result<Self> {
        Self::load(system, self.record.clone())
    }

    /// Reads the superblocks of all legs whose disks take requests. If all these legs are in the
    /// running array nothing is read, as no leg has to be compared with the array.
    ///
    /// A leg stays unread if it cannot be read, or does not respond within 10 s.
    pub fn read_legs(&mut self, system: &System) {
        let is_outside = |leg: &Leg| leg.open().is_some() && leg.member.is_none();
        if self.array.is_some() && !self.legs.iter().any(is_outside) {
            return;
        }
        let reads: Vec<_> = (self.legs.iter())
            .map(|leg| Some(read(system.device_node(&leg.open()?.name))))
            .collect();
        let end = Instant::now().checked_add(READ_LIMIT);
        for (leg, begun) in self.legs.iter_mut().zip(reads) {
            let rest = end.map_or(READ_LIMIT, |end| {
                end.saturating_duration_since(Instant::now())
            });
            let wait = |begun: mpsc::Receiver<Read>| {
                let late = |_| format!("no response within {} s", READ_LIMIT.as_secs());
                begun.recv_timeout(rest).map_err(late)?
            };
            (leg.found, leg.unread) = match begun.map(|begun| begun.and_then(wait)) {
                Some(Ok(found)) => (Some(found), None),
                Some(Err(why)) => (None, Some(why)),
                None => (None, None),
            };
        }
    }

    /// Returns whether the leg at this index has the superblock of this mirror.
    pub fn is_leg(&self, index: usize) -> bool {
        let leg = self.legs.get(index);
        leg.is_some_and(|leg| leg.superblock(&self.record.uuid).is_some())
    }

    /// Returns the disks in the array that are no legs and have this state.
    pub fn orphans(&self, state: MemberState) -> Vec<String> {
        let is_leg = |disk: &str| {
            let mut devices = self.legs.iter().filter_map(|leg| leg.device.as_ref());
            devices.any(|device| device.name == disk)
        };
        let members = self.array.iter().flat_map(|array| &array.members);
        members
            .filter(|member| member.state == state && !is_leg(&member.disk))
            .map(|member| member.disk.clone())
            .collect()
    }

    /// Returns the disk of the leg that is to be replaced and the disk of the new leg, if md has
    /// both disks and was not told yet to replace the one by the other.
    pub fn stalled_replacement(&self) -> Option<(&ClientDevice, &ClientDevice)> {
        let array = self.array.as_ref()?;
        let mut legs = self.legs.iter().zip(&self.record.legs);
        let old = legs.find(|(_, record)| record.leaving)?.0;
        let old = old.device.as_ref()?;
        let is_waiting = |member: &&array::Member| {
            member.disk == old.name && member.state.has_data() && !member.is_replaced
        };
        array.members.iter().find(is_waiting)?;
        let is_new = |leg: &&Leg| leg.member == Some(MemberState::Filling);
        let new = self.legs.iter().find(is_new)?.device.as_ref()?;
        (!array.is_copying()).then_some((old, new))
    }

    /// Returns the legs that were replaced: they are outside of the array, and the new leg has all
    /// data. The new leg is the last leg of the record. The legs are given by their names.
    pub fn replaced(&self) -> Vec<LegName> {
        let mut legs = self.legs.iter().zip(&self.record.legs);
        let new = self.legs.last().and_then(|leg| leg.member);
        let is_done = new == Some(MemberState::InSync)
            && !legs.any(|(leg, record)| record.leaving && leg.member.is_some());
        let leaving = self.record.legs.iter().filter(|leg| leg.leaving);
        match is_done {
            true => leaving.map(|leg| leg.name.clone()).collect(),
            false => Vec::new(),
        }
    }

    /// Returns the new leg of a replacement that goes on, if the array does not have that leg. It
    /// is the last leg of the record.
    pub fn lost_replacement(&self) -> Option<&Leg> {
        let is_running = self.record.legs.iter().any(|leg| leg.leaving);
        let new = self.legs.last().filter(|_| is_running)?;
        matches!(new.member, None | Some(MemberState::Faulty)).then_some(new)
    }

    /// Returns the state of each leg, in the order of the record.
    pub fn states(&self) -> Vec<LegState> {
        self.facts().iter().map(LegState::of).collect()
    }

    fn facts(&self) -> Vec<Facts> {
        let (places, events) = self.with_data();
        let facts = self
            .legs
            .iter()
            .zip(&self.record.legs)
            .map(|(leg, record)| Facts {
                member: leg.member,
                is_open: leg.open().is_some(),
                hangs: leg
                    .open()
                    .is_some_and(|device| device.io_unanswered.is_some_and(|nr| nr > 0)),
                fill: record.fill,
                leaving: record.leaving,
                content: match (&leg.found, events) {
                    (Some(found), Some(events)) => {
                        Content::of(found, &self.record.uuid, &places, events)
                    }
                    _ => Content::Unread,
                },
            });
        facts.collect()
    }

    /// Returns the places of the legs in the running array that have data, and the highest event
    /// count of their superblocks; `None` for the count if no superblock was read.
    fn with_data(&self) -> (Vec<u16>, Option<u64>) {
        let members = self
            .legs
            .iter()
            .filter(|leg| leg.member.is_some_and(MemberState::has_data));
        let found: Vec<_> = members
            .filter_map(|leg| leg.superblock(&self.record.uuid))
            .collect();
        let places = found.iter().filter_map(|found| match found.role {
            Role::Active(place) => Some(place),
            Role::Spare | Role::Faulty => None,
        });
        (
            places.collect(),
            found.iter().map(|found| found.events).max(),
        )
    }

    /// Returns for each leg whether it is in sync in the running array, in the order of the record;
    /// `None` if the mirror does not run. A leg that has lost its last path counts as in sync until
    /// md has noticed the loss.
    pub fn members_in_sync(&self) -> Option<Vec<bool>> {
        self.array.as_ref()?;
        let is_in_sync = |leg: &Leg| leg.member == Some(MemberState::InSync);
        Some(self.legs.iter().map(is_in_sync).collect())
    }

    /// Returns the legs for [`start::decide`]. `kept` says for each leg whether this machine has
    /// had the leg reserved without a break.
    pub fn for_start(&self, kept: &[bool]) -> Vec<start::Leg> {
        let legs = self.legs.iter().zip(&self.record.legs).enumerate();
        let leg = |(index, (leg, record)): (usize, (&Leg, &super::record::Leg))| start::Leg {
            superblock: leg.superblock(&self.record.uuid).cloned(),
            in_sync: self.is_known.then_some(record.in_sync),
            fill: record.fill,
            kept: kept.get(index).copied().unwrap_or_default(),
        };
        legs.map(leg).collect()
    }

    /// Whether all legs have all data, but for legs that are being replaced.
    fn all_in_sync(&self, states: &[LegState]) -> bool {
        let mut legs = states.iter().zip(&self.record.legs);
        legs.all(|(state, record)| record.leaving || *state == LegState::InSync)
    }

    /// Returns the state of the mirror. `states` has the states of its legs ([`Self::states`]).
    pub fn state(&self, states: &[LegState]) -> State {
        match &self.array {
            None => State::Stopped,
            Some(array) if array.is_broken() => State::Broken,
            Some(array) if array.is_copying() => State::Recovering,
            Some(_) if self.all_in_sync(states) => State::Whole,
            Some(_) if states.contains(&LegState::Filling) => State::Recovering,
            Some(_) => State::Degraded,
        }
    }
}

/// The state of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "MirrorState")]
pub enum State {
    /// All legs have all data, and are the same.
    Whole,
    /// A leg is being filled, or md makes the legs the same.
    Recovering,
    /// A leg is missing, or has bad blocks, and no leg is being filled.
    Degraded,
    /// The mirror has lost its last leg: writes fail until it is stopped and started.
    Broken,
    /// The mirror does not run.
    Stopped,
}

impl State {
    /// Returns the state as a word, which JSON has, too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Recovering => "recovering",
            Self::Degraded => "degraded",
            Self::Broken => "broken",
            Self::Stopped => "stopped",
        }
    }
}
