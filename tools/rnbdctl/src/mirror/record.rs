// SPDX-License-Identifier: GPL-2.0

//! This machine's record of a mirror: `/var/lib/rnbd/mirrors/NAME.json`.
//!
//! The superblock of a leg says which legs took part when it was written. It cannot say what
//! happened after the leg went away; the record does.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use rustix::fs::flock;
use rustix::fs::FlockOperation;
use serde::Deserialize;
use serde::Serialize;

use super::LegName;
use super::MirrorName;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The folder of the records, below `/`.
const FOLDER: &str = "var/lib/rnbd/mirrors";

/// The folder of files that last until the machine boots again, below `/`.
const RUN: &str = "run/rnbd";

/// The version of the file's format.
const VERSION: u32 = 1;

/// The record of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of the file's format.
    pub version: u32,
    /// The mirror's name.
    pub name: MirrorName,
    /// The mirror's UUID, which is on all legs, as 32 hexadecimal digits.
    pub uuid: String,
    /// Whether the legs are reserved for this machine.
    pub reserve: bool,
    /// The legs.
    pub legs: Vec<Leg>,
    /// Set while the mirror is stopped, if it was stopped in order. It stays set while the mirror
    /// runs from fewer legs, until a leg is added: as long as nothing was written, the mirror can
    /// start in the same way again.
    pub stopped: Option<Stopped>,
    /// Whether this machine has given the mirror up for another machine. It is then started by an
    /// administrator only, also after the machine has booted.
    #[serde(default)]
    pub released: bool,
}

/// A leg in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    /// The leg's name.
    #[serde(flatten)]
    pub name: LegName,
    /// Whether reads avoid the leg, as it is far away.
    pub write_mostly: bool,
    /// Whether md marks requests to the leg to fail fast.
    pub failfast: bool,
    /// Whether the leg had all data when the mirror last ran.
    pub in_sync: bool,
    /// Whether the leg has to be filled as a whole: it may have data that the mirror does not have,
    /// or none.
    pub fill: bool,
    /// When `in_sync` last changed, in seconds since 1970.
    pub since: u64,
    /// Whether another leg is filled to replace this leg. When that leg has all data, this leg is
    /// a leg no longer.
    #[serde(default)]
    pub leaving: bool,
}

/// A stop in order: after it all legs that were in sync had the same event count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stopped {
    /// The event count of the legs that were in sync.
    pub events: u64,
}

impl Record {
    /// Makes the record of a mirror that was not stopped in order.
    pub fn new(name: MirrorName, uuid: String, reserve: bool, legs: Vec<Leg>) -> Self {
        Self {
            version: VERSION,
            name,
            uuid,
            reserve,
            legs,
            stopped: None,
            released: false,
        }
    }

    /// Returns the number of legs that the mirror shall have. A leg that is being replaced and the
    /// new leg count as one.
    pub fn wanted(&self) -> usize {
        self.legs.iter().filter(|leg| !leg.leaving).count()
    }

    /// Notes which legs are in sync, and returns whether the record has changed. `in_sync` has a
    /// value for each leg, in their order; `now` is in seconds since 1970. A leg that is in sync
    /// need not be filled any more.
    pub fn note(&mut self, in_sync: &[bool], now: u64) -> bool {
        let mut is_news = false;
        for (leg, &in_sync) in self.legs.iter_mut().zip(in_sync) {
            if leg.in_sync != in_sync {
                leg.in_sync = in_sync;
                leg.since = now;
                is_news = true;
            }
            if in_sync && leg.fill {
                leg.fill = false;
                is_news = true;
            }
        }
        is_news
    }
}

/// Returns the present time in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

/// The records of a machine.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
    run: PathBuf,
}

impl Records {
    /// Returns the records of this machine.
    pub fn of(system: &System) -> Self {
        Self {
            folder: system.file(FOLDER),
            run: system.file(RUN),
        }
    }

    fn file(&self, name: &MirrorName) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Returns the names of all mirrors that have a record, in their order.
    pub fn names(&self) -> Result<Vec<MirrorName>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(self.folder.display(), &error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::io(self.folder.display(), &error))?;
            let file = entry.file_name();
            let stem = file.to_str().and_then(|file| file.strip_suffix(".json"));
            // Other files are left out, as is a record that is being written: `.NAME`.
            names.extend(stem.and_then(|stem| MirrorName::new(stem).ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Reads the record of a mirror; `None` if there is no record.
    ///
    /// The error is [`Kind::BadConfig`] if the file is no record of this mirror in this version.
    pub fn load(&self, name: &MirrorName) -> Result<Option<Record>> {
        let file = self.file(name);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(file.display(), &error)),
        };
        let wrong = |why: String| {
            Error::new(Kind::BadConfig, file.display().to_string(), why).hint(format!(
                "move the file away; if the mirror runs, unmount it, and stop it: mdadm --stop \
                 {}; then rnbdctl mirror assemble {name} DISK@SESSION... makes a new file from \
                 what the legs say",
                name.node()
            ))
        };
        let record: Record =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if record.version != VERSION {
            return Err(wrong(format!(
                "the record has version {}, and this program reads {VERSION}",
                record.version
            )));
        }
        if record.name != *name {
            return Err(wrong(format!(
                "the file has the record of mirror {}",
                record.name
            )));
        }
        Ok(Some(record))
    }

    /// As [`Self::load`]. The error is [`Kind::NotFound`] if there is no record.
    pub fn need(&self, name: &MirrorName) -> Result<Record> {
        self.load(name)?.ok_or_else(|| {
            let why = "this machine has no record of a mirror of that name";
            Error::new(Kind::NotFound, format!("mirror {name}"), why)
                .hint("list the mirrors with: rnbdctl mirror status")
        })
    }

    /// Writes a record as a whole. The record is on stable storage when this returns.
    pub fn save(&self, record: &Record) -> Result {
        let fail = |error: io::Error| Error::io(self.file(&record.name).display(), &error);
        let mut text = serde_json::to_string_pretty(record)
            .map_err(|error| Error::new(Kind::Failed, "writing a record", error.to_string()))?;
        text.push('\n');
        fs::create_dir_all(&self.folder).map_err(fail)?;
        let partial = self.folder.join(format!(".{}", record.name));
        let mut out = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&partial)
            .map_err(fail)?;
        out.write_all(text.as_bytes())
            .and_then(|()| out.sync_all())
            .and_then(|()| fs::rename(&partial, self.file(&record.name)))
            .and_then(|()| File::open(&self.folder)?.sync_all())
            .map_err(fail)
    }

    /// Changes a record. `change` returns whether the record is to be written. If the mirror was
    /// removed, the result is `None`, and `change` is not called.
    ///
    /// Other calls of this function and of [`Self::remove`] wait meanwhile, in all processes;
    /// [`Self::save`] does not.
    pub fn change(
        &self,
        name: &MirrorName,
        change: impl FnOnce(&mut Record) -> bool,
    ) -> Result<Option<Record>> {
        let _lock = self.lock("records")?;
        let Some(mut record) = self.load(name)? else {
            return Ok(None);
        };
        if change(&mut record) {
            self.save(&record)?;
        }
        Ok(Some(record))
    }

    /// Removes the record of a mirror.
    pub fn remove(&self, name: &MirrorName) -> Result {
        let _lock = self.lock("records")?;
        let file = self.file(name);
        fs::remove_file(&file).map_err(|error| Error::io(file.display(), &error))
    }

    /// Moves the record of a mirror to `file`, if there is a record: then the mirror is no mirror
    /// of this machine. `file` is on the file system of the records, in a folder that exists.
    pub fn put_aside(&self, name: &MirrorName, file: &Path) -> Result {
        let _lock = self.lock("records")?;
        moved(&self.file(name), file)
    }

    /// Takes a record back that [`Self::put_aside`] has moved to `file`, if it is there, and the
    /// mirror has no record.
    pub fn take_back(&self, name: &MirrorName, file: &Path) -> Result {
        let _lock = self.lock("records")?;
        fs::create_dir_all(&self.folder)
            .map_err(|error| Error::io(self.folder.display(), &error))?;
        match self.file(name).exists() {
            true => Ok(()),
            false => moved(file, &self.file(name)),
        }
    }

    /// Waits until no other thread, of this process or another process, works on this mirror. Other
    /// threads then wait until the lock is dropped.
    pub fn lock_mirror(&self, name: &MirrorName) -> Result<Lock> {
        self.lock(&format!("mirror-{name}"))
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.run.join(format!("{name}.lock"));
        let fail = |error: io::Error| Error::io(path.display(), &error);
        fs::create_dir_all(&self.run).map_err(fail)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| fail(error.into()))?;
        Ok(Lock { _file: file })
    }

    /// Whether an administrator has stopped the mirror. The mirror stays stopped until an
    /// administrator starts it, or the machine boots again.
    pub fn is_held(&self, name: &MirrorName) -> bool {
        self.run.join(format!("mirror-{name}.stopped")).exists()
    }

    /// Sets whether the mirror stays stopped, as [`Self::is_held`] says.
    pub fn hold(&self, name: &MirrorName, held: bool) -> Result {
        let path = self.run.join(format!("mirror-{name}.stopped"));
        let result = match held {
            true => fs::create_dir_all(&self.run).and_then(|()| fs::write(&path, "")),
            false => match fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            },
        };
        result.map_err(|error| Error::io(path.display(), &error))
    }
}

/// Moves a file, if it is there. The move is on stable storage when this returns.
fn moved(from: &Path, to: &Path) -> Result {
    let fail = |error: io::Error| Error::io(from.display(), &error);
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !from.exists() => return Ok(()),
        renamed => renamed.map_err(fail)?,
    }
    // The new place first: a crash between the two leaves two records, and not none.
    for folder in [to, from].iter().filter_map(|file| file.parent()) {
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(fail)?;
    }
    Ok(())
}

/// A lock between processes. Dropping it ends the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(disk: &str) -> Leg {
        Leg {
            name: LegName {
                disk: disk.to_owned(),
                session: "s".to_owned(),
            },
            write_mostly: false,
            failfast: true,
            in_sync: true,
            fill: false,
            since: 1,
            leaving: false,
        }
    }

    fn record() -> Record {
        let name = MirrorName::new("db").unwrap();
        Record::new(name, "ab".repeat(16), true, vec![leg("a"), leg("b")])
    }

    #[test]
    fn what_is_written_is_read() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::of(&System::new(Some(root.path()), None));
        let record = record();
        assert!(records.names().unwrap().is_empty());
        assert_eq!(records.load(&record.name).unwrap(), None);
        assert!(records.need(&record.name).is_err());
        records.save(&record).unwrap();
        assert_eq!(records.names().unwrap(), [record.name.clone()]);
        assert_eq!(records.need(&record.name).unwrap(), record);
        let changed = records.change(&record.name, |record| record.note(&[true, false], 7));
        let changed = changed.unwrap().unwrap();
        assert_eq!((changed.legs[1].in_sync, changed.legs[1].since), (false, 7));
        assert_eq!(records.need(&record.name).unwrap(), changed);
        records.remove(&record.name).unwrap();
        assert_eq!(records.change(&record.name, |_| true).unwrap(), None);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::of(&System::new(Some(root.path()), None));
        let name = MirrorName::new("db").unwrap();
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        let good = serde_json::to_string(&record()).unwrap();
        for text in [
            "".to_owned(),
            "{}".to_owned(),
            good.replace("\"version\":1", "\"version\":2"),
            good.replace("\"name\":\"db\"", "\"name\":\"other\""),
            good.replace("\"name\":\"db\"", "\"name\":\"../db\""),
        ] {
            fs::write(folder.join("db.json"), &text).unwrap();
            let error = records.load(&name).unwrap_err();
            assert_eq!(error.kind(), Kind::BadConfig, "{text}");
            // The mirror may run, and a running mirror cannot be started from its legs.
            let hint = error.remedy().unwrap();
            assert!(hint.contains("mdadm --stop /dev/md/db;"), "{hint}");
        }
    }

    #[test]
    fn news_of_legs() {
        let mut record = record();
        assert!(!record.note(&[true, true], 5));
        record.legs[1].fill = true;
        assert!(record.note(&[true, false], 5));
        assert!(record.legs[1].fill);
        assert!(record.note(&[true, true], 6));
        assert!(!record.legs[1].fill);
        assert_eq!((record.legs[0].since, record.legs[1].since), (1, 6));
    }

    #[test]
    fn a_mirror_that_was_stopped_stays_so() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::of(&System::new(Some(root.path()), None));
        let name = MirrorName::new("db").unwrap();
        assert!(!records.is_held(&name));
        records.hold(&name, true).unwrap();
        assert!(records.is_held(&name));
        records.hold(&name, false).unwrap();
        records.hold(&name, false).unwrap();
        assert!(!records.is_held(&name));
        drop(records.lock_mirror(&name).unwrap());
        drop(records.lock_mirror(&name).unwrap());
    }
}
