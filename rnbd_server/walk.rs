// SPDX-License-Identifier: GPL-2.0

//! The walk through the folders in which a server's disks are, in the order of their paths.

use kernel::str::CStr;
use kernel_ext::{
    fs::listing::{
        for_each_name,
        Entry, //
    },
    prelude::*, //
};
use proto::{
    disk_places::{
        EntryKind,
        Place,
        Verdict,
        MAX_DEPTH, //
    },
    least_names::{
        name_of,
        LeastNames,
        Slot,
        Start, //
    },
    name::Name,
    NAME_MAX,
    PATH_MAX, //
};

/// How many names are kept of each folder. A folder of 10,000 names is read 80 times.
const BATCH: usize = 128;

/// A folder that the walk is in.
struct Level {
    /// The length of this folder's path in the walk's path, with its slash.
    folder_len: usize,
    place: Place,
    /// The least names behind the names that were read before.
    slots: KVVec<Slot>,
    count: usize,
    /// The index of the next name.
    next: usize,
}

/// A walk.
///
/// # Invariants
///
/// `path` ends with a NUL, and has no other one. It begins with the path of the search path's
/// folder, which has `root_len` bytes and ends with a slash.
pub(crate) struct Walk {
    path: KVec<u8>,
    root_len: usize,
    levels: KVec<Level>,
    gives_files: bool,
}

impl Walk {
    /// Begins a walk through `folder`, whose path ends with a slash. It starts behind the path
    /// `after`, or at the first path. Regular files are only met with `gives_files`. Sleeps.
    /// `ENOMEM`.
    pub(crate) fn new(folder: &CStr, gives_files: bool, after: Option<&Name>) -> Result<Self> {
        let root = folder.to_bytes();
        let mut path = KVec::with_capacity(PATH_MAX, GFP_KERNEL)?;
        path.extend_from_slice(folder.to_bytes_with_nul(), GFP_KERNEL)?;
        let mut this = Self {
            path,
            root_len: root.len(),
            levels: KVec::with_capacity(MAX_DEPTH, GFP_KERNEL)?,
            gives_files,
        };
        this.go_behind(Place::of(root), after.map_or(&[][..], Name::as_bytes))?;
        Ok(this)
    }

    /// Enters the folders that lead to the path `after`, which need not exist any more.
    fn go_behind(&mut self, mut place: Place, mut after: &[u8]) -> Result {
        loop {
            if after.is_empty() {
                return self.enter(place, Start::First);
            }
            let slash = after.iter().position(|&byte| byte == b'/');
            let Some((name, rest)) = slash.and_then(|slash| after.split_at_checked(slash)) else {
                return self.enter(place, Start::Behind(after));
            };
            let (key, rest) = match rest.split_first() {
                Some((_, rest)) => (
                    after.get(..name.len().wrapping_add(1)).unwrap_or(name),
                    rest,
                ),
                None => (name, rest),
            };
            self.enter(place, Start::At(key))?;
            let is_full = self.levels.len() == MAX_DEPTH;
            let Some(level) = self.levels.last_mut() else {
                return Ok(());
            };
            if is_full || level.count == 0 || name_of(&level.slots, 0) != key {
                return Ok(());
            }
            level.next = 1;
            let folder_len = level.folder_len;
            place = place.child(name);
            after = rest;
            if !set_end(&mut self.path, folder_len, key)? {
                return Ok(());
            }
        }
    }

    /// Enters the folder at the walk's path. A folder that cannot be read counts as empty.
    /// `ENOMEM`.
    fn enter(&mut self, place: Place, start: Start<'_>) -> Result {
        let mut level = Level {
            folder_len: self.len(),
            place,
            slots: KVVec::from_elem(Slot::EMPTY, BATCH, GFP_KERNEL)?,
            count: 0,
            next: 0,
        };
        level.read(path_of(&self.path)?, self.gives_files, start)?;
        Ok(self.levels.push(level, GFP_KERNEL)?)
    }

    /// Goes to the next path that may be a disk's; false at the end. Sleeps, as long as it takes to
    /// read a folder. `ENOMEM`.
    pub(crate) fn next(&mut self) -> Result<bool> {
        loop {
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else {
                return Ok(false);
            };
            if level.next == level.count {
                if !level.is_full() || !level.read_on(&mut self.path, self.gives_files)? {
                    self.levels.pop();
                }
                continue;
            }
            let key = name_of(&level.slots, level.next);
            level.next = level.next.wrapping_add(1);
            let folder = key.strip_suffix(b"/");
            let child = folder.map(|name| level.place.child(name));
            let fits = set_end(&mut self.path, level.folder_len, key)?;
            // No client can name a longer path.
            if !fits || self.name().len() > Name::MAX_LEN {
                continue;
            }
            match child {
                None => return Ok(true),
                Some(place) if depth < MAX_DEPTH => self.enter(place, Start::First)?,
                Some(_) => {}
            }
        }
    }

    /// The path at which the walk is.
    pub(crate) fn path(&self) -> Result<&CStr> {
        path_of(&self.path)
    }

    /// The path at which the walk is, as clients name it.
    pub(crate) fn name(&self) -> &[u8] {
        self.path.get(self.root_len..self.len()).unwrap_or(&[])
    }

    /// The length of the path without its NUL.
    fn len(&self) -> usize {
        // By the type invariant there is a NUL.
        self.path.len().wrapping_sub(1)
    }
}

impl Level {
    /// Whether there may be names behind the last one that was read.
    fn is_full(&self) -> bool {
        self.count == self.slots.len()
    }

    /// Reads the names behind those that were read before. Returns whether there are any. `path`
    /// begins with the path of the folder, and is cut to that.
    fn read_on(&mut self, path: &mut KVec<u8>, gives_files: bool) -> Result<bool> {
        set_end(path, self.folder_len, b"")?;
        let mut last = [0; NAME_MAX];
        let name = name_of(&self.slots, self.count.wrapping_sub(1));
        let last = last.get_mut(..name.len()).ok_or(EINVAL)?;
        last.copy_from_slice(name);
        self.read(path_of(path)?, gives_files, Start::Behind(last))?;
        Ok(self.count > 0)
    }

    fn read(&mut self, folder: &CStr, gives_files: bool, start: Start<'_>) -> Result {
        let place = self.place;
        let mut batch = LeastNames::new(&mut self.slots, start);
        let read = for_each_name(folder, |name, entry| {
            let kind = kind_of(entry);
            match place.judge(name, kind) {
                Verdict::Look if kind == EntryKind::File && !gives_files => {}
                Verdict::Look => batch.offer(name, false),
                Verdict::Enter => batch.offer(name, true),
                Verdict::Skip => {}
            }
        });
        let count = batch.count();
        match read {
            Err(ENOMEM) => return Err(ENOMEM),
            // The folder is gone by now, or broken: the walk goes on with other folders.
            Err(_) => self.count = 0,
            Ok(()) => self.count = count,
        }
        self.next = 0;
        Ok(())
    }
}

fn kind_of(entry: Entry) -> EntryKind {
    match entry {
        Entry::Folder => EntryKind::Folder,
        Entry::Link => EntryKind::Link,
        Entry::File => EntryKind::File,
        Entry::BlockDevice => EntryKind::BlockDevice,
        Entry::Other => EntryKind::Other,
        Entry::Unknown => EntryKind::Unknown,
    }
}

/// A path with its NUL.
fn path_of(path: &[u8]) -> Result<&CStr> {
    CStr::from_bytes_with_nul(path).map_err(|_| EINVAL)
}

/// Makes `path` of its first `len` bytes and `end`. False if that is too long: then `path` is those
/// bytes alone.
fn set_end(path: &mut KVec<u8>, len: usize, end: &[u8]) -> Result<bool> {
    path.truncate(len);
    // Does not wrap around: the lengths of a path and of a name.
    let fits = len.wrapping_add(end.len()) < PATH_MAX;
    if fits {
        path.extend_from_slice(end, GFP_KERNEL)?;
    }
    path.push(0, GFP_KERNEL)?;
    Ok(fits)
}
