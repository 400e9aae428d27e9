// SPDX-License-Identifier: GPL-2.0

//! The records of mirrored volumes that were on this node, and are not now:
//! `/var/lib/rnbd/volumes/MIRROR.json`.
//!
//! The record of a mirror that was stopped in order allows this node to start the mirror from one
//! leg, as long as no other node has reserved that leg since. It is kept where no other program
//! takes the volume for a mirror of this machine: the volume may be on another node.

use std::fs;
use std::io;
use std::path::PathBuf;

use rnbdctl::mirror::record::Records;
use rnbdctl::mirror::MirrorName;
use rnbdctl::System;

use crate::grpc::Result;
use crate::grpc::Status;

/// The folder of the parked records, below `/`.
const FOLDER: &str = "var/lib/rnbd/volumes";
/// The most records that are parked; the oldest ones go. A volume may be deleted, and a node is not
/// told.
const MOST: usize = 1000;

/// The parked records of this machine.
#[derive(Debug)]
pub(super) struct Parked {
    records: Records,
    folder: PathBuf,
}

impl Parked {
    /// Those of this machine.
    pub(super) fn of(system: &System) -> Self {
        Self {
            records: Records::of(system),
            folder: system.file(FOLDER),
        }
    }

    /// Parks the record of a mirror that was stopped, if there is one.
    pub(super) fn park(&self, mirror: &MirrorName) -> Result {
        fs::create_dir_all(&self.folder)
            .map_err(|error| Status::io(self.folder.display(), error))?;
        self.records.put_aside(mirror, &self.file(mirror))?;
        self.bound(MOST)
    }

    /// Gives a mirror its parked record back, if there is one, and it has no other.
    pub(super) fn fetch(&self, mirror: &MirrorName) -> Result {
        Ok(self.records.take_back(mirror, &self.file(mirror))?)
    }

    fn file(&self, mirror: &MirrorName) -> PathBuf {
        self.folder.join(format!("{mirror}.json"))
    }

    /// Removes the oldest records until at most `most` are left.
    fn bound(&self, most: usize) -> Result {
        let what = |error: io::Error| Status::io(self.folder.display(), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(what)? {
            let entry = entry.map_err(what)?;
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            found.push((changed.map_err(what)?, entry.path()));
        }
        found.sort();
        let surplus = found.len().saturating_sub(most);
        for (_, path) in found.into_iter().take(surplus) {
            fs::remove_file(&path).map_err(|error| Status::io(path.display(), error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of the library's records.
    const RECORDS: &str = "var/lib/rnbd/mirrors";

    #[test]
    fn a_record_comes_back() {
        let root = tempfile::tempdir().unwrap();
        let parked = Parked::of(&System::new(Some(root.path()), None));
        let name = |text: &str| MirrorName::new(text).unwrap();
        let record = |text: &str| root.path().join(RECORDS).join(format!("{text}.json"));
        fs::create_dir_all(root.path().join(RECORDS)).unwrap();
        // Nothing is there.
        assert_eq!(parked.fetch(&name("a")), Ok(()));
        assert_eq!(parked.park(&name("a")), Ok(()));
        fs::write(record("a"), "old").unwrap();
        parked.park(&name("a")).unwrap();
        assert!(!record("a").exists());
        parked.fetch(&name("a")).unwrap();
        assert_eq!(fs::read_to_string(record("a")).unwrap(), "old");
        // The record of a mirror that runs stays.
        parked.park(&name("a")).unwrap();
        fs::write(record("a"), "new").unwrap();
        parked.fetch(&name("a")).unwrap();
        assert_eq!(fs::read_to_string(record("a")).unwrap(), "new");
    }

    #[test]
    fn the_oldest_records_go() {
        let root = tempfile::tempdir().unwrap();
        let parked = Parked::of(&System::new(Some(root.path()), None));
        fs::create_dir_all(&parked.folder).unwrap();
        for (index, name) in ["c", "a", "b"].iter().enumerate() {
            let file = fs::File::create(parked.folder.join(name)).unwrap();
            let age = std::time::Duration::from_secs(1_000_000 + index as u64);
            file.set_modified(std::time::UNIX_EPOCH + age).unwrap();
        }
        parked.bound(2).unwrap();
        assert!(!parked.folder.join("c").exists());
        assert_eq!(fs::read_dir(&parked.folder).unwrap().count(), 2);
        parked.bound(2).unwrap();
        assert_eq!(fs::read_dir(&parked.folder).unwrap().count(), 2);
    }
}
