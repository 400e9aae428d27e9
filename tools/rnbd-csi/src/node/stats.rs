// SPDX-License-Identifier: GPL-2.0

//! How full a volume is, and whether it works.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;

use super::bytes;
use super::Node;
use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::unit;
use crate::messages::NodeGetVolumeStatsRequest;
use crate::messages::NodeGetVolumeStatsResponse;
use crate::messages::VolumeCondition;
use crate::messages::VolumeUsage;
use crate::mounts;
use crate::mounts::Mount;
use crate::volume::needed;
use crate::volume::VolumeId;

impl Node {
    /// The statistics of a volume that is staged or published at a path.
    pub(crate) fn stats(
        &self,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse> {
        needed("volume_path", &request.volume_path)?;
        let id = VolumeId::of_request(&request.volume_id)?;
        let device = self.devices.need(&id)?;
        let mut condition = self.devices.condition(&id)?;
        let path = mounts::resolved("volume_path", &request.volume_path)?;
        let number = mounts::device_number(&self.devices.node(&device))?;
        let usage = match mounts::at(&path)? {
            Some(mount) if mount.device == number => {
                if let Some(message) = stopped(&path, number)? {
                    condition = VolumeCondition {
                        abnormal: true,
                        message,
                    };
                }
                of_file_system(&path)?
            }
            _ if is_at(&path, number)? => vec![VolumeUsage {
                total: bytes(&device),
                unit: unit::BYTES,
                ..VolumeUsage::default()
            }],
            _ => {
                let why = format!("volume {} is not at {:?}", request.volume_id, path);
                return Err(Status::not_found(why));
            }
        };
        Ok(NodeGetVolumeStatsResponse {
            usage,
            volume_condition: Some(condition),
        })
    }
}

/// Whether the device is at a path; or the path is the folder that a block volume was staged at,
/// which is empty. A volume whose file system is mounted at another path is no block volume.
fn is_at(path: &Path, number: mounts::DeviceNumber) -> Result<bool> {
    let is_mounted = |mount: &Mount| mount.device == number || mount.target == path;
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(!mounts::all()?.iter().any(is_mounted)
            && fs::read_dir(path)
                .map_err(|error| Status::io(path.display(), error))?
                .next()
                .is_none()),
        Ok(_) => Ok(mounts::device_number(path).is_ok_and(|found| found == number)),
        Err(_) => Ok(false),
    }
}

/// Why the file system of a device, which is mounted at a path, does not work any more.
fn stopped(path: &Path, number: mounts::DeviceNumber) -> Result<Option<String>> {
    // Of a place that was published read-only it could not be told.
    let is_stopped = |mount: &Mount| mount.device == number && mount.is_stopped();
    if mounts::all()?.iter().any(is_stopped) {
        let why = "the file system takes no writes any more after an error; see the kernel log";
        return Ok(Some(why.to_owned()));
    }
    // An XFS that has shut down says so of all of its files.
    Ok(fs::metadata(path)
        .err()
        .map(|error| format!("the file system cannot be read: {error}")))
}

fn of_file_system(path: &Path) -> Result<Vec<VolumeUsage>> {
    let found = statvfs(path).map_err(|error| Status::io(path.display(), error))?;
    let bytes = |blocks: u64| blocks.checked_mul(found.f_frsize);
    Ok(vec![
        usage(
            unit::BYTES,
            bytes(found.f_blocks),
            bytes(found.f_bfree),
            bytes(found.f_bavail),
        ),
        usage(
            unit::INODES,
            Some(found.f_files),
            Some(found.f_ffree),
            Some(found.f_favail),
        ),
    ])
}

/// What is used, of figures that the file system gives; the largest number in place of one that
/// cannot be told.
fn usage(unit: i32, total: Option<u64>, free: Option<u64>, available: Option<u64>) -> VolumeUsage {
    let number = |value: Option<u64>| {
        value
            .and_then(|value| i64::try_from(value).ok())
            .unwrap_or(i64::MAX)
    };
    let (total, free) = (number(total), number(free));
    VolumeUsage {
        available: number(available),
        total,
        used: total
            .checked_sub(free)
            .filter(|used| *used >= 0)
            .unwrap_or(0),
        unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_never_negative() {
        let used = usage(unit::BYTES, Some(100), Some(40), Some(30));
        assert_eq!((used.total, used.used, used.available), (100, 60, 30));
        let odd = usage(unit::BYTES, Some(1), Some(2), None);
        assert_eq!((odd.used, odd.available), (0, i64::MAX));
    }

    #[test]
    fn only_a_block_volume_is_at_an_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mounted = mounts::all().unwrap()[0].device;
        let is_at = |number| is_at(folder.path(), number).unwrap();
        assert!(!is_at(mounted) && is_at((u32::MAX, 0)));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(!is_at((u32::MAX, 0)));
    }

    #[test]
    fn a_file_system_has_bytes_and_inodes() {
        let found = of_file_system(Path::new("/")).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].total > 0 && found[0].used <= found[0].total);
    }
}
