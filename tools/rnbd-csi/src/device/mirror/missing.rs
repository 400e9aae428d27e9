// SPDX-License-Identifier: GPL-2.0

//! Legs of volumes on this node that are missing, or are outside of the mirror: they are mapped and
//! reserved, so that they can be added.

use std::collections::BTreeSet;

use rnbdctl::identity;
use rnbdctl::mirror::array::MemberState;
use rnbdctl::mirror::reserve;
use rnbdctl::mirror::reserve::Taken;
use rnbdctl::mirror::view::Leg;
use rnbdctl::mirror::MirrorName;
use rnbdctl::model::AccessMode as Access;

use super::Mirrors;
use super::HOLD_MS;
use crate::device::disk::Disks;
use crate::device::note::Notes;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::volume::Context;
use crate::volume::MirrorId;
use crate::volume::VolumeId;

/// A round over all volumes.
struct Round<'a> {
    mirrors: &'a Mirrors,
    disks: &'a Disks,
    notes: Notes,
    /// The servers that did not respond: such a server takes its time, and is asked for one leg in
    /// each round.
    away: BTreeSet<String>,
    /// A line for each leg that was mapped, and for each failure.
    lines: Vec<String>,
}

impl Mirrors {
    /// Maps the legs of volumes on this node that are not mapped, as their servers were away when
    /// the volume was brought here, and reserves legs that are outside of their mirror. Returns a
    /// line for each leg that was mapped, and for each failure. The next round tries again.
    pub(in crate::device) fn map_missing(&self, disks: &Disks) -> Result<Vec<String>> {
        let mut round = Round {
            mirrors: self,
            disks,
            notes: Notes::of(&self.system),
            away: BTreeSet::new(),
            lines: Vec::new(),
        };
        for (name, id, context) in round.notes.all()? {
            let VolumeId::Mirror(mirror) = &id else {
                continue;
            };
            if let Err(status) = round.map_legs(&name, mirror, &context) {
                let line = format!("mapping the legs of {id}: {}", status.message);
                round.lines.push(line);
            }
        }
        Ok(round.lines)
    }

    /// Reserves the legs of a running mirror that are mapped, and outside of the array, also if
    /// another node has reserved them: a leg that is added to the mirror must be free. Returns a
    /// line for each leg that could not be reserved.
    ///
    /// Nothing is reserved unless this node still has the reservation of a leg with data. If it has
    /// not, another node has taken the mirror over, and the legs outside are that node's.
    pub(super) fn take_over(&self, name: &MirrorName) -> Result<Vec<String>> {
        let Some(view) = self.view(name)?.filter(|view| view.array.is_some()) else {
            return Ok(Vec::new());
        };
        let key = identity::key(&self.system);
        let is_ours = view
            .legs
            .iter()
            .filter(|leg| leg.member.is_some_and(MemberState::has_data))
            .filter_map(Leg::open)
            .any(|device| reserve::take(&device.path, key, false) == Ok(Taken::Kept));
        if !is_ours {
            return Ok(Vec::new());
        }
        let outside = view.legs.iter().filter(|leg| leg.member.is_none());
        let taken = outside.filter_map(Leg::open).filter_map(|device| {
            let error = reserve::take(&device.path, key, true).err()?;
            let why = Status::from(error).message;
            Some(format!("a leg of mirror {name} is not reserved: {why}"))
        });
        Ok(taken.collect())
    }
}

impl Round<'_> {
    fn map_legs(&mut self, name: &MirrorName, id: &MirrorId, context: &Context) -> Result {
        // While its legs are being mapped for the first time the mirror does not run.
        if self.mirrors.find(id)?.is_none() {
            return Ok(());
        }
        for leg in id.legs() {
            if self.away.contains(&leg.server()) || self.disks.find(leg)?.is_some() {
                continue;
            }
            if let Err(status) = self.disks.map(leg, context, Access::Rw, HOLD_MS) {
                let line = format!("leg {leg} is not mapped: {}", status.message);
                self.lines.push(line);
                self.away.insert(leg.server());
                continue;
            }
            // Meanwhile the volume may have been taken away.
            if !self.notes.has(name) {
                return self.disks.unmap(leg).map_err(|status| {
                    let why = format!("{leg} stays mapped: {}", status.message);
                    Status::new(status.code, format!("{why}; unstage the volume again"))
                });
            }
            self.lines.push(format!("mapped leg {leg}"));
        }
        self.lines.extend(self.mirrors.take_over(name)?);
        Ok(())
    }
}
