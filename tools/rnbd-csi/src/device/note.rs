// SPDX-License-Identifier: GPL-2.0

//! How the servers of the mirrored volumes on this node are reached: a file for each volume,
//! `/run/rnbd/volume-MIRROR.json`.
//!
//! A leg that is missing is mapped as soon as its server is back, and then no orchestrator says
//! where the server is. The files last until the machine boots, as mappings do.

use std::fs;
use std::io;
use std::path::PathBuf;

use rnbdctl::mirror::MirrorName;
use rnbdctl::System;
use serde::Deserialize;
use serde::Serialize;

use crate::grpc::Result;
use crate::grpc::Status;
use crate::messages::Map;
use crate::volume::Context;
use crate::volume::VolumeId;

/// The folder, below `/`.
const FOLDER: &str = "run/rnbd";
/// The beginning and the end of the files' names.
const BEGINNING: &str = "volume-";
const END: &str = ".json";

/// What a file says.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Note {
    volume_id: String,
    volume_context: Map,
}

/// The notes of this machine.
#[derive(Debug)]
pub(super) struct Notes {
    folder: PathBuf,
}

impl Notes {
    /// Those of this machine.
    pub(super) fn of(system: &System) -> Self {
        Self {
            folder: system.file(FOLDER),
        }
    }

    fn file(&self, mirror: &MirrorName) -> PathBuf {
        self.folder.join(format!("{BEGINNING}{mirror}{END}"))
    }

    /// Notes how the servers of a volume are reached.
    pub(super) fn save(&self, mirror: &MirrorName, id: &VolumeId, context: &Context) -> Result {
        let note = Note {
            volume_id: id.to_string(),
            volume_context: context.to_map(),
        };
        let file = self.file(mirror);
        let partial = self.folder.join(format!(".{BEGINNING}{mirror}"));
        let text = serde_json::to_string(&note)
            .map_err(|error| Status::internal(format!("{}: {error}", file.display())))?;
        fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&partial, text))
            .and_then(|()| fs::rename(&partial, &file))
            .map_err(|error| Status::io(file.display(), error))
    }

    /// Whether there is a note of a volume.
    pub(super) fn has(&self, mirror: &MirrorName) -> bool {
        self.file(mirror).exists()
    }

    /// Removes the note of a volume, if there is one.
    pub(super) fn remove(&self, mirror: &MirrorName) -> Result {
        let file = self.file(mirror);
        match fs::remove_file(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| Status::io(file.display(), error)),
        }
    }

    /// All notes that can be read. A file that is no note is left out: nothing can be done about
    /// it, and the next staging of its volume replaces it.
    pub(super) fn all(&self) -> Result<Vec<(MirrorName, VolumeId, Context)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| Status::io(self.folder.display(), error))?,
        };
        let mut notes = Vec::new();
        for entry in entries {
            let file = entry
                .map_err(|error| Status::io(self.folder.display(), error))?
                .file_name();
            let name = file.to_str().and_then(|file| {
                let name = file.strip_prefix(BEGINNING)?.strip_suffix(END)?;
                MirrorName::new(name).ok()
            });
            notes.extend(name.and_then(|name| self.load(name)));
        }
        Ok(notes)
    }

    fn load(&self, mirror: MirrorName) -> Option<(MirrorName, VolumeId, Context)> {
        let text = fs::read_to_string(self.file(&mirror)).ok()?;
        let note: Note = serde_json::from_str(&text).ok()?;
        let id = VolumeId::parse(&note.volume_id).ok()?;
        let context = Context::of(&id, &note.volume_context).ok()?;
        Some((mirror, id, context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_how_servers_are_reached() {
        let root = tempfile::tempdir().unwrap();
        let notes = Notes::of(&System::new(Some(root.path()), None));
        let id = VolumeId::parse("a+b:x").unwrap();
        let map = Map::from([
            ("addresses.a".to_owned(), "192.0.2.1,192.0.2.2".to_owned()),
            ("port.b".to_owned(), "4321".to_owned()),
            ("zeroes".to_owned(), "true".to_owned()),
        ]);
        let context = Context::of(&id, &map).unwrap();
        assert_eq!(context.to_map(), map);
        let name = MirrorName::new("csi-a").unwrap();
        assert!(notes.all().unwrap().is_empty() && !notes.has(&name));
        assert_eq!(notes.remove(&name), Ok(()));
        notes.save(&name, &id, &context).unwrap();
        let folder = root.path().join(FOLDER);
        for (file, text) in [("volume-b.json", "{}"), ("mirror-csi-a.lock", "")] {
            fs::write(folder.join(file), text).unwrap();
        }
        assert_eq!(notes.all().unwrap(), [(name.clone(), id, context)]);
        notes.remove(&name).unwrap();
        assert!(notes.all().unwrap().is_empty());
    }
}
