// SPDX-License-Identifier: GPL-2.0

//! File systems on disks: found, made, checked, mounted and grown, by the programs of the system.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::programs;

/// What the start of a disk has to be for the disk to be empty: so many zeroes.
const EMPTY_BYTES: u64 = 1 << 20;
/// Where an XFS says that it is still being made, and what it says then.
const XFS_IN_PROGRESS: (u64, u8) = (126, 1);
/// The exit code of `blkid` that has found nothing.
const BLKID_NOTHING: i32 = 2;
/// The exit code of `blkid` that has found what does not go together.
const BLKID_SEVERAL: i32 = 8;
/// The largest exit code of `e2fsck` after which the file system is whole.
const E2FSCK_REPAIRED: i32 = 1;

/// What is on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    FileSystem(String),
    Other(String),
}

/// Has a file system of that kind on the disk, and whole. An empty disk gets one; what is not empty
/// is never formatted.
pub(crate) fn prepare(node: &Path, kind: &str, read_only: bool) -> Result {
    match probe(node)? {
        Found::FileSystem(found) if found == kind && !is_half_made(node, kind)? => {
            match read_only {
                true => Ok(()),
                false => check(node, kind),
            }
        }
        Found::FileSystem(found) if found == kind && !read_only => make(node, kind),
        Found::FileSystem(found) if found == kind => Err(Status::precondition(format!(
            "mkfs.{kind} was ended before the {kind} of the disk was whole, and the disk is mapped \
             read-only: stage the volume for writing once, and the file system is made anew"
        ))),
        Found::Nothing if read_only => Err(Status::precondition(
            "the disk is empty, and is mapped read-only: it cannot be formatted",
        )),
        Found::Nothing if is_zero(node)? => make(node, kind),
        Found::Nothing => Err(Status::precondition(
            "the disk has data that is not a file system, and is not formatted; if the data is not \
             needed, clear the first MiB of the disk; or use the volume as a block device",
        )),
        Found::FileSystem(other) | Found::Other(other) => Err(Status::precondition(format!(
            "the disk has {other}, not {kind}, and is not formatted; give the right fs_type, or \
             use another disk"
        ))),
    }
}

/// An error unless the disk is empty.
pub(crate) fn need_empty(node: &Path) -> Result {
    match content(node)? {
        None => Ok(()),
        Some(what) => Err(Status::precondition(format!(
            "{} has {what} on it, and does not become a leg of a new mirror; if the data is not \
             needed, clear the first MiB of the disk",
            node.display()
        ))),
    }
}

/// What is on a disk, in words; `None` if the disk is empty: `blkid` finds nothing, and the disk
/// begins with zeroes.
pub(crate) fn content(node: &Path) -> Result<Option<String>> {
    Ok(match probe(node)? {
        Found::Nothing if is_zero(node)? => None,
        Found::Nothing => Some("data".to_owned()),
        Found::FileSystem(found) | Found::Other(found) => Some(found),
    })
}

fn probe(node: &Path) -> Result<Found> {
    let path = node.to_string_lossy();
    let done = programs::run("blkid", &["-p", "-o", "export", &path])?;
    match done.code {
        Some(0) => Ok(parse_blkid(&done.out)),
        Some(BLKID_NOTHING) => Ok(Found::Nothing),
        Some(BLKID_SEVERAL) => Ok(Found::Other("signs of several file systems".to_owned())),
        _ => Err(done.failure()),
    }
}

/// What `blkid -o export` says.
fn parse_blkid(text: &str) -> Found {
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
    };
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) if value("USAGE").as_deref() == Some("filesystem") => {
            Found::FileSystem(kind)
        }
        (Some(kind), _) => Found::Other(kind),
        (None, Some(table)) => Found::Other(format!("a partition table ({table})")),
        (None, None) => Found::Nothing,
    }
}

/// Whether the disk begins with zeroes. That also shows that it can be read: `blkid` says of a disk
/// that cannot be read that there is nothing on it.
fn is_zero(node: &Path) -> Result<bool> {
    let mut bytes = Vec::new();
    File::open(node)
        .and_then(|file| file.take(EMPTY_BYTES).read_to_end(&mut bytes))
        .map_err(|error| Status::io(format!("reading {}", node.display()), error))?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// Whether `mkfs` was killed when it was making this file system.
fn is_half_made(node: &Path, kind: &str) -> Result<bool> {
    if kind != "xfs" {
        return Ok(false);
    }
    let (offset, value) = XFS_IN_PROGRESS;
    let mut byte = [0];
    File::open(node)
        .and_then(|file| file.read_exact_at(&mut byte, offset))
        .map_err(|error| Status::io(format!("reading {}", node.display()), error))?;
    Ok(byte == [value])
}

fn make(node: &Path, kind: &str) -> Result {
    let path = node.to_string_lossy();
    let done = match kind {
        "xfs" => programs::run("mkfs.xfs", &["-q", "-f", &path])?,
        _ => programs::run("mkfs.ext4", &["-q", "-F", "-m", "0", &path])?,
    };
    done.success().map(|_| ())
}

/// Repairs what can be repaired without asking. XFS does so when it is mounted.
fn check(node: &Path, kind: &str) -> Result {
    if kind == "xfs" {
        return Ok(());
    }
    let done = programs::run("e2fsck", &["-p", &node.to_string_lossy()])?;
    match done.code {
        Some(0..=E2FSCK_REPAIRED) => Ok(()),
        _ => Err(done.failure()),
    }
}

/// Mounts the file system of a disk.
pub(crate) fn mount(
    node: &Path,
    kind: &str,
    options: &[String],
    read_only: bool,
    target: &Path,
) -> Result {
    let access = if read_only { "ro" } else { "rw" };
    let mut all = vec![access];
    all.extend(options.iter().map(String::as_str));
    let all = all.join(",");
    let (node, target) = (node.to_string_lossy(), target.to_string_lossy());
    programs::run("mount", &["-n", "-t", kind, "-o", &all, &node, &target])?
        .success()
        .map(|_| ())
}

/// Has the file system use all of its disk. It is mounted at `target`.
pub(crate) fn grow(node: &Path, kind: &str, target: &Path) -> Result {
    let done = match kind {
        "xfs" => programs::run("xfs_growfs", &[&target.to_string_lossy()])?,
        _ => programs::run("resize2fs", &[&node.to_string_lossy()])?,
    };
    done.success().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blkid_says() {
        let ext4 = "DEVNAME=/dev/rnbd0\nUUID=1\nTYPE=ext4\nUSAGE=filesystem\n";
        assert_eq!(parse_blkid(ext4), Found::FileSystem("ext4".into()));
        let lvm = "DEVNAME=/dev/rnbd0\nTYPE=LVM2_member\nUSAGE=raid\n";
        assert_eq!(parse_blkid(lvm), Found::Other("LVM2_member".into()));
        let table = "DEVNAME=/dev/rnbd0\nPTUUID=1\nPTTYPE=gpt\n";
        assert!(matches!(parse_blkid(table), Found::Other(text) if text.contains("gpt")));
        assert_eq!(parse_blkid("DEVNAME=/dev/rnbd0\n"), Found::Nothing);
    }

    #[test]
    fn only_zeroes_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::write(&disk, vec![0; 2 << 20]).unwrap();
        assert!(is_zero(&disk).unwrap());
        let mut bytes = vec![0; 2 << 20];
        bytes[(1 << 20) - 1] = 1;
        std::fs::write(&disk, &bytes).unwrap();
        assert!(!is_zero(&disk).unwrap());
        assert!(is_zero(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn an_xfs_that_is_being_made_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let mut bytes = vec![0; 512];
        std::fs::write(&disk, &bytes).unwrap();
        assert!(!is_half_made(&disk, "xfs").unwrap());
        bytes[126] = 1;
        std::fs::write(&disk, &bytes).unwrap();
        assert!(is_half_made(&disk, "xfs").unwrap());
        assert!(!is_half_made(&disk, "ext4").unwrap());
    }
}
