// SPDX-License-Identifier: GPL-2.0

//! Volumes as files in a folder.
//!
//! A file is made under a name that begins with a dot, gets all of its room, and then its name. It
//! is deleted the other way round. Unwritten room of a file reads as zeroes, so nobody sees what
//! was there before.

use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::fallocate;
use rustix::fs::flock;
use rustix::fs::statvfs;
use rustix::fs::FallocateFlags;
use rustix::fs::FlockOperation;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::name;
use super::IsMapped;
use super::Store;
use super::Stored;
use crate::fail;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;

/// Sizes are whole MiB.
const UNIT: u64 = 1 << 20;
/// The end of the name of a file that is being made.
const NEW: &str = ".new";
/// The end of the name of a file that is being deleted.
const GONE: &str = ".gone";

/// Volumes in a folder.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    /// It is locked: no other driver works in the folder.
    handle: File,
}

impl Files {
    /// Volumes in `folder`, which must be there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let what = |error: io::Error| Status::io(folder.display(), error);
        let folder = folder.canonicalize().map_err(what)?;
        let handle = File::open(&folder).map_err(what)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder, handle }),
            Err(Errno::WOULDBLOCK) => Err(Status::precondition(format!(
                "another driver makes volumes in {}; end that driver first",
                folder.display()
            ))),
            Err(error) => Err(what(error.into())),
        }
    }

    /// The file of a volume that is being made or deleted.
    fn hidden(&self, name: &str, end: &str) -> PathBuf {
        self.folder.join(format!(".{name}{end}"))
    }

    /// Gives a file another name, for good.
    fn rename(&self, from: &Path, to: &Path) -> Result {
        fs::rename(from, to)
            .and_then(|()| self.handle.sync_all())
            .map_err(|error| Status::io(from.display(), error))
    }

    fn remove(&self, file: &Path) -> Result {
        match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed
                .and_then(|()| self.handle.sync_all())
                .map_err(|error| Status::io(file.display(), error)),
        }
    }

    /// The entries of the folder, by name.
    fn entries(&self) -> Result<Vec<String>> {
        let what = |error: io::Error| Status::io(self.folder.display(), error);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(what)? {
            let name = entry.map_err(what)?.file_name();
            names.extend(name.into_string());
        }
        Ok(names)
    }

    fn stored(&self, name: &str) -> Result<Option<Stored>> {
        let path = self.path(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Ok(Some(Stored {
                name: name.to_owned(),
                bytes: found.len(),
            })),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Status::io(path.display(), error)),
        }
    }
}

impl Store for Files {
    fn list(&self) -> Result<Vec<Stored>> {
        let mut found = Vec::new();
        for name in self.entries()?.iter().filter(|name| name::is_ours(name)) {
            found.extend(self.stored(name)?);
        }
        Ok(found)
    }

    fn find(&self, name: &str) -> Result<Option<Stored>> {
        self.stored(name)
    }

    fn create(&self, name: &str, bytes: u64) -> Result<Stored> {
        let new = self.hidden(name, NEW);
        // What is there was left by a driver that was killed, perhaps with another size.
        let made =
            open(&new, OFlags::CREATE | OFlags::TRUNC).and_then(|file| reserve(&file, &new, bytes));
        if let Err(status) = made {
            self.remove(&new)?;
            return Err(status);
        }
        fail::point("create.allocated");
        self.rename(&new, &self.path(name))?;
        fail::point("create.named");
        Ok(Stored {
            name: name.to_owned(),
            bytes,
        })
    }

    fn grow(&self, stored: &Stored, bytes: u64) -> Result<u64> {
        let path = self.path(&stored.name);
        let file = open(&path, OFlags::empty())?;
        if let Err(status) = reserve(&file, &path, bytes) {
            // Room behind the end goes back.
            file.set_len(stored.bytes)
                .map_err(|error| Status::io(path.display(), error))?;
            return Err(status);
        }
        fail::point("extend.grown");
        Ok(bytes)
    }

    fn delete(&self, stored: &Stored, is_mapped: &IsMapped<'_>) -> Result<bool> {
        let path = self.path(&stored.name);
        let gone = self.hidden(&stored.name, GONE);
        let renamed = self.rename(&path, &gone);
        fail::point("delete.renamed");
        // From now on no node can map it: a node that has it now has mapped it before.
        let deleted =
            renamed
                .and_then(|()| is_mapped(stored))
                .and_then(|is_mapped| match is_mapped {
                    true => Ok(false),
                    false => self.remove(&gone).map(|()| true),
                });
        match deleted {
            Ok(true) => fail::point("delete.removed"),
            // A volume that is not deleted keeps its name, by which the next call finds it.
            _ if gone.exists() && !path.exists() => {
                self.rename(&gone, &path).map_err(|status| {
                    let first = deleted.as_ref().err().map(|first| first.message.as_str());
                    let why = format!(
                        "{}; renaming {}: {}; start the driver again, which tidies up",
                        first.unwrap_or("a node has mapped the volume"),
                        gone.display(),
                        status.message
                    );
                    Status::new(status.code, why)
                })?
            }
            _ => (),
        }
        deleted
    }

    fn available(&self) -> Result<u64> {
        let found =
            statvfs(&self.folder).map_err(|error| Status::io(self.folder.display(), error))?;
        let bytes = found.f_bavail.checked_mul(found.f_frsize);
        let units = bytes.unwrap_or(u64::MAX).checked_div(UNIT);
        Ok(units.and_then(|units| units.checked_mul(UNIT)).unwrap_or(0))
    }

    fn unit(&self) -> Result<u64> {
        Ok(UNIT)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn tidy(&self, is_mapped: &IsMapped<'_>) -> Result {
        for entry in self.entries()? {
            let Some(hidden) = entry.strip_prefix('.') else {
                continue;
            };
            let file = self.folder.join(&entry);
            if let Some(name) = hidden.strip_suffix(NEW).filter(|name| name::is_ours(name)) {
                // The orchestrator asks for it again if it wants it still.
                self.remove(&self.hidden(name, NEW))?;
            }
            if let Some(name) = hidden.strip_suffix(GONE).filter(|name| name::is_ours(name)) {
                let stored = Stored {
                    name: name.to_owned(),
                    bytes: 0,
                };
                match is_mapped(&stored)? && !self.path(name).exists() {
                    true => self.rename(&file, &self.path(name))?,
                    false => self.remove(&file)?,
                }
            }
        }
        Ok(())
    }
}

/// Opens a file of the folder to be written. No link there has the driver write to another file.
fn open(path: &Path, more: OFlags) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(|error| Status::io(path.display(), error))
}

/// Gives a file so many bytes, and room for all of them.
fn reserve(file: &File, path: &Path, bytes: u64) -> Result {
    let code = |errno: Errno| match errno {
        Errno::NOSPC | Errno::DQUOT => Code::ResourceExhausted,
        Errno::FBIG => Code::OutOfRange,
        _ => Code::Internal,
    };
    fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes).map_err(|errno| {
        let why = format!("{bytes} bytes for {}: {errno}", path.display());
        Status::new(code(errno), why)
    })?;
    file.set_len(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| Status::io(path.display(), error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn folder() -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        (folder, files)
    }

    fn mapped(_: &Stored) -> Result<bool> {
        Ok(true)
    }

    fn free(_: &Stored) -> Result<bool> {
        Ok(false)
    }

    #[test]
    fn a_volume_has_all_of_its_room() {
        let (folder, files) = folder();
        let stored = files.create("csi-a", 2 * MIB).unwrap();
        let path = folder.path().join("csi-a");
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.len(), stored.bytes), (2 * MIB, 2 * MIB));
        assert!(found.blocks() * 512 >= 2 * MIB);
        assert_eq!(files.list().unwrap(), [stored.clone()]);
        assert_eq!(files.grow(&stored, 3 * MIB), Ok(3 * MIB));
        assert_eq!(files.find("csi-a").unwrap().unwrap().bytes, 3 * MIB);
        assert_eq!(files.delete(&stored, &mapped), Ok(false));
        assert!(path.exists());
        assert_eq!(files.delete(&stored, &free), Ok(true));
        assert_eq!(files.list().unwrap(), []);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_volume_that_could_not_be_deleted_is_there() {
        let (folder, files) = folder();
        let stored = files.create("csi-a", MIB).unwrap();
        let failed = |_: &Stored| Err(Status::internal("x"));
        assert_eq!(files.delete(&stored, &failed), Err(Status::internal("x")));
        assert_eq!(files.list().unwrap(), [stored.clone()]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(files.delete(&stored, &free), Ok(true));
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let (folder, files) = folder();
        for name in ["www.img", "csi-", ".hidden.new", "csi-A", ".csi-.new"] {
            fs::write(folder.path().join(name), "data").unwrap();
        }
        fs::create_dir(folder.path().join("csi-folder")).unwrap();
        assert_eq!(files.list().unwrap(), []);
        files.tidy(&free).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
    }

    #[test]
    fn links_are_not_followed() {
        let (folder, files) = folder();
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), "precious").unwrap();
        let content = || fs::read_to_string(outside.path()).unwrap();
        for name in [".csi-a.new", "csi-b"] {
            std::os::unix::fs::symlink(outside.path(), folder.path().join(name)).unwrap();
        }
        assert!(files.create("csi-a", MIB).is_err());
        assert_eq!(content(), "precious");
        assert_eq!(files.find("csi-b"), Ok(None));
        let linked = Stored {
            name: "csi-b".to_owned(),
            bytes: 8,
        };
        assert!(files.grow(&linked, MIB).is_err());
        assert_eq!(content(), "precious");
        // The link that was in the way is gone, and the file can be made.
        assert!(files.create("csi-a", MIB).is_ok());
        assert_eq!(content(), "precious");
    }

    #[test]
    fn what_a_killed_driver_has_left_is_tidied_up() {
        let (folder, files) = folder();
        for name in [".csi-a.new", ".csi-b.gone"] {
            fs::write(folder.path().join(name), "data").unwrap();
        }
        assert_eq!(files.list().unwrap(), []);
        // A node has mapped it before it was renamed: it stays.
        files.tidy(&mapped).unwrap();
        assert_eq!(files.list().unwrap()[0].name, "csi-b");
        fs::write(folder.path().join(".csi-c.gone"), "data").unwrap();
        files.tidy(&free).unwrap();
        assert_eq!(files.list().unwrap().len(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_volume_that_does_not_fit_leaves_nothing() {
        let (folder, files) = folder();
        let error = files.create("csi-a", 1 << 60).unwrap_err();
        assert!(
            matches!(error.code, Code::ResourceExhausted | Code::OutOfRange),
            "{error:?}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_driver_in_a_folder() {
        let (folder, _files) = folder();
        let error = Files::open(folder.path()).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        assert!(Files::open(&folder.path().join("missing")).is_err());
    }
}
