// SPDX-License-Identifier: GPL-2.0

//! Starts mirrors.
//!
//! `start` and `adopt` wait until no other process works on the mirror. They may hang while a disk
//! of the mirror hangs. So a process that works on several mirrors has a thread for each mirror.

use super::array;
use super::names::HOME_HOST;
use super::record::now;
use super::record::Leg;
use super::record::Record;
use super::record::Records;
use super::reserve;
use super::reserve::Taken;
use super::start;
use super::start::Decision;
use super::start::Reason;
use super::superblock::Found;
use super::tool;
use super::LegName;
use super::MirrorName;
use super::View;
use crate::control;
use crate::identity;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// How to start a mirror.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// Start also if legs that are not here may have newer data, which is lost.
    pub force_stale: bool,
    /// Start also if another machine has reserved the legs.
    pub take_over: bool,
    /// Start from this leg only. With `force_stale` all other legs are filled as a whole.
    pub only: Option<LegName>,
    /// What the error of a refused start says to do, by the reason. `None`: the commands of
    /// `rnbdctl`, by which an administrator decides.
    pub advice: Option<fn(&Reason) -> &'static str>,
}

/// Starts a mirror that this machine has a record of, and returns its device node.
///
/// The error is [`Kind::NotFound`] if this machine has no record of the mirror, or if
/// `options.only` is no leg. The error is [`Kind::Busy`] if the mirror runs, if the start is
/// refused, or if another machine has reserved a leg. The error is [`Kind::BadConfig`] if the
/// record cannot be read.
pub fn start(system: &System, name: &MirrorName, options: &StartOptions) -> Result<String> {
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let view = View::load(system, records.need(name)?)?;
    let node = started(system, view, options)?;
    records.hold(name, false)?;
    Ok(node)
}

/// Starts a mirror of these legs, makes a record of it, and returns its device node.
///
/// The error is also [`Kind::Busy`] if this machine has a record of the mirror, [`Kind::NotFound`]
/// if no leg is here, and [`Kind::Usage`] if a leg is given twice, if a disk is a leg of another
/// mirror, or if the number of legs is not the number in the superblocks.
pub fn adopt(
    system: &System,
    name: &MirrorName,
    legs: Vec<Leg>,
    reserve: bool,
    options: &StartOptions,
) -> Result<String> {
    let records = Records::of(system);
    let _lock = records.lock_mirror(name)?;
    let what = format!("starting mirror {name}");
    if records.load(name)?.is_some() {
        let why = "this machine already has a record of this mirror, which names the legs";
        return Err(Error::new(Kind::Busy, what, why).hint("leave the legs out"));
    }
    for (index, leg) in legs.iter().enumerate() {
        if legs
            .iter()
            .skip(index)
            .skip(1)
            .any(|other| other.name == leg.name)
        {
            return Err(Error::new(
                Kind::Usage,
                what,
                format!("{} is given twice", leg.name),
            ));
        }
    }
    let mut view = View::load(
        system,
        Record::new(name.clone(), String::new(), reserve, legs),
    )?;
    view.is_known = false;
    view.read_legs(system);
    view.record.uuid = common_uuid(&view, &what)?;
    as_on_the_legs(&mut view, &what)?;
    view.array = array::find(system, &view.record.uuid)?;
    let node = started(system, view, options)?;
    records.hold(name, false)?;
    Ok(node)
}

/// Returns the UUID that the superblocks of all legs have. The error is [`Kind::NotFound`] if no
/// superblock could be read, and [`Kind::Usage`] if a leg is of another mirror.
fn common_uuid(view: &View, what: &str) -> Result<String> {
    let name = &view.record.name;
    let wanted = format!("{HOME_HOST}:{name}");
    let legs = view.legs.iter().zip(&view.record.legs);
    let found = legs.filter_map(|(leg, record)| match &leg.found {
        Some(Found::Superblock(found)) => Some((&record.name, found)),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    let Some((first, superblock)) = found.first() else {
        let why = format!(
            "no given disk is mapped, open, and has a superblock of a mirror that rnbdctl could \
             read{}",
            unread(view)
        );
        return Err(Error::new(Kind::NotFound, what, why).hint("see the disks with: rnbdctl list"));
    };
    let strange = found.iter().find_map(|(leg, other)| {
        if other.name != wanted {
            let array = &other.name;
            return Some(format!(
                "{leg} is a leg of array {array}, not of mirror {name}"
            ));
        }
        (other.array != superblock.array).then(|| {
            format!(
                "{leg} and {first} are legs of two different mirrors that are both called {name}"
            )
        })
    });
    match strange {
        Some(why) => Err(Error::new(Kind::Usage, what, why)),
        None => Ok(superblock.array.clone()),
    }
}

/// Checks that no leg is missing from the record of a view, and takes the legs' options from their
/// superblocks.
fn as_on_the_legs(view: &mut View, what: &str) -> Result {
    let given = view.record.legs.len();
    for (leg, record) in view.legs.iter().zip(&mut view.record.legs) {
        let Some(Found::Superblock(found)) = &leg.found else {
            continue;
        };
        if usize::try_from(found.legs) != Ok(given) {
            let why = format!(
                "the mirror has {} legs, and {given} legs are given",
                found.legs
            );
            return Err(Error::new(Kind::Usage, what, why).hint(
                "give all legs, on the command line or in rnbd.toml, also legs that are not \
                 mapped; a lost leg can be replaced later",
            ));
        }
        (record.write_mostly, record.failfast) = (found.write_mostly, found.failfast);
    }
    Ok(())
}

/// Starts the mirror, whose lock the caller has.
pub(super) fn started(system: &System, mut view: View, options: &StartOptions) -> Result<String> {
    let name = view.record.name.clone();
    let what = format!("starting mirror {name}");
    if view.array.is_some() {
        return Err(Error::new(Kind::Busy, what, "it runs already"));
    }
    if let Some(only) = &options.only {
        if !view.record.legs.iter().any(|leg| leg.name == *only) {
            return Err(Error::new(
                Kind::NotFound,
                what,
                format!("{only} is no leg of this mirror"),
            ));
        }
        for (leg, record) in view.legs.iter_mut().zip(&view.record.legs) {
            leg.device = leg.device.take().filter(|_| record.name == *only);
        }
    }
    // A start that is refused in any case reserves nothing at a server. `assemble` decides again
    // about a start that is allowed here: a leg may change as long as it is not reserved.
    view.read_legs(system);
    let legs = view.for_start(&vec![true; view.legs.len()]);
    let stopped = view.record.stopped.map(|stopped| stopped.events);
    match start::decide(&legs, stopped) {
        Decision::Refuse(reason) if !options.force_stale => {
            return Err(refused(&view, &reason, &what, options));
        }
        Decision::Refuse(_) | Decision::Start(_) => (),
    }
    let key = identity::key(system);
    let (taken, failed) = take_all(system, &mut view, key, options)?;
    let result = assemble(system, &mut view, &taken, options, &what);
    if result.is_err() {
        // New reservations are given up: another machine may have a right to the legs.
        for (leg, taken) in view.legs.iter().zip(&taken) {
            if let (Some(device), Some(Taken::New)) = (leg.open(), taken) {
                let _ = reserve::release(&device.path, key);
            }
        }
    }
    // A leg that could not be reserved is the cause of a start that is refused without it.
    match (result, failed.into_iter().next()) {
        (Err(error), Some(cause)) if error.kind() == Kind::Busy => return Err(cause),
        (result, _) => result?,
    }
    allow_writes(system, &view.record.uuid, &what)?;
    Ok(name.node())
}

/// Lets md write to the array. md may have started it as `auto-read-only`: then md neither makes
/// legs the same that differ after a crash nor fills a leg, until a program writes.
pub(super) fn allow_writes(system: &System, uuid: &str, what: &str) -> Result {
    let array = array::find(system, uuid)?;
    match array.filter(array::Array::is_read_auto) {
        Some(array) => {
            let node = format!("/dev/{}", array.md);
            let ran = tool::run("mdadm", &["--readwrite", &node])?;
            ran.ok(what).map(drop)
        }
        None => Ok(()),
    }
}

/// Reserves the legs that are here. The result has a value for each leg, `None` for a leg that was
/// not reserved, and the errors of legs that could not be reserved. Such a leg counts as not here,
/// so it does not keep the mirror from starting from other legs.
///
/// The error is [`Kind::Busy`] if another machine has reserved a leg. The new reservations are then
/// given up.
fn take_all(
    system: &System,
    view: &mut View,
    key: u64,
    options: &StartOptions,
) -> Result<(Vec<Option<Taken>>, Vec<Error>)> {
    let mut all: Vec<Option<Taken>> = Vec::new();
    let mut failed = Vec::new();
    for index in 0..view.legs.len() {
        match take_one(system, view, index, key, options.take_over) {
            Ok(taken) => all.push(taken),
            Err(error) if error.kind() == Kind::Busy => {
                for (leg, taken) in view.legs.iter().zip(&all) {
                    if let (Some(device), Some(Taken::New)) = (leg.open(), taken) {
                        let _ = reserve::release(&device.path, key);
                    }
                }
                return Err(match reserve::is_conflict(&error) {
                    true => error.hint(to_get_the_legs(view, options)),
                    false => error,
                });
            }
            Err(error) => {
                failed.push(error);
                all.push(None);
                if let Some(leg) = view.legs.get_mut(index) {
                    leg.device = None;
                }
            }
        }
    }
    Ok((all, failed))
}

/// Reserves the leg at `index`. `None` if the leg is not here, or is not to be reserved.
fn take_one(
    system: &System,
    view: &View,
    index: usize,
    key: u64,
    take_over: bool,
) -> Result<Option<Taken>> {
    let Some((leg, record)) = view.legs.get(index).zip(view.record.legs.get(index)) else {
        return Ok(None);
    };
    let Some(device) = leg.open().filter(|_| view.is_leg(index)) else {
        return Ok(None);
    };
    prepare(system, device)?;
    if !view.record.reserve {
        return Ok(None);
    }
    match reserve::take(&device.path, key, take_over) {
        Ok(taken) => Ok(Some(taken)),
        Err(error) => Err(error.of(format!(
            "starting mirror {}: reserving {}",
            view.record.name, record.name
        ))),
    }
}

/// Returns what to do if another machine has reserved a leg of a mirror that is to be started.
fn to_get_the_legs(view: &View, options: &StartOptions) -> String {
    let name = &view.record.name;
    format!(
        "stop mirror {name} on the other machine: rnbdctl mirror stop {name} --release; or take \
         its legs over: {}, and the other machine can then no longer write to the legs",
        again(view, options, "--take-over")
    )
}

/// Decides from which legs the mirror starts, notes that in the record, and has md start the
/// mirror. `taken` is the result of `take_all`.
fn assemble(
    system: &System,
    view: &mut View,
    taken: &[Option<Taken>],
    options: &StartOptions,
    what: &str,
) -> Result {
    view.read_legs(system);
    let kept: Vec<_> = taken
        .iter()
        .map(|taken| *taken == Some(Taken::Kept))
        .collect();
    let legs = view.for_start(&kept);
    let stopped = view.record.stopped.map(|stopped| stopped.events);
    let decision = start::decide(&legs, stopped);
    // If the administrator names the leg that counts, the other legs' data is given up, also if
    // this leg could start the mirror by itself.
    let is_forced =
        options.force_stale && (options.only.is_some() || matches!(decision, Decision::Refuse(_)));
    let decision = match is_forced {
        true => start::forced(&legs),
        false => decision,
    };
    let chosen = match decision {
        Decision::Start(chosen) if options.take_over => start::after_take_over(&legs, chosen),
        Decision::Start(chosen) => chosen,
        Decision::Refuse(reason) => return Err(refused(view, &reason, what, options)),
    };
    let nodes: Vec<_> = (chosen.iter())
        .filter_map(|&index| Some(view.legs.get(index)?.open()?.path.clone()))
        .collect();
    let before = view.record.clone();
    let is_whole = |leg: &start::Leg| leg.in_sync != Some(true) || leg.superblock.is_some();
    begin(
        &mut view.record,
        &chosen,
        is_forced,
        legs.iter().all(is_whole),
    );
    let records = Records::of(system);
    records.save(&view.record)?;
    let uuid = format!("--uuid={}", view.record.uuid);
    let home = format!("--homehost={HOME_HOST}");
    let node = view.record.name.node();
    let mut args = vec!["--assemble", &node, "--config=none", &home, &uuid, "--run"];
    args.extend(nodes.iter().map(String::as_str));
    load_module();
    let result = tool::run("mdadm", &args).and_then(|ran| ran.ok(what));
    if result.is_err() {
        // The record is as before again, with its note of a stop in order.
        match view.is_known {
            true => records.save(&before)?,
            false => records.remove(&view.record.name)?,
        }
    }
    result.map(drop)
}

/// Notes in the record that the mirror runs from the legs `chosen`. After a forced start all other
/// legs are filled as a whole when they are back: the data that only they have is given up.
///
/// If a leg that was in sync is missing, the note of a stop in order stays. md writes nothing to
/// the legs before a program does, so after a crash the mirror can start in the same way again. The
/// event count of the note then says whether a program has written.
fn begin(record: &mut Record, chosen: &[usize], is_forced: bool, is_whole: bool) {
    if is_forced || is_whole {
        record.stopped = None;
    }
    record.released = false;
    let now = now();
    for (index, leg) in record.legs.iter_mut().enumerate() {
        let in_sync = chosen.contains(&index);
        if leg.in_sync != in_sync {
            (leg.in_sync, leg.since) = (in_sync, now);
        }
        leg.fill |= is_forced && !in_sync;
    }
}

/// Loads md's module for mirrors. If that fails, the error of mdadm says so.
pub(super) fn load_module() {
    let _ = tool::run("modprobe", &["-q", "raid1"]);
}

/// Returns the error of a start with these options that was refused.
fn refused(view: &View, reason: &Reason, what: &str, options: &StartOptions) -> Error {
    let why = refusal(view, reason);
    let why = match &options.only {
        Some(leg) => format!("only {leg} was considered (--from): {why}"),
        None => why,
    };
    let hint = match options.advice {
        Some(advice) => advice(reason).to_owned(),
        None => remedy(view, reason, options),
    };
    Error::new(Kind::Busy, what, why).hint(hint)
}

/// Returns in words the reason why a start was refused, with the legs that could not be read.
pub fn refusal(view: &View, reason: &Reason) -> String {
    let names = |legs: &[usize]| {
        let names = legs.iter().filter_map(|&leg| view.record.legs.get(leg));
        names
            .map(|leg| leg.name.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let why = match reason {
        Reason::NoLeg => "no leg is mapped, open, and has the mirror's superblock".to_owned(),
        Reason::NoFullLeg => "none of the legs that are here has all data".to_owned(),
        Reason::MayBeNewer { known, missing } if known.is_empty() => format!(
            "legs are missing ({missing}), and may have newer data than the legs that are here"
        ),
        Reason::MayBeNewer { known, .. } => format!(
            "these legs are missing, and were in sync when this machine last used the mirror: {}; \
             these legs may have newer data than the legs that are here",
            names(known)
        ),
        Reason::Split(a, b) => format!(
            "each of {} got writes without the other leg",
            names(&[*a, *b])
        ),
    };
    format!("{why}{}", unread(view))
}

/// Returns what an administrator can do by the commands of `rnbdctl` if a start with these options
/// was refused.
fn remedy(view: &View, reason: &Reason, options: &StartOptions) -> String {
    let said = match (reason, &options.only) {
        (Reason::MayBeNewer { .. }, Some(_)) => {
            "leave --from out; or add --force-stale, which gives up the data that only the other \
             legs have"
        }
        (_, Some(_)) => "leave --from out; see the legs with: rnbdctl mirror status",
        (Reason::NoLeg, None) => "map them: rnbdctl apply; see them with: rnbdctl mirror status",
        (Reason::NoFullLeg, None) => {
            "bring back a leg that has all data; see the legs with: rnbdctl mirror status"
        }
        (Reason::MayBeNewer { .. }, None) => {
            return format!(
                "bring the missing legs back; or give up the data that only they have: {}",
                again(view, options, "--force-stale")
            );
        }
        (Reason::Split(..), None) => {
            return format!(
                "choose the leg with the right data; the other leg is filled from it: {}",
                again(view, options, "--force-stale --from DISK@SESSION")
            );
        }
    };
    said.to_owned()
}

/// Returns the command for another start, with the options `more`. If this start has options, or
/// this machine has no record that names the legs, the command is not spelled out.
fn again(view: &View, options: &StartOptions, more: &str) -> String {
    let is_plain = !options.force_stale && !options.take_over && options.only.is_none();
    match view.is_known && is_plain {
        true => format!("rnbdctl mirror assemble {} {more}", view.record.name),
        false => format!("the same command with {more}"),
    }
}

/// Returns the legs whose superblocks could not be read, with the reasons, as the end of a
/// sentence.
fn unread(view: &View) -> String {
    let legs = view.legs.iter().zip(&view.record.legs);
    let said = legs.filter_map(|(leg, record)| {
        let why = leg.unread.as_ref()?;
        Some(format!("; could not read {}: {why}", record.name))
    });
    said.collect()
}

/// Gives a disk and its session the settings of a leg. Requests fail at once while no path is up,
/// so that the mirror goes on without the leg. The paths try to connect again without a limit.
pub(super) fn prepare(system: &System, device: &ClientDevice) -> Result {
    let hold = proto::setting::HOLD_DISK_IO.name;
    if device.hold_io_ms.is_some_and(|ms| ms != 0) {
        control::device::set_tunable(device, hold, 0)?;
    }
    let Some(session) = system.client_session(&device.session)? else {
        return Ok(());
    };
    keep_trying(&session)
}

fn keep_trying(session: &ClientSession) -> Result {
    const ATTEMPTS: &str = "max_reconnect_attempts";
    match session.settings.get(ATTEMPTS) {
        Some(attempts) if attempts != -1 => control::session::set(session, ATTEMPTS, "-1"),
        _ => Ok(()),
    }
}
