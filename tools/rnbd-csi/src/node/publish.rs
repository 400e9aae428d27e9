// SPDX-License-Identifier: GPL-2.0

//! Publishing: a container gets the folder or the device of a staged volume, at a path of its own.

use std::fs;
use std::fs::FileType;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rnbdctl::model::AccessMode as Access;

use super::Node;
use crate::capability::Form;
use crate::capability::Wanted;
use crate::fail;
use crate::grpc::Code;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Empty;
use crate::messages::NodePublishVolumeRequest;
use crate::messages::NodeUnpublishVolumeRequest;
use crate::mounts;
use crate::mounts::DeviceNumber;
use crate::mounts::Mount;
use crate::volume::needed;
use crate::volume::VolumeId;

/// What is published where.
struct Publication<'a> {
    source: &'a Path,
    target: &'a Path,
    device: DeviceNumber,
    /// The device's name.
    name: &'a str,
    read_only: bool,
}

impl Node {
    /// Publishes a staged volume. What is published already is left as it is.
    pub(crate) fn publish(&self, request: &NodePublishVolumeRequest) -> Result<Empty> {
        let id = VolumeId::of_request(&request.volume_id)?;
        let target = mounts::target("target_path", &request.target_path)?;
        let staging = mounts::target("staging_target_path", &request.staging_target_path)?;
        let wanted = Wanted::of_request(request.volume_capability.as_ref())?;
        let _turn = self.busy.turn(&id.to_string())?;
        // Two volumes must not be mounted at one place, on top of each other.
        let _place = self.busy.turn(&target.to_string_lossy())?;
        let not_staged = || {
            let why = format!("volume {} is not staged on this node", request.volume_id);
            Status::precondition(why)
        };
        let found = self.devices.find(&id)?.ok_or_else(not_staged)?;
        if found.access != Some(wanted.access) {
            let why = "the volume is staged with another access mode";
            return Err(Status::precondition(why));
        }
        let node = self.devices.node(&found);
        let device = mounts::device_number(&node)?;
        let publication = Publication {
            source: match wanted.form {
                Form::Block => &node,
                Form::Mount { .. } => &staging,
            },
            target: &target,
            device,
            name: &found.name,
            read_only: request.readonly || wanted.access == Access::Ro,
        };
        if wanted.is_single {
            publication.check_single()?;
        }
        match wanted.form {
            Form::Block => publication.block(request.readonly, wanted.access)?,
            Form::Mount { .. } => {
                let staged = mounts::at(&staging)?;
                let staged = staged.filter(|mount| mount.device == device);
                publication.folder(&staged.ok_or_else(not_staged)?)?;
            }
        }
        Ok(Empty {})
    }

    /// Undoes what publishing did, as far as it was done.
    pub(crate) fn unpublish(&self, request: &NodeUnpublishVolumeRequest) -> Result<Empty> {
        needed("volume_id", &request.volume_id)?;
        let target = mounts::target("target_path", &request.target_path)?;
        let _turn = self.busy.turn(&VolumeId::key(&request.volume_id))?;
        let _place = self.busy.turn(&target.to_string_lossy())?;
        mounts::unmount_volumes(&target, &self.devices.mirrors()?)?;
        fail::point("unpublish.unmounted");
        remove(&target)?;
        fail::point("unpublish.removed");
        Ok(Empty {})
    }
}

impl Publication<'_> {
    /// A folder. `staged` is the mount that it shows.
    fn folder(&self, staged: &Mount) -> Result {
        if let Some(mount) = mounts::at(self.target)? {
            if mount.device != self.device {
                return Err(mounts::something_else(self.target));
            }
            let read_only = self.read_only || staged.is_read_only();
            return match mount.is_read_only() == read_only {
                true => Ok(()),
                false => Err(self.other_way(mount.is_read_only())),
            };
        }
        made(fs::create_dir(self.target), self.target, FileType::is_dir)?;
        fail::point("publish.created");
        mounts::bind(self.source, self.target, self.read_only)?;
        fail::point("publish.bound");
        Ok(())
    }

    fn other_way(&self, is_read_only: bool) -> Status {
        let how = if is_read_only {
            "read-only"
        } else {
            "for writing"
        };
        let why = format!(
            "the volume is published {how} at {}; unpublish it first",
            self.target.display()
        );
        Status::new(Code::AlreadyExists, why)
    }

    /// A device. That nothing can be written is up to the device, not to the mount.
    fn block(&self, asked_read_only: bool, access: Access) -> Result {
        if asked_read_only && access != Access::Ro {
            return Err(Status::invalid(
                "a block device is read-only by its access mode only: give \
                 SINGLE_NODE_READER_ONLY or MULTI_NODE_READER_ONLY",
            ));
        }
        let is_file_system = |mount: &Mount| mount.device == self.device;
        if let Some(mount) = mounts::all()?.iter().find(|mount| is_file_system(mount)) {
            return Err(Status::precondition(format!(
                "the volume is staged as a file system at {}, and cannot be a block device, too",
                mount.target.display()
            )));
        }
        if mounts::at(self.target)?.is_some() {
            return match mounts::device_number(self.target) {
                Ok(number) if number == self.device => Ok(()),
                _ => Err(mounts::something_else(self.target)),
            };
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(self.target);
        made(file, self.target, FileType::is_file)?;
        fail::point("publish.created");
        mounts::bind(self.source, self.target, false)?;
        fail::point("publish.bound");
        Ok(())
    }

    /// An error if another container has the volume.
    ///
    /// Where it is published already, the orchestrator may have mounted it at places of its own:
    /// as the device, or as folders of it.
    fn check_single(&self) -> Result {
        let mut mounts = mounts::all()?;
        mounts.retain(|mount| mount.shows(self.device, self.name));
        if mounts.iter().any(|mount| mount.target == self.target) {
            return Ok(());
        }
        match mounts.iter().find(|mount| mount.target != self.source) {
            None => Ok(()),
            Some(other) => Err(Status::precondition(format!(
                "the volume is for one container, and is published at {}",
                other.target.display()
            ))),
        }
    }
}

/// An error unless something was made at `target`, or is there from the call before, and is what is
/// needed: neither a link nor anything else is mounted at, or written to.
fn made<T>(made: io::Result<T>, target: &Path, is_good: fn(&FileType) -> bool) -> Result {
    let what = |error: io::Error| Status::io(target.display(), error);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(target).map_err(what)?;
            match is_good(&found.file_type()) {
                true => Ok(()),
                false => Err(Status::precondition(format!(
                    "{} exists and is not of this volume; remove it",
                    target.display()
                ))),
            }
        }
        made => made.map(|_| ()).map_err(what),
    }
}

/// Removes what publishing has made: an empty folder, or an empty file.
fn remove(target: &Path) -> Result {
    let found = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| Status::io(target.display(), error))?,
    };
    let removed = match (found.is_dir(), found.len()) {
        (true, _) => fs::remove_dir(target),
        (false, 0) if found.is_file() => fs::remove_file(target),
        (false, _) => Err(io::Error::other("this driver has not made it")),
    };
    removed.map_err(|error| Status::io(format!("removing {}", target.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_and_files_are_mounted_at() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target");
        let make = || made(fs::create_dir(&path), &path, FileType::is_dir);
        // Made, and there from the call before.
        assert_eq!((make(), make()), (Ok(()), Ok(())));
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        let open = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).open(&path)
        };
        for error in [
            make().unwrap_err(),
            made(open(), &path, FileType::is_file).unwrap_err(),
        ] {
            assert_eq!(error.code, Code::FailedPrecondition);
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(made(open(), &path, FileType::is_file), Ok(()));
        assert_eq!(made(open(), &path, FileType::is_file), Ok(()));
        assert!(make().is_err());
    }

    #[test]
    fn only_what_is_empty_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target");
        assert_eq!(remove(&path), Ok(()));
        fs::write(&path, "").unwrap();
        assert_eq!(remove(&path), Ok(()));
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert_eq!(remove(&path), Ok(()));
        fs::write(&path, "data").unwrap();
        assert!(remove(&path).is_err() && path.exists());
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("data")).unwrap();
        assert!(remove(&path).is_err() && path.join("data").exists());
    }
}
