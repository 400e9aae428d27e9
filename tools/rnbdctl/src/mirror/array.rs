// SPDX-License-Identifier: GPL-2.0

//! The state of a running mirror, from the kernel's files in `/sys/block/mdN/md`.

use std::path::Path;

use crate::sysfs::read;
use crate::Result;
use crate::System;

const SECTOR_SIZE: u64 = 512;

/// A running md array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The kernel's name: `md127`.
    pub md: String,
    /// The array's UUID, as 32 hexadecimal digits.
    pub uuid: String,
    /// The file `array_state`: `clean`, `active`, `broken`, ...
    pub state: String,
    /// The file `sync_action`: `idle`, `recover`, `resync`, `check`, ...; empty if it is missing.
    pub action: String,
    /// Whether the legs may differ: md has never made them the same, or the machine crashed.
    pub differs: bool,
    /// The bytes of a leg that md has copied or compared, and the bytes in all; `None` if md does
    /// neither.
    pub progress: Option<(u64, u64)>,
    /// The speed of copying or comparing, in bytes per second.
    pub speed: Option<u64>,
    /// The array's size in bytes.
    pub size: Option<u64>,
    /// The array's members.
    pub members: Vec<Member>,
}

/// A disk in an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The kernel's name of the disk: `rnbd0`.
    pub disk: String,
    /// The disk's state in the array.
    pub state: MemberState,
    /// Whether md is filling another disk that replaces this disk.
    pub is_replaced: bool,
}

/// The state of a disk in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The disk has all data.
    InSync,
    /// The disk has all data but for blocks that it could not store.
    BadBlocks,
    /// The disk is being filled, or waits to be filled.
    Filling,
    /// The disk has failed, and gets no requests.
    Faulty,
}

impl MemberState {
    /// Whether the disk has data that no other disk need have: a disk with bad blocks has it, too.
    pub fn has_data(self) -> bool {
        matches!(self, Self::InSync | Self::BadBlocks)
    }

    /// Parses the file `state` of a member. `bad` says whether md knows of bad blocks on the disk.
    fn parse(text: &str, bad: bool) -> Self {
        match (has(text, "faulty"), has(text, "in_sync")) {
            (true, _) => Self::Faulty,
            (false, true) if bad => Self::BadBlocks,
            (false, true) => Self::InSync,
            (false, false) => Self::Filling,
        }
    }
}

/// Whether the file `state` of a member has this word. The words have commas between.
fn has(text: &str, word: &str) -> bool {
    text.split(',').any(|have| have.trim() == word)
}

impl Array {
    /// Whether md has started the array for reading until a program writes.
    pub fn is_read_auto(&self) -> bool {
        self.state == "read-auto"
    }

    /// Returns the state of `disk`, a kernel's name; `None` if the disk is no member.
    pub fn member(&self, disk: &str) -> Option<MemberState> {
        let found = self.members.iter().find(|member| member.disk == disk);
        found.map(|member| member.state)
    }

    /// Whether md is copying from leg to leg, or is about to.
    pub fn is_copying(&self) -> bool {
        self.differs || matches!(self.action.as_str(), "recover" | "resync")
    }

    /// Whether the array has lost its last leg. Its writes fail until it is stopped.
    pub fn is_broken(&self) -> bool {
        self.state == "broken"
    }
}

/// Returns the running array with this UUID; `None` if no such array runs.
pub fn find(system: &System, uuid: &str) -> Result<Option<Array>> {
    for (name, folder) in read::entries(&system.sys("block"))? {
        if name.starts_with("md") {
            let array = array(&name, &folder)?;
            if let Some(array) = array.filter(|array| array.uuid == uuid) {
                return Ok(Some(array));
            }
        }
    }
    Ok(None)
}

/// Reads the array that the kernel calls `name`; `None` if `name` is no array or does not run.
fn array(name: &str, folder: &Path) -> Result<Option<Array>> {
    let md = folder.join("md");
    let text = |file: &str| read::text_of_array(&md.join(file));
    let (Some(uuid), Some(state)) = (text("uuid")?, text("array_state")?) else {
        return Ok(None);
    };
    if matches!(state.as_str(), "clear" | "inactive") {
        return Ok(None);
    }
    let mut members = Vec::new();
    for (member, path) in read::entries(&md)? {
        if let Some(disk) = member.strip_prefix("dev-") {
            if let Some(state) = read::text_of_array(&path.join("state"))? {
                let mut is_bad = false;
                for file in ["bad_blocks", "unacknowledged_bad_blocks"] {
                    let bad = read::text_of_array(&path.join(file))?;
                    is_bad |= bad.is_some_and(|text| !text.is_empty());
                }
                members.push(Member {
                    disk: disk.to_owned(),
                    is_replaced: has(&state, "want_replacement"),
                    state: MemberState::parse(&state, is_bad),
                });
            }
        }
    }
    let sectors: Option<u64> = read::number(&folder.join("size"))?;
    let speed = text("sync_speed")?.and_then(|text| text.parse::<u64>().ok());
    Ok(Some(Array {
        md: name.to_owned(),
        uuid: uuid.chars().filter(char::is_ascii_hexdigit).collect(),
        state,
        action: text("sync_action")?.unwrap_or_default(),
        // The sector up to which the legs are the same; `none` if they are the same everywhere.
        differs: text("resync_start")?.is_some_and(|text| text != "none"),
        progress: text("sync_completed")?.and_then(|text| progress(&text)),
        speed: speed.and_then(|kib| kib.checked_mul(1024)),
        size: sectors.and_then(|sectors| sectors.checked_mul(SECTOR_SIZE)),
        members,
    }))
}

/// Parses `8192 / 131072`, in sectors, and returns bytes; `None` for `none` and `delayed`.
fn progress(text: &str) -> Option<(u64, u64)> {
    let (done, all) = text.split_once('/')?;
    let bytes = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(SECTOR_SIZE);
    Some((bytes(done)?, bytes(all)?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn an_array_is_found_by_its_uuid() {
        let root = tempfile::tempdir().unwrap();
        let system = System::new(Some(root.path()), None);
        let file = |name: &str, text: &str| {
            write(root.path(), &format!("sys/block/md127/{name}"), text);
        };
        assert_eq!(find(&system, &"ab".repeat(16)).unwrap(), None);
        file("size", "2048\n");
        file("md/uuid", "abababab-abab-abab-abab-abababababab\n");
        file("md/array_state", "active\n");
        file("md/sync_action", "recover\n");
        file("md/sync_completed", "512 / 2048\n");
        file("md/sync_speed", "100\n");
        file("md/resync_start", "none\n");
        file("md/dev-rnbd0/state", "in_sync,failfast\n");
        file("md/dev-rnbd1/state", "write_mostly,spare\n");
        file("md/dev-rnbd2/state", "faulty,write_error\n");
        let found = find(&system, &"ab".repeat(16)).unwrap().unwrap();
        assert_eq!((found.md.as_str(), found.size), ("md127", Some(1 << 20)));
        assert_eq!(found.progress, Some((512 * 512, 2048 * 512)));
        assert_eq!(found.speed, Some(102_400));
        assert_eq!(found.member("rnbd0"), Some(MemberState::InSync));
        assert_eq!(found.member("rnbd1"), Some(MemberState::Filling));
        assert_eq!(found.member("rnbd2"), Some(MemberState::Faulty));
        assert_eq!(found.member("rnbd3"), None);
        assert!(found.members.iter().all(|member| !member.is_replaced));
        assert!(found.is_copying() && !found.is_broken());
        file("md/dev-rnbd0/state", "in_sync,want_replacement\n");
        file("md/dev-rnbd0/bad_blocks", "\n");
        file("md/dev-rnbd0/unacknowledged_bad_blocks", "");
        let first = || {
            find(&system, &"ab".repeat(16))
                .unwrap()
                .unwrap()
                .members
                .remove(0)
        };
        assert_eq!(
            (first().state, first().is_replaced),
            (MemberState::InSync, true)
        );
        file("md/dev-rnbd0/bad_blocks", "2048 8\n");
        assert_eq!(first().state, MemberState::BadBlocks);
        file("md/sync_action", "idle\n");
        let is_copying = || {
            find(&system, &"ab".repeat(16))
                .unwrap()
                .unwrap()
                .is_copying()
        };
        assert!(!is_copying());
        file("md/resync_start", "128\n");
        assert!(is_copying());
        file("md/array_state", "inactive\n");
        assert_eq!(find(&system, &"ab".repeat(16)).unwrap(), None);
    }

    #[test]
    fn progress_is_two_numbers() {
        assert_eq!(progress("none"), None);
        assert_eq!(progress("delayed"), None);
        assert_eq!(progress("1 / 4"), Some((512, 2048)));
    }
}
