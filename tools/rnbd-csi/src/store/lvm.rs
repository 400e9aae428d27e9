// SPDX-License-Identifier: GPL-2.0

//! Volumes as logical volumes of LVM, by its programs.
//!
//! LVM gives out room with what was in it before. So room is filled with zeroes before a node can
//! see it: a new volume under a name that is not a volume's, and the room by which a volume grows
//! as a logical volume of its own, whose extents the volume then gets. Only logical volumes with
//! the tag below are touched.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use rnbdctl::System;
use serde::Deserialize;

use super::name;
use super::IsMapped;
use super::Store;
use super::Stored;
use crate::fail;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::lock::Lock;
use crate::programs;

/// The tag of logical volumes that this program has made.
const TAG: &str = "rnbd-csi";
/// The end of the name of a volume that is being made.
const NEW: &str = ".new";
/// The end of the name of room by which a volume will grow.
const GROWTH: &str = ".grow";

/// Volumes in a volume group.
#[derive(Debug)]
pub(crate) struct Lvm {
    group: String,
    /// It is locked while this driver has LVM give out extents, or has freed extents for a volume
    /// that grows.
    extents: Mutex<()>,
    /// No other driver of the machine works in the group.
    _lock: Lock,
}

/// What the programs of LVM report: each in a list of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Rows {
    lv: Vec<LogicalVolume>,
    vg: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Report {
    report: Vec<Rows>,
}

#[derive(Debug, Deserialize)]
struct LogicalVolume {
    lv_name: String,
    lv_size: String,
    /// Where its extents are, if that was asked: there is a row for each of its segments then.
    #[serde(default)]
    seg_pe_ranges: String,
}

#[derive(Debug, Deserialize)]
struct Group {
    vg_extent_size: String,
    vg_free: String,
}

impl Lvm {
    /// Volumes in the group of that name, which must be there.
    pub(crate) fn open(group: &str, system: &System) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
        if group.is_empty() || group.starts_with('-') || !group.bytes().all(is_plain) {
            return Err(Status::invalid(format!("{group:?} is not a volume group")));
        }
        let lock = Lock::take(system, &format!("group-{group}"))?.ok_or_else(|| {
            Status::precondition(format!(
                "another driver makes volumes in the volume group {group}; end that driver first"
            ))
        })?;
        let lvm = Self {
            group: group.to_owned(),
            extents: Mutex::default(),
            _lock: lock,
        };
        lvm.group_row().map(|_| lvm)
    }

    fn extents(&self) -> MutexGuard<'_, ()> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn group_row(&self) -> Result<Group> {
        let fields = "vg_extent_size,vg_free";
        let rows = report("vgs", fields, &[self.group.as_str()])?;
        rows.vg
            .into_iter()
            .next()
            .ok_or_else(|| Status::internal(format!("vgs does not list {}", self.group)))
    }

    /// All logical volumes with our tag, also those that are being made.
    fn tagged(&self) -> Result<Vec<LogicalVolume>> {
        let select = format!("lv_tags={TAG}");
        let args = ["-S", select.as_str(), self.group.as_str()];
        Ok(report("lvs", "lv_name,lv_size", &args)?.lv)
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.group)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result {
        programs::run(program, args)?.success().map(|_| ())
    }

    /// Removes a logical volume, if it is there.
    fn remove(&self, name: &str) -> Result {
        match self.tagged()?.iter().any(|found| found.lv_name == name) {
            true => self.run("lvremove", &["-y", "-q", &self.full(name)]),
            false => Ok(()),
        }
    }

    /// Makes a logical volume under a name that is not a volume's. `size` is one of the options of
    /// `lvcreate`.
    fn make(&self, name: &str, size: [&str; 2]) -> Result {
        let _extents = self.extents();
        self.remove(name)?;
        let [option, value] = size;
        let args = [
            "-y", "-q", "-W", "y", "--addtag", TAG, "-n", name, option, value,
        ];
        let done = programs::run(
            "lvcreate",
            &[args.as_slice(), &[self.group.as_str()]].concat(),
        )?;
        match done.code {
            Some(0) => Ok(()),
            _ => {
                let failure = done.failure();
                let is_full = failure.message.contains("insufficient free space");
                Err(match is_full {
                    true => Status::new(Code::ResourceExhausted, failure.message),
                    false => failure,
                })
            }
        }
    }

    /// Fills a logical volume with zeroes; one that cannot be filled does not stay.
    fn zero(&self, name: &str) -> Result {
        let path = self.path(name);
        let zeroed = self.run("blkdiscard", &["-f", "-z", &path.to_string_lossy()]);
        if zeroed.is_err() {
            self.remove(name)?;
        }
        zeroed
    }
}

/// What a program of LVM reports of some fields.
fn report(program: &str, fields: &str, args: &[&str]) -> Result<Rows> {
    let units = [
        "--reportformat",
        "json",
        "--units",
        "b",
        "--nosuffix",
        "-o",
        fields,
    ];
    let text = programs::run(program, &[units.as_slice(), args].concat())?.success()?;
    parse(&text).map_err(|why| Status::internal(format!("{program}: {why}")))
}

fn parse(text: &str) -> std::result::Result<Rows, String> {
    let report: Report = serde_json::from_str(text).map_err(|error| error.to_string())?;
    report
        .report
        .into_iter()
        .next()
        .ok_or_else(|| "an empty report".to_owned())
}

fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .map_err(|_| Status::internal(format!("LVM gives the number {text:?}")))
}

impl Store for Lvm {
    fn list(&self) -> Result<Vec<Stored>> {
        let rows = self.tagged()?.into_iter();
        rows.filter(|row| name::is_ours(&row.lv_name))
            .map(|row| {
                let name = row.lv_name;
                number(&row.lv_size).map(|bytes| Stored { name, bytes })
            })
            .collect()
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Stored> {
        let new = format!("{name}{NEW}");
        self.make(&new, ["-L", &format!("{bytes}b")])?;
        fail::point("create.allocated");
        self.zero(&new)?;
        fail::point("create.zeroed");
        self.run("lvrename", &["-q", &self.group, &new, name])?;
        fail::point("create.named");
        Ok(Stored {
            name: name.to_owned(),
            bytes,
        })
    }

    fn grow(&self, stored: &Stored, bytes: u64) -> Result<u64> {
        let unit = self.unit()?;
        let more = bytes.saturating_sub(stored.bytes);
        let extents = more.div_ceil(unit.max(1)).to_string();
        let growth = format!("{}{GROWTH}", stored.name);
        self.make(&growth, ["-l", &extents])?;
        self.zero(&growth)?;
        let fields = "lv_name,lv_size,seg_pe_ranges";
        let segments = report("lvs", fields, &[&self.full(&growth)])?.lv;
        let ranges: Vec<&str> = segments
            .iter()
            .flat_map(|segment| segment.seg_pe_ranges.split_whitespace())
            .collect();
        // The extents are free between the two commands. LVM could give them to another volume
        // meanwhile: no call of this driver makes a volume then, and the administrator must not.
        let guard = self.extents();
        self.remove(&growth)?;
        let extents = format!("+{extents}");
        let full = self.full(&stored.name);
        let args = ["-q", "-l", &extents, &full];
        self.run("lvextend", &[args.as_slice(), ranges.as_slice()].concat())?;
        drop(guard);
        fail::point("extend.grown");
        let found = self.find(&stored.name)?;
        Ok(found.map_or(bytes, |found| found.bytes))
    }

    fn delete(&self, stored: &Stored, is_mapped: &IsMapped<'_>) -> Result<bool> {
        if is_mapped(stored)? {
            return Ok(false);
        }
        // LVM removes nothing that is open.
        self.remove(&stored.name)?;
        fail::point("delete.removed");
        Ok(true)
    }

    fn available(&self) -> Result<u64> {
        number(&self.group_row()?.vg_free)
    }

    fn unit(&self) -> Result<u64> {
        match number(&self.group_row()?.vg_extent_size)? {
            0 => Err(Status::internal("LVM gives extents of 0 bytes")),
            bytes => Ok(bytes),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/dev/{}/{name}", self.group))
    }

    fn tidy(&self, _is_mapped: &IsMapped<'_>) -> Result {
        for row in self.tagged()? {
            let of = |end: &str| row.lv_name.strip_suffix(end).is_some_and(name::is_ours);
            if of(NEW) || of(GROWTH) {
                self.remove(&row.lv_name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_lvm() {
        let text = r#"{"report": [{"lv": [
            {"lv_name": "csi-a", "lv_size": "1073741824"},
            {"lv_name": "csi-b.new", "lv_size": "4194304"}]}], "log": []}"#;
        let rows = parse(text).unwrap();
        assert_eq!(rows.lv.len(), 2);
        assert_eq!(number(&rows.lv[0].lv_size), Ok(1 << 30));
        let text = r#"{"report": [{"vg": [{"vg_extent_size": "4194304", "vg_free": "0"}]}]}"#;
        assert_eq!(parse(text).unwrap().vg[0].vg_free, "0");
        let text = r#"{"report": [{"lv": [
            {"lv_name": "a", "lv_size": "1", "seg_pe_ranges": "/dev/a:0-9 /dev/b:3-4"}]}]}"#;
        let rows = parse(text).unwrap();
        assert_eq!(rows.lv[0].seg_pe_ranges, "/dev/a:0-9 /dev/b:3-4");
        assert!(parse("{}").is_err() && parse("{\"report\": []}").is_err());
        assert!(number("1.5g").is_err());
    }

    #[test]
    fn groups_have_plain_names() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        for bad in ["", "-y", "a/b", "a b", "a;b"] {
            let error = Lvm::open(bad, &system).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn one_driver_in_a_group() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let _lock = Lock::take(&system, "group-vg0").unwrap().unwrap();
        let error = Lvm::open("vg0", &system).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
    }
}
