// SPDX-License-Identifier: GPL-2.0

//! What can be done with a mapped device.

use rustix::io::Errno;

use super::write::meaning;
use super::write::write;
use super::write::Meaning;
use crate::model::ClientDevice;
use crate::Kind;
use crate::Result;

const UNMAP: &[Meaning] = &[
    meaning(
        Errno::BUSY,
        Kind::Busy,
        "it is in use",
        "unmount it and stop what has it open (lsblk, fuser -v), or use --force, which fails its requests",
    ),
    meaning(Errno::ALREADY, Kind::Busy, "somebody else is unmapping it", ""),
    meaning(Errno::NODEV, Kind::NotFound, "it is gone already, or the module is being unloaded", ""),
];

/// Unmaps a device. With `force` also one that is in use; its requests fail.
pub fn unmap(device: &ClientDevice, force: bool) -> Result {
    let word = if force { "force" } else { "normal" };
    let what = format!("unmapping {}", device.path);
    write(&what, &device.folder.join("unmap_device"), word, &[UNMAP])
}
