// SPDX-License-Identifier: GPL-2.0

//! Creates mirrors.

use std::collections::BTreeSet;
use std::fs;

use super::act;
use super::names::HOME_HOST;
use super::record::now;
use super::record::Leg;
use super::record::Record;
use super::record::Records;
use super::reserve;
use super::reserve::Taken;
use super::superblock;
use super::superblock::hex;
use super::superblock::Found;
use super::tool;
use super::view;
use super::LegName;
use super::MirrorName;
use crate::identity;
use crate::model::AccessMode;
use crate::model::ClientDevice;
use crate::model::DeviceState;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// A mirror to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The mirror's name.
    pub name: MirrorName,
    /// The legs.
    pub legs: Vec<PlannedLeg>,
    /// Whether the legs are reserved for this machine.
    pub reserve: bool,
    /// Whether all legs have the same data already, as new disks of zeroes have. Then md copies
    /// nothing.
    pub assume_clean: bool,
    /// Whether to take disks with data on them, and disks of different sizes.
    pub force: bool,
}

/// A leg of a mirror to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLeg {
    /// The leg's name.
    pub name: LegName,
    /// Whether reads shall avoid the leg.
    pub write_mostly: bool,
    /// Whether md shall mark requests to the leg to fail fast.
    pub failfast: bool,
}

impl PlannedLeg {
    /// Returns the leg as a record has it. `in_sync` says whether the leg has all data.
    pub fn record(&self, in_sync: bool) -> Leg {
        Leg {
            name: self.name.clone(),
            write_mostly: self.write_mostly,
            // md does not mark requests to write-mostly legs.
            failfast: self.failfast && !self.write_mostly,
            in_sync,
            fill: false,
            since: now(),
            leaving: false,
        }
    }
}

/// Creates a mirror, starts it, and returns its device node. After an error the new reservations
/// are given up. Without `force` the new superblocks are taken off the disks, too. The hint of the
/// error names each disk that still has one.
///
/// The error is [`Kind::Usage`] if the legs make no mirror, [`Kind::NotFound`] if a disk is not
/// mapped, and [`Kind::Busy`] if the name or a disk is in use.
pub fn create(system: &System, plan: &Plan) -> Result<String> {
    let what = format!("creating mirror {}", plan.name);
    let records = Records::of(system);
    let _lock = records.lock_mirror(&plan.name)?;
    if records.load(&plan.name)?.is_some() {
        let why = "this machine has a mirror of that name";
        return Err(Error::new(Kind::Busy, what, why)
            .hint("see it with: rnbdctl mirror status; remove it with: rnbdctl mirror remove"));
    }
    check_legs(&plan.legs, &what)?;
    let names = plan.legs.iter().map(|leg| &leg.name);
    check_servers(system, &names.collect::<Vec<_>>(), &what)?;
    let mut disks = Vec::new();
    for leg in ordered(&plan.legs) {
        let device = usable(system, &leg.name, &what)?;
        check_unclaimed(&records, &plan.name, &leg.name, &what)?;
        if !plan.force {
            check_blank(&device, &what)?;
        }
        disks.push((leg, device));
    }
    let key = identity::key(system);
    let mut taken = Vec::new();
    let result = take(system, plan, &disks, key, &mut taken)
        .and_then(|()| make(system, plan, &disks, &what));
    if result.is_err() {
        for node in taken {
            let _ = reserve::release(&node, key);
        }
    }
    result.map(|()| plan.name.node())
}

/// Checks the legs: at least two, each once, of more than one session, not all write-mostly.
fn check_legs(legs: &[PlannedLeg], what: &str) -> Result {
    let wrong = |why: String| Err(Error::new(Kind::Usage, what, why));
    if legs.len() < 2 {
        return wrong("a mirror has at least two legs".to_owned());
    }
    for (index, leg) in legs.iter().enumerate() {
        if legs
            .iter()
            .skip(index)
            .skip(1)
            .any(|other| other.name == leg.name)
        {
            return wrong(format!("{} is given twice", leg.name));
        }
    }
    let first = legs.first().map(|leg| leg.name.session.as_str());
    if legs
        .iter()
        .all(|leg| Some(leg.name.session.as_str()) == first)
    {
        return wrong("all legs have the same session: a mirror needs legs of two servers".into());
    }
    if legs.iter().all(|leg| leg.write_mostly) {
        return wrong("all legs are write-mostly: reads need a leg that is not".to_owned());
    }
    Ok(())
}

/// Checks that the legs' sessions lead to more than one server: no address is in all of them.
pub(super) fn check_servers(system: &System, legs: &[&LegName], what: &str) -> Result {
    let mut common: Option<BTreeSet<String>> = None;
    for leg in legs {
        // A session that is not there has a leg that is not mapped, which is another error.
        let Some(session) = system.client_session(&leg.session)? else {
            return Ok(());
        };
        let own = session.paths.into_iter().map(|path| path.destination);
        common = Some(match common {
            Some(common) => own.filter(|address| common.contains(address)).collect(),
            None => own.collect(),
        });
    }
    match common.unwrap_or_default().first() {
        Some(address) => {
            let why = format!("all legs are of the same server, {address}");
            Err(Error::new(Kind::Usage, what, why))
        }
        None => Ok(()),
    }
}

/// Checks that no other mirror of this machine has this leg.
pub(super) fn check_unclaimed(
    records: &Records,
    own: &MirrorName,
    leg: &LegName,
    what: &str,
) -> Result {
    for name in records.names()? {
        // The record of another mirror may be damaged; `rnbdctl mirror status` gives the error.
        let Ok(Some(record)) = records.load(&name) else {
            continue;
        };
        if name != *own && record.legs.iter().any(|have| have.name == *leg) {
            let why = format!("{leg} is a leg of mirror {name}");
            return Err(Error::new(Kind::Busy, what, why).hint(format!(
                "choose another disk; or remove mirror {name}, whose data then cannot be read any \
                 more: rnbdctl mirror remove {name}"
            )));
        }
    }
    Ok(())
}

/// Returns the legs in the order in which mdadm gets them. An option of mdadm counts for all disks
/// that follow it, so legs without options come first.
fn ordered(legs: &[PlannedLeg]) -> Vec<&PlannedLeg> {
    let mut ordered: Vec<_> = legs.iter().collect();
    ordered.sort_by_key(|leg| (leg.write_mostly, leg.failfast));
    ordered
}

/// Returns the disk of a leg. The disk must be mapped, open and writable, and no other block device
/// may use it.
pub(super) fn usable(system: &System, leg: &LegName, what: &str) -> Result<ClientDevice> {
    let Some(device) = view::device(system, leg)? else {
        return Err(
            Error::new(Kind::NotFound, what, format!("{leg} is not mapped"))
                .hint("map it with: rnbdctl map, or rnbdctl apply"),
        );
    };
    let refused = |why: String| Err(Error::new(Kind::Busy, what, why));
    if device.state != DeviceState::Open {
        return refused(format!(
            "{leg} ({}) is {}",
            device.path,
            device.state.as_str()
        ));
    }
    if device.access_mode == Some(AccessMode::Ro) {
        return refused(format!(
            "{leg} ({}) is mapped for reading only",
            device.path
        ));
    }
    let holders = fs::read_dir(system.sys("block").join(&device.name).join("holders"));
    if holders.is_ok_and(|mut holders| holders.next().is_some()) {
        return refused(format!(
            "{leg} ({}) is in use by another block device",
            device.path
        ));
    }
    Ok(device)
}

/// Checks that `blkid` finds nothing on the disk.
pub(super) fn check_blank(device: &ClientDevice, what: &str) -> Result {
    let args = [
        "--probe",
        "--output",
        "value",
        "--match-tag",
        "TYPE",
        &device.path,
    ];
    let ran = tool::run("blkid", &args)?;
    match ran.code {
        // `blkid` has found nothing.
        Some(2) if ran.err.is_empty() => Ok(()),
        Some(0 | 8) => {
            let found = match ran.out.trim() {
                "" => "data of an unknown kind".to_owned(),
                found => found.lines().collect::<Vec<_>>().join(", "),
            };
            let why = format!("{} has {found} on it", device.path);
            Err(Error::new(Kind::Busy, what, why)
                .hint("--force takes the disk, and its data is lost"))
        }
        _ => Err(ran.error(what)),
    }
}

/// Gives the disks the settings of legs, and reserves them if the plan says so. `taken` gets the
/// node of each disk that is newly reserved, and is to be given up if something fails.
fn take(
    system: &System,
    plan: &Plan,
    disks: &[(&PlannedLeg, ClientDevice)],
    key: u64,
    taken: &mut Vec<String>,
) -> Result {
    for (_, device) in disks {
        act::prepare(system, device)?;
        if plan.reserve && reserve::take_new_leg(&device.path, key)? == Taken::New {
            taken.push(device.path.clone());
        }
    }
    Ok(())
}

/// Writes the record, and has md create the mirror. The record comes first: a mirror that runs
/// without a record would not be tended.
fn make(system: &System, plan: &Plan, disks: &[(&PlannedLeg, ClientDevice)], what: &str) -> Result {
    act::load_module();
    let records = Records::of(system);
    let uuid = new_uuid(what)?;
    let args = arguments(plan, disks, &uuid);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let legs = disks.iter().map(|(leg, _)| leg.record(true)).collect();
    records.hold(&plan.name, false)?;
    let record = Record::new(plan.name.clone(), uuid.clone(), plan.reserve, legs);
    records.save(&record)?;
    let made = tool::run("mdadm", &args).and_then(|ran| ran.ok(what));
    let Err(error) = made else {
        return Ok(());
    };
    records.remove(&plan.name)?;
    let left = take_back(system, plan, disks, &uuid);
    Err(match left.is_empty() {
        true => error,
        false => error.hint(format!(
            "disks still have md's new superblocks; take them off with: mdadm --zero-superblock \
             {}",
            left.join(" ")
        )),
    })
}

/// Takes the superblocks off the disks that mdadm wrote before it failed; with `force` takes none
/// off. Returns the disks that still have one.
fn take_back(
    system: &System,
    plan: &Plan,
    disks: &[(&PlannedLeg, ClientDevice)],
    uuid: &str,
) -> Vec<String> {
    let is_new = |device: &ClientDevice| {
        let found = superblock::read(&system.device_node(&device.name));
        matches!(found, Ok(Found::Superblock(found)) if found.array == uuid)
    };
    let with_superblock = disks.iter().map(|(_, device)| device);
    let with_superblock = with_superblock.filter(|device| is_new(device));
    let zeroed = |device: &ClientDevice| {
        let zero = || tool::run("mdadm", &["--zero-superblock", &device.path]);
        !plan.force && zero().is_ok_and(|ran| ran.is_ok())
    };
    with_superblock
        .filter(|device| !zeroed(device))
        .map(|device| device.path.clone())
        .collect()
}

/// Returns the arguments of mdadm. Without `--run` mdadm asks about disks with data and about
/// different sizes. Its input is empty, which mdadm takes for a no.
fn arguments(plan: &Plan, disks: &[(&PlannedLeg, ClientDevice)], uuid: &str) -> Vec<String> {
    let mut args = vec![
        "--create".to_owned(),
        plan.name.node(),
        "--config=none".to_owned(),
        format!("--homehost={HOME_HOST}"),
        format!("--name={}", plan.name),
        format!("--uuid={uuid}"),
        "--metadata=1.2".to_owned(),
        "--level=1".to_owned(),
        "--bitmap=internal".to_owned(),
        format!("--raid-devices={}", disks.len()),
    ];
    let smallest = disks
        .iter()
        .filter_map(|(_, device)| device.size_bytes)
        .min();
    args.extend(
        smallest
            .and_then(piece)
            .map(|mib| format!("--bitmap-chunk={mib}M")),
    );
    args.extend(plan.assume_clean.then(|| "--assume-clean".to_owned()));
    args.extend(plan.force.then(|| "--run".to_owned()));
    let (mut is_far, mut is_fast) = (false, false);
    for (leg, device) in disks {
        if leg.failfast && !leg.write_mostly && !is_fast {
            args.push("--failfast".to_owned());
            is_fast = true;
        }
        if leg.write_mostly && !is_far {
            args.push("--write-mostly".to_owned());
            is_far = true;
        }
        args.push(device.path.clone());
    }
    args
}

/// Returns the number of MiB that a bit of the bitmap stands for, in a mirror of `size` bytes. When
/// a leg comes back, md copies at least this much. The mirror has at most 16,384 such pieces, which
/// fit into the smallest bitmap of md. `None` for a mirror that is so large that md's own choice is
/// no coarser.
fn piece(size: u64) -> Option<u64> {
    const PIECES: u64 = 16_384;
    const MIB: u64 = 1 << 20;
    const USUAL: u64 = 64;
    let mib = size.div_ceil(PIECES).div_ceil(MIB).max(1);
    mib.checked_next_power_of_two().filter(|&mib| mib < USUAL)
}

/// Returns a random UUID, as 32 hexadecimal digits.
fn new_uuid(what: &str) -> Result<String> {
    let mut bytes = [0_u8; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(length) if length == bytes.len() => Ok(hex(&bytes)),
        Ok(_) => {
            let why = "the kernel gave too few random bytes";
            Err(Error::new(Kind::Failed, what, why))
        }
        Err(error) => Err(Error::io(what, &error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(session: &str, write_mostly: bool, failfast: bool) -> PlannedLeg {
        let name = LegName {
            disk: "d".to_owned(),
            session: session.to_owned(),
        };
        PlannedLeg {
            name,
            write_mostly,
            failfast,
        }
    }

    #[test]
    fn legs_that_make_no_mirror() {
        let near = leg("a", false, true);
        let far = leg("b", true, true);
        assert_eq!(check_legs(&[near.clone(), far.clone()], "x"), Ok(()));
        for (legs, part) in [
            (vec![], "at least two"),
            (vec![near.clone()], "at least two"),
            (vec![near.clone(), near.clone()], "given twice"),
            (vec![far.clone(), leg("c", true, true)], "write-mostly"),
        ] {
            let error = check_legs(&legs, "x").unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let mut other = near.clone();
        other.name.disk = "e".to_owned();
        let error = check_legs(&[near, other], "x").unwrap_err();
        assert!(error.to_string().contains("same session"), "{error}");
    }

    #[test]
    fn options_stand_in_front_of_what_they_are_for() {
        let legs = [
            leg("far", true, true),
            leg("slow", false, false),
            leg("near", false, true),
        ];
        let order: Vec<_> = ordered(&legs)
            .iter()
            .map(|leg| leg.name.session.clone())
            .collect();
        assert_eq!(order, ["slow", "near", "far"]);
        assert!(!leg("far", true, true).record(true).failfast);
    }

    #[test]
    fn the_bitmap_is_as_fine_as_it_can_be() {
        for (gib, mib) in [
            (0, Some(1)),
            (16, Some(1)),
            (17, Some(2)),
            (100, Some(8)),
            (512, Some(32)),
            (513, None),
            (1 << 20, None),
        ] {
            assert_eq!(piece(gib << 30), mib, "{gib} GiB");
        }
        assert_eq!(piece(u64::MAX), None);
    }

    #[test]
    fn superblocks_that_are_left_are_found() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        std::fs::create_dir(root.path().join("dev")).unwrap();
        let mut disk = vec![0_u8; 4096];
        disk.extend(superblock::tests::bytes(0, 0, 1, &[0, 1]));
        std::fs::write(root.path().join("dev/rnbd0"), disk).unwrap();
        std::fs::write(root.path().join("dev/rnbd1"), [0; 8192]).unwrap();
        let legs = [leg("a", false, true), leg("b", false, true)];
        let disks: Vec<_> = legs
            .iter()
            .zip([device("rnbd0"), device("rnbd1")])
            .collect();
        let plan = Plan {
            name: MirrorName::new("db").unwrap(),
            legs: legs.to_vec(),
            reserve: false,
            assume_clean: false,
            // Not checked to be blank: no disk is changed.
            force: true,
        };
        let left = |uuid: &str| take_back(&system, &plan, &disks, uuid);
        assert_eq!(left(&"ab".repeat(16)), ["/dev/rnbd0"]);
        assert!(left(&"cd".repeat(16)).is_empty());
    }

    fn device(name: &str) -> ClientDevice {
        ClientDevice {
            name: name.to_owned(),
            path: format!("/dev/{name}"),
            session: "s".to_owned(),
            device_path: "d".to_owned(),
            access_mode: None,
            io_mode: None,
            state: DeviceState::Open,
            closed_by_server: false,
            size_bytes: None,
            poll_queues: None,
            io_timeout_ms: None,
            hold_io_ms: None,
            io_timeouts: None,
            io_unanswered: None,
            folder: std::path::PathBuf::new(),
        }
    }

    #[test]
    fn uuids_differ() {
        let (a, b) = (new_uuid("x").unwrap(), new_uuid("x").unwrap());
        assert!(a != b && a.len() == 32 && a.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
