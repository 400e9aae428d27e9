// SPDX-License-Identifier: GPL-2.0

//! Grows a running mirror to the size of its legs.

use super::array;
use super::array::MemberState;
use super::record::Records;
use super::tool;
use super::MirrorName;
use super::View;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// Has a running mirror use all of its legs, whose disks have grown before. Returns the mirror's
/// size in bytes. md makes the new part of the legs the same.
///
/// All legs have to be in sync: md would refuse a leg that comes back with its old size. The error
/// is [`Kind::NotFound`] without a record, and [`Kind::Busy`] if the mirror does not run, a leg is
/// not in sync, or md copies data.
///
/// Waits until no other process works on the mirror, and may hang while a disk hangs.
pub fn grow(system: &System, name: &MirrorName) -> Result<u64> {
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let view = View::load(system, records.need(name)?)?;
    let what = format!("growing mirror {name}");
    let refused = |why: String| Err(Error::new(Kind::Busy, what.as_str(), why));
    let Some(array) = &view.array else {
        return refused("it does not run".to_owned());
    };
    if let Some(leg) = lacking(&view) {
        return refused(format!(
            "{leg} is not in sync; a mirror grows only when all legs are in sync"
        ));
    }
    if array.is_copying() {
        return refused("md makes the legs the same; wait until that is done".to_owned());
    }
    let node = format!("/dev/{}", array.md);
    tool::run("mdadm", &["--grow", &node, "--size=max"])?.ok(&what)?;
    let grown = array::find(system, &view.record.uuid)?;
    grown
        .and_then(|array| array.size)
        .ok_or_else(|| Error::new(Kind::Failed, what, "it does not run any more"))
}

/// Returns a leg that is not in sync, or whose disk takes no requests, by its name.
fn lacking(view: &View) -> Option<String> {
    let legs = view.legs.iter().zip(&view.record.legs);
    let mut lacking =
        legs.filter(|(leg, _)| leg.member != Some(MemberState::InSync) || leg.open().is_none());
    lacking.next().map(|(_, record)| record.name.to_string())
}
