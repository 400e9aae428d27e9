// SPDX-License-Identifier: GPL-2.0

//! Publishing: a container gets the folder or the device of a staged volume, at a path of its own.

use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use rnbdctl::model::AccessMode as Access;
use rnbdctl::model::ClientDevice;

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
    read_only: bool,
}

impl Node {
    /// Publishes a staged volume. What is published already is left as it is.
    pub(crate) fn publish(&self, request: &NodePublishVolumeRequest) -> Result<Empty> {
        let id = VolumeId::of_request(&request.volume_id)?;
        let target = mounts::resolved("target_path", &request.target_path)?;
        let staging = mounts::resolved("staging_target_path", &request.staging_target_path)?;
        let wanted = Wanted::of_request(request.volume_capability.as_ref())?;
        let _turn = self.busy.turn(&request.volume_id)?;
        let not_staged = || {
            let why = format!("volume {} is not staged on this node", request.volume_id);
            Status::precondition(why)
        };
        let found = self.disks.find(&id)?.ok_or_else(not_staged)?;
        if found.access_mode != Some(wanted.access) {
            let why = "it is staged with another access mode than it is to be published with";
            return Err(Status::precondition(why));
        }
        let node = self.disks.node(&found);
        let device = mounts::device_number(&node)?;
        let publication = Publication {
            source: match wanted.form {
                Form::Block => &node,
                Form::Mount { .. } => &staging,
            },
            target: &target,
            device,
            read_only: request.readonly || wanted.access == Access::Ro,
        };
        if wanted.is_single {
            publication.check_single(&found)?;
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
        let target = mounts::resolved("target_path", &request.target_path)?;
        let _turn = self.busy.turn(&request.volume_id)?;
        mounts::unmount_all(&target)?;
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
                return Err(self.something_else());
            }
            if mount.is_read_only() && !self.read_only && !staged.is_read_only() {
                let why = format!("{} is published read-only", self.target.display());
                return Err(Status::new(Code::AlreadyExists, why));
            }
            return self.restrict(&mount);
        }
        match fs::create_dir(self.target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Status::io(self.target.display(), error));
            }
            _ => fail::point("publish.created"),
        }
        mounts::bind(self.source, self.target)?;
        fail::point("publish.bound");
        match mounts::at(self.target)? {
            Some(mount) => self.restrict(&mount)?,
            None => {
                let why = format!("{} was unmounted meanwhile", self.target.display());
                return Err(Status::new(Code::Aborted, why));
            }
        }
        fail::point("publish.restricted");
        Ok(())
    }

    /// Makes the mount read-only if it shall be and is not yet.
    fn restrict(&self, mount: &Mount) -> Result {
        match self.read_only && !mount.is_read_only() {
            true => mounts::make_read_only(mount),
            false => Ok(()),
        }
    }

    /// A device. That nothing can be written is up to the device, not to the mount.
    fn block(&self, asked_read_only: bool, access: Access) -> Result {
        if asked_read_only && access != Access::Ro {
            return Err(Status::invalid(
                "a block device is read-only only if its access mode is: ask for \
                 SINGLE_NODE_READER_ONLY or MULTI_NODE_READER_ONLY",
            ));
        }
        if mounts::at(self.target)?.is_some() {
            return match mounts::device_number(self.target) {
                Ok(number) if number == self.device => Ok(()),
                _ => Err(self.something_else()),
            };
        }
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.target)
            .map_err(|error| Status::io(self.target.display(), error))?;
        fail::point("publish.created");
        mounts::bind(self.source, self.target)?;
        fail::point("publish.bound");
        Ok(())
    }

    fn something_else(&self) -> Status {
        Status::precondition(format!(
            "something else is mounted at {}; unmount it",
            self.target.display()
        ))
    }

    /// An error if another container has the volume.
    fn check_single(&self, device: &ClientDevice) -> Result {
        let root = Path::new("/").join(&device.name);
        let is_of_volume = |mount: &Mount| mount.device == self.device || mount.root == root;
        let is_other = |mount: &Mount| mount.target != self.source && mount.target != self.target;
        let mounts = mounts::all()?;
        let mut others = mounts
            .iter()
            .filter(|mount| is_of_volume(mount) && is_other(mount));
        match others.next() {
            None => Ok(()),
            Some(other) => Err(Status::precondition(format!(
                "the volume is for one container, and is published at {}",
                other.target.display()
            ))),
        }
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
        (false, _) => Err(io::Error::other("it has not been made by this driver")),
    };
    removed.map_err(|error| Status::io(format!("removing {}", target.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

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
