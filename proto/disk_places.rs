// SPDX-License-Identifier: GPL-2.0

//! Where a server looks for the disks that discovery lists.
//!
//! The server looks at the entries of the folder that the search path names, and of the folders in
//! that folder. `/` stands for `/dev`. In `/dev` each disk has a node and many links, so discovery
//! lists only the nodes there, and the names in `/dev/mapper` for the device mapper.

use crate::name::Name;

/// The depth of the search in folders, with the folder of the search path.
pub const MAX_DEPTH: usize = 5;

/// The kind of a folder's entry, as far as the folder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A link.
    Link,
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// No disk.
    Other,
    /// The folder does not say.
    Unknown,
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The entry is not a disk to be listed.
    Skip,
    /// The entry may be a disk.
    Look,
    /// The entry is a folder to be searched.
    Enter,
}

/// The kind of a folder that is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `/`.
    Root,
    /// `/dev`.
    Dev,
    /// `/dev/mapper`, as a part of `/dev`.
    Mapper,
    /// Another folder in `/dev`.
    BelowDev,
    /// A folder that the administrator has named as the search path, or a folder in it.
    Named,
}

impl Place {
    /// The place of the folder with this path.
    pub fn of(folder: &[u8]) -> Self {
        let mut names = folder
            .split(|&byte| byte == b'/')
            .filter(|name| !matches!(*name, b"" | b"."));
        match (names.next(), names.next()) {
            (None, _) => Self::Root,
            (Some(b"dev"), None) => Self::Dev,
            _ => Self::Named,
        }
    }

    /// The place of the folder `name` in this one.
    #[must_use]
    pub fn child(self, name: &[u8]) -> Self {
        match (self, name) {
            (Self::Root, _) => Self::Dev,
            (Self::Dev, b"mapper") => Self::Mapper,
            (Self::Dev | Self::Mapper | Self::BelowDev, _) => Self::BelowDev,
            (Self::Named, _) => Self::Named,
        }
    }

    /// What to do with an entry of this folder.
    ///
    /// Hidden names are skipped, and names that no client can map.
    pub fn judge(self, name: &[u8], kind: EntryKind) -> Verdict {
        let is_hidden = name.first() == Some(&b'.');
        if is_hidden || Name::check(name).is_err() || name.windows(2).any(|pair| pair == b"..") {
            return Verdict::Skip;
        }
        let is_good = match (self, kind) {
            (Self::Root, EntryKind::Folder) => name == b"dev",
            (_, EntryKind::Folder) => true,
            (Self::Root, _) | (_, EntryKind::Other) => false,
            (Self::Dev, EntryKind::BlockDevice) => !is_mapped(name),
            (Self::Dev | Self::BelowDev, kind) => kind == EntryKind::BlockDevice,
            (Self::Mapper, kind) => kind != EntryKind::File,
            (Self::Named, _) => true,
        };
        match (is_good, kind) {
            (false, _) => Verdict::Skip,
            (true, EntryKind::Folder) => Verdict::Enter,
            (true, _) => Verdict::Look,
        }
    }
}

/// Whether a node of `/dev` is one of the device mapper's.
fn is_mapped(name: &[u8]) -> bool {
    name.strip_prefix(b"dm-")
        .is_some_and(|number| number.iter().all(u8::is_ascii_digit))
}
