// SPDX-License-Identifier: GPL-2.0

//! Locks between the drivers of a machine: files in `/run/rnbd`.
//!
//! A machine may have several drivers, each with a name of its own. A lock ends with its process,
//! however the process ends.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;

use rnbdctl::System;
use rustix::fs::flock;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::grpc::Result;
use crate::grpc::Status;

/// The folder of the locks, below `/`.
const FOLDER: &str = "run/rnbd";

/// A lock. Dropping it ends the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until nothing else has the lock of that name, in this process or in another process.
    pub(crate) fn wait(system: &System, name: &str) -> Result<Self> {
        let lock = Self::locked(system, name, FlockOperation::LockExclusive)?;
        lock.ok_or_else(|| Status::internal(format!("the lock {name} is taken")))
    }

    /// Takes the lock of that name; `None` if something else has it.
    pub(crate) fn take(system: &System, name: &str) -> Result<Option<Self>> {
        Self::locked(system, name, FlockOperation::NonBlockingLockExclusive)
    }

    fn locked(system: &System, name: &str, how: FlockOperation) -> Result<Option<Self>> {
        let folder = system.file(FOLDER);
        let path = folder.join(format!("{name}.lock"));
        let what = |error: io::Error| Status::io(path.display(), error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = fs::create_dir_all(&folder).and_then(|()| options.open(&path));
        let file = file.map_err(what)?;
        match flock(&file, how) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(what(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_once() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let lock = Lock::take(&system, "a").unwrap().unwrap();
        assert!(Lock::take(&system, "a").unwrap().is_none());
        assert!(Lock::take(&system, "b").unwrap().is_some());
        let waiting = std::thread::spawn(move || Lock::wait(&system, "a").map(drop));
        drop(lock);
        assert_eq!(waiting.join().unwrap(), Ok(()));
    }
}
