// SPDX-License-Identifier: GPL-2.0

//! What is mounted where, and mounting.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::major;
use rustix::fs::minor;
use rustix::io::Errno;
use rustix::mount::mount_bind;
use rustix::mount::mount_remount;
use rustix::mount::unmount;
use rustix::mount::MountFlags;
use rustix::mount::UnmountFlags;

use crate::grpc::Result;
use crate::grpc::Status;

/// The most mounts on top of each other that are taken away.
const MAX_LAYERS: usize = 16;

/// The numbers of a device, major and minor.
pub(crate) type DeviceNumber = (u32, u32);

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Of the file system: for one on a disk that of the disk.
    pub(crate) device: DeviceNumber,
    /// Which part of the file system is mounted; `/` for all of it.
    pub(crate) root: PathBuf,
    /// Where.
    pub(crate) target: PathBuf,
    options: Vec<String>,
    /// Whether the file system itself takes no writes: the kernel makes it so after an error.
    pub(crate) is_stopped: bool,
}

impl Mount {
    /// Whether nothing can be written by way of this mount.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has("ro")
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|have| have == option)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(2);
        let (major, minor) = words.next()?.split_once(':')?;
        Some(Self {
            device: (major.parse().ok()?, minor.parse().ok()?),
            root: unescaped(words.next()?),
            target: unescaped(words.next()?),
            options: words.next()?.split(',').map(str::to_owned).collect(),
            // Behind optional fields come a hyphen, the kind, the source and these options.
            is_stopped: words
                .skip_while(|word| *word != "-")
                .nth(3)
                .is_some_and(|options| options.split(',').any(|option| option == "ro")),
        })
    }
}

/// All mounts that this program sees, in the order in which they were made.
pub(crate) fn all() -> Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")
        .map_err(|error| Status::io("/proc/self/mountinfo", error))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(Mount::parse).collect())
}

/// What is mounted at `target`, a path as [`resolved`] gives it.
pub(crate) fn at(target: &Path) -> Result<Option<Mount>> {
    let mut mounts = all()?;
    mounts.retain(|mount| mount.target == target);
    Ok(mounts.pop())
}

/// A path without the escapes of the kernel: `\040` for a space.
fn unescaped(text: &str) -> PathBuf {
    let mut path = String::new();
    let mut parts = text.split('\\');
    path.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (digits, rest) = part.split_at_checked(3).unwrap_or(("", part));
        match u8::from_str_radix(digits, 8) {
            Ok(byte) => path.push(char::from(byte)),
            Err(_) => path.push_str(digits),
        }
        path.push_str(rest);
    }
    PathBuf::from(path)
}

/// A path of a request, which must be absolute and without `..`, as the kernel shows it: links on
/// the way are followed, the last part is not looked at. It may be on a disk that is gone.
pub(crate) fn resolved(name: &str, path: &str) -> Result<PathBuf> {
    crate::volume::needed(name, path)?;
    let wrong = |why: &str| Err(Status::invalid(format!("{name} {path:?} {why}")));
    let given = Path::new(path);
    if !given.is_absolute() || path.contains('\0') {
        return wrong("is not an absolute path");
    }
    let mut parts = given.components();
    if parts.any(|part| part == Component::ParentDir) {
        return wrong("contains \"..\"");
    }
    let (Some(parent), Some(last)) = (given.parent(), given.file_name()) else {
        return wrong("is no path that can be mounted at");
    };
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(last)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(given.to_path_buf()),
        Err(error) => Err(Status::io(parent.display(), error)),
    }
}

/// The number of a block device.
pub(crate) fn device_number(node: &Path) -> Result<DeviceNumber> {
    let found = fs::metadata(node).map_err(|error| Status::io(node.display(), error))?;
    match found.file_type().is_block_device() {
        true => Ok((major(found.rdev()), minor(found.rdev()))),
        false => Err(Status::internal(format!(
            "{} is no block device",
            node.display()
        ))),
    }
}

/// Mounts what is at `source` at `target`, too.
pub(crate) fn bind(source: &Path, target: &Path) -> Result {
    mount_bind(source, target)
        .map_err(|error| Status::io(format!("mounting at {}", target.display()), error))
}

/// Lets nothing be written by way of the mount at `target`. Its other restrictions stay.
pub(crate) fn make_read_only(mount: &Mount) -> Result {
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (option, flag) in [
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ] {
        if mount.has(option) {
            flags |= flag;
        }
    }
    mount_remount(&mount.target, flags, "").map_err(|error| {
        let what = format!("making {} read-only", mount.target.display());
        Status::io(what, error)
    })
}

/// Unmounts all that is at `target`; nothing may be there. What is in use stays.
pub(crate) fn unmount_all(target: &Path) -> Result {
    for _ in 0..MAX_LAYERS {
        if at(target)?.is_none() {
            return Ok(());
        }
        match unmount(target, UnmountFlags::NOFOLLOW) {
            // Somebody else has unmounted it.
            Ok(()) | Err(Errno::INVAL) => (),
            Err(Errno::BUSY) => {
                return Err(Status::precondition(format!(
                    "{} is in use; end the programs that use it (fuser -vm)",
                    target.display()
                )))
            }
            Err(error) => {
                return Err(Status::io(
                    format!("unmounting {}", target.display()),
                    error,
                ))
            }
        }
    }
    Err(Status::internal(format!(
        "more than {MAX_LAYERS} mounts are at {}",
        target.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::Code;

    #[test]
    fn lines_of_the_kernel() {
        let line = "99 28 252:16 /sub\\040dir /var/lib/a\\134b rw,nosuid,relatime shared:7 \
                    master:2 - ext4 /dev/rnbd0 rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.device, (252, 16));
        assert_eq!(mount.root, Path::new("/sub dir"));
        assert_eq!(mount.target, Path::new("/var/lib/a\\b"));
        assert!(!mount.is_read_only() && mount.has("nosuid") && !mount.is_stopped);
        let line = line.replace("/dev/rnbd0 rw", "/dev/rnbd0 ro");
        assert!(Mount::parse(&line).is_some_and(|mount| mount.is_stopped));
        for bad in ["", "1 2 3 4", "1 2 x:y / / ro", "1 2 8:1 /"] {
            assert_eq!(Mount::parse(bad), None, "{bad:?}");
        }
        assert!(!all().unwrap().is_empty());
    }

    #[test]
    fn paths_are_as_the_kernel_shows_them() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let text = format!("{}/target/", link.display());
        assert_eq!(resolved("x", &text).unwrap(), real.join("target"));
        let missing = resolved("x", "/no/such/folder/target").unwrap();
        assert_eq!(missing, Path::new("/no/such/folder/target"));
        for bad in ["", "relative/path", "/", "/a/../b", "/a\0b"] {
            let error = resolved("x", bad).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{bad:?}");
        }
    }
}
