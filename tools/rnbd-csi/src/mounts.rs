// SPDX-License-Identifier: GPL-2.0

//! What is mounted where, and mounting.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::major;
use rustix::fs::minor;
use rustix::io::Errno;
use rustix::mount::unmount;
use rustix::mount::UnmountFlags;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::programs;

/// The most bytes of a name in a folder (`NAME_MAX`).
const MAX_NAME: usize = 255;
/// The most mounts on top of each other that are taken away.
const MAX_LAYERS: usize = 16;
/// What the devices of the module are called: its entry in `/proc/devices`, and the beginning of
/// the names of their nodes.
const DEVICES: &str = "rnbd";
/// The beginning of the names of the nodes of mirrors.
const MIRRORS: &str = "md";

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
    /// The kind of the file system.
    pub(crate) kind: String,
    /// Options of the file system, whichever mount it is seen by.
    common: Vec<String>,
}

impl Mount {
    /// Whether nothing can be written by way of this mount.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has("ro")
    }

    /// Whether the file system takes no writes although it was mounted to be written: the kernel
    /// makes it so after an error. An older kernel's ext4 becomes read-only then.
    pub(crate) fn is_stopped(&self) -> bool {
        let has = |option: &str| self.common.iter().any(|have| have == option);
        has("emergency_ro") || has("shutdown") || (has("ro") && !self.is_read_only())
    }

    /// The name of the node that is mounted, if it may be one: what a container has that uses a
    /// volume as a block device.
    fn node(&self) -> Option<String> {
        if !matches!(self.kind.as_str(), "devtmpfs" | "tmpfs") {
            return None;
        }
        let root = self.root.to_string_lossy();
        // So the kernel shows a node that is gone from `/dev`.
        let root = root.strip_suffix("//deleted").unwrap_or(&root);
        root.rsplit('/').next().map(str::to_owned)
    }

    /// Whether it shows the device `name` of that number: its file system, or its node.
    pub(crate) fn shows(&self, number: DeviceNumber, name: &str) -> bool {
        self.device == number || self.node().is_some_and(|node| node == name)
    }

    /// Whether it is the file system, or the node, of a device that may be a volume: of any device
    /// of the module, whose number begins with `major`, or of one of these mirrors.
    ///
    /// The node of any array of md may be a volume: its mirror may be gone. A file system is not
    /// lost with the mount of a node.
    fn is_volume(&self, major: Option<u32>, mirrors: &[DeviceNumber]) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let node = self.node();
        let is_node = |beginning: &str| {
            let digits = node
                .as_deref()
                .and_then(|node| node.strip_prefix(beginning));
            digits.is_some_and(is_number)
        };
        Some(self.device.0) == major
            || mirrors.contains(&self.device)
            || is_node(DEVICES)
            || is_node(MIRRORS)
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|have| have == option)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(2);
        let (major, minor) = words.next()?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let (root, target) = (unescaped(words.next()?), unescaped(words.next()?));
        let list = |text: &str| text.split(',').map(str::to_owned).collect();
        let options = list(words.next()?);
        // Behind optional fields come a hyphen, the kind, the source and options.
        let mut words = words.skip_while(|word| *word != "-").skip(1);
        let kind = words.next()?.to_owned();
        Some(Self {
            device,
            root,
            target,
            options,
            kind,
            common: words.nth(1).map(list).unwrap_or_default(),
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
        return wrong("is not a path for a mount");
    };
    if last.len() > MAX_NAME {
        return wrong("has a name that is too long");
    }
    match parent.canonicalize() {
        Ok(parent) if parent.is_file() => wrong("is below a file"),
        Ok(parent) => Ok(parent.join(last)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(given.to_path_buf()),
            Some(Errno::NAMETOOLONG | Errno::NOTDIR | Errno::LOOP) => wrong(&error.to_string()),
            _ => Err(Status::io(parent.display(), error)),
        },
    }
}

/// A path of a request at which something is, or will be, mounted, as [`resolved`]. It must not be
/// a link: what is mounted by way of a link is somewhere else, where it is not found again.
pub(crate) fn target(name: &str, path: &str) -> Result<PathBuf> {
    let target = resolved(name, path)?;
    match fs::symlink_metadata(&target) {
        Ok(found) if found.is_symlink() => Err(Status::invalid(format!(
            "{name} {path:?} is a symbolic link; give the path of a folder or a file"
        ))),
        _ => Ok(target),
    }
}

/// The number of a block device.
pub(crate) fn device_number(node: &Path) -> Result<DeviceNumber> {
    let found = fs::metadata(node).map_err(|error| Status::io(node.display(), error))?;
    match found.file_type().is_block_device() {
        true => Ok((major(found.rdev()), minor(found.rdev()))),
        false => Err(Status::internal(format!(
            "{} is not a block device",
            node.display()
        ))),
    }
}

/// Mounts what is at `source` at `target`, too. It appears read-only at once if it shall be: what
/// other namespaces see of it, as the node of a driver in a container, keeps what it appears with.
pub(crate) fn bind(source: &Path, target: &Path, read_only: bool) -> Result {
    let (source, target) = (source.to_string_lossy(), target.to_string_lossy());
    let kind: &[&str] = match read_only {
        true => &["-n", "--bind", "-o", "ro"],
        false => &["-n", "--bind"],
    };
    programs::run("mount", &[kind, &[&source, &target]].concat())?
        .success()
        .map(|_| ())
}

/// The number with which those of all devices of the module begin, in the text of `/proc/devices`.
fn major_of_module(text: &str) -> Option<u32> {
    let block = text.lines().skip_while(|line| *line != "Block devices:");
    block
        .filter_map(|line| line.trim().split_once(' '))
        .find(|(_, name)| *name == DEVICES)
        .and_then(|(number, _)| number.parse().ok())
}

/// Unmounts the volumes that are at `target`; nothing may be there. What is in use stays. `mirrors`
/// are the devices of all mirrored volumes.
///
/// What is no volume stays, too: a call with a wrong path costs the machine none of its file
/// systems.
pub(crate) fn unmount_volumes(target: &Path, mirrors: &[DeviceNumber]) -> Result {
    let devices =
        fs::read_to_string("/proc/devices").map_err(|error| Status::io("/proc/devices", error))?;
    let major = major_of_module(&devices);
    for _ in 0..MAX_LAYERS {
        match at(target)? {
            None => return Ok(()),
            Some(mount) if mount.is_volume(major, mirrors) => (),
            Some(_) => return Err(something_else(target)),
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

/// The failure of a call at whose path there is something that is none of its volume.
pub(crate) fn something_else(target: &Path) -> Status {
    Status::precondition(format!(
        "something else than the volume is mounted at {}; unmount it",
        target.display()
    ))
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
        assert!(!mount.is_read_only() && mount.has("nosuid") && !mount.is_stopped());
        assert_eq!(mount.kind, "ext4");
        let line = line.replace("/dev/rnbd0 rw", "/dev/rnbd0 ro");
        assert!(Mount::parse(&line).is_some_and(|mount| mount.is_stopped()));
        let emergency = line.replace("ro,errors", "rw,emergency_ro,errors");
        assert!(Mount::parse(&emergency).is_some_and(|mount| mount.is_stopped()));
        // It was mounted so.
        let line = line.replace(" rw,nosuid", " ro,nosuid");
        assert!(Mount::parse(&line).is_some_and(|mount| !mount.is_stopped()));
        for bad in [
            "",
            "1 2 3 4",
            "1 2 x:y / / ro",
            "1 2 8:1 /",
            "1 2 8:1 / / rw shared:1",
        ] {
            assert_eq!(Mount::parse(bad), None, "{bad:?}");
        }
        assert!(!all().unwrap().is_empty());
    }

    #[test]
    fn volumes_are_told_from_other_mounts() {
        let mount = |device: &str, root: &str| {
            let kind = if device == "0:6" { "devtmpfs" } else { "ext4" };
            let line = format!("1 2 {device} {root} /target rw - {kind} /dev/x rw");
            Mount::parse(&line).unwrap()
        };
        let devices = "Character devices:\n 7 rnbd\n\nBlock devices:\n  8 sd\n251 rnbd\n";
        let major = major_of_module(devices);
        assert_eq!(major, Some(251));
        assert_eq!(major_of_module("Block devices:\n  8 sd\n"), None);
        assert!(mount("251:16", "/").is_volume(major, &[]));
        for root in ["/rnbd0", "/rnbd12//deleted", "/sub/rnbd0", "/md127"] {
            assert!(mount("0:6", root).is_volume(major, &[]), "{root}");
        }
        for root in [
            "/",
            "/sda",
            "/rnbd",
            "/rnbd-data",
            "/rnbd0/x",
            "/md",
            "/md/x",
        ] {
            assert!(!mount("0:6", root).is_volume(major, &[]), "{root}");
            assert!(!mount("8:1", root).is_volume(None, &[]), "{root}");
        }
        // A folder of that name on a disk of the machine.
        assert!(!mount("8:1", "/srv/rnbd0").is_volume(major, &[]));
        // Of the arrays of md only mirrored volumes.
        assert!(mount("9:127", "/").is_volume(major, &[(9, 127)]));
        assert!(!mount("9:126", "/").is_volume(major, &[(9, 127)]));
        assert!(mount("0:6", "/rnbd1").shows((251, 16), "rnbd1"));
        assert!(mount("251:16", "/").shows((251, 16), "rnbd1"));
        assert!(!mount("251:32", "/").shows((251, 16), "rnbd1"));
        assert!(!mount("0:6", "/rnbd11").shows((251, 16), "rnbd1"));
    }

    #[test]
    fn what_is_no_volume_stays_mounted() {
        // All machines have one there; it would be in use, too, but that is not what is said.
        let error = unmount_volumes(Path::new("/proc"), &[]).unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        assert!(error.message.contains("something else"), "{error:?}");
    }

    #[test]
    fn nothing_is_mounted_by_way_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        let error = target("x", &link.to_string_lossy()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("symbolic link"), "{error:?}");
        let broken = folder.path().join("broken");
        std::os::unix::fs::symlink("/no/such/file", &broken).unwrap();
        assert!(target("x", &broken.to_string_lossy()).is_err());
        let inside = folder.path().join("inside");
        assert!(target("x", &inside.to_string_lossy()).is_ok());
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
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let in_file = format!("{}/a", file.display());
        let below = format!("{in_file}/b");
        let long = format!("/{}/b", "a".repeat(300));
        let long_name = format!("/{}", "a".repeat(256));
        for bad in [
            "",
            "relative/path",
            "/",
            "/a/../b",
            "/a\0b",
            &in_file,
            &below,
            &long,
            &long_name,
        ] {
            let error = resolved("x", bad).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{bad:?}");
        }
    }
}
