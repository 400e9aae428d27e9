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
use rnbdctl::Kind;
use rnbdctl::System;

use crate::grpc::Result;
use crate::grpc::Status;

/// The folder of the parked records, below `/`.
const FOLDER: &str = "var/lib/rnbd/volumes";
/// The most records that are parked. The oldest records are removed: a node is not told when a
/// volume is deleted.
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

    /// Moves the parked record of a mirror back to the records, if there is a parked record, and
    /// the mirror has no record there. A record that this version cannot read stays parked: without
    /// the record the mirror starts as on a node that never had the volume.
    pub(super) fn fetch(&self, mirror: &MirrorName) -> Result {
        let file = self.file(mirror);
        self.records.take_back(mirror, &file)?;
        match self.records.load(mirror) {
            Err(error) if error.kind() == Kind::BadConfig => {
                let (what, why) = (error.what(), error.why());
                eprintln!("rnbd-csi: {what}: {why}; the volume is staged without the record");
                Ok(self.records.put_aside(mirror, &file)?)
            }
            loaded => Ok(loaded.map(drop)?),
        }
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
            // Another call may have taken the record.
            let changed = if_there(changed).map_err(what)?;
            found.extend(changed.map(|changed| (changed, entry.path())));
        }
        found.sort();
        let surplus = found.len().saturating_sub(most);
        for (_, path) in found.into_iter().take(surplus) {
            if_there(fs::remove_file(&path)).map_err(|error| Status::io(path.display(), error))?;
        }
        Ok(())
    }
}

/// `None` if a file is not there.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use rnbdctl::mirror::Record;

    use super::*;

    #[test]
    fn a_record_comes_back() {
        let root = tempfile::tempdir().unwrap();
        let parked = Parked::of(&System::new(Some(root.path()), None));
        let records = &parked.records;
        let name = MirrorName::new("a").unwrap();
        let record = |uuid: &str| Record::new(name.clone(), uuid.repeat(16), true, Vec::new());
        // Nothing is there.
        assert_eq!(parked.fetch(&name), Ok(()));
        assert_eq!(parked.park(&name), Ok(()));
        records.save(&record("ab")).unwrap();
        parked.park(&name).unwrap();
        assert_eq!(records.load(&name).unwrap(), None);
        parked.fetch(&name).unwrap();
        assert_eq!(records.load(&name).unwrap(), Some(record("ab")));
        // The record of a mirror that runs stays.
        parked.park(&name).unwrap();
        records.save(&record("cd")).unwrap();
        parked.fetch(&name).unwrap();
        assert_eq!(records.load(&name).unwrap(), Some(record("cd")));
        // A record that cannot be read stays where it is.
        parked.park(&name).unwrap();
        fs::write(parked.file(&name), "{}").unwrap();
        assert_eq!(parked.fetch(&name), Ok(()));
        assert_eq!(records.load(&name).unwrap(), None);
        assert_eq!(fs::read_to_string(parked.file(&name)).unwrap(), "{}");
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
