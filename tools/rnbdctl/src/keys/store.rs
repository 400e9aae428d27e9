// SPDX-License-Identifier: GPL-2.0

//! The folder of key files, which only root can read.

use std::fs;
use std::fs::DirBuilder;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use proto::client_id::ClientId;
use schemars::JsonSchema;
use serde::Serialize;

use super::KeyFile;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The purpose of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "KeyRole")]
pub enum Role {
    /// This machine, as a server, recognises clients by the keys.
    Client,
    /// This machine proves its own identity with the keys.
    Own,
}

impl Role {
    /// Both roles.
    pub const ALL: [Self; 2] = [Self::Client, Self::Own];

    /// The role in a word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Own => "own",
        }
    }

    /// The folder below `/etc/rnbd/keys`.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Client => "clients",
            Self::Own => "own",
        }
    }
}

/// The key files of a machine: `/etc/rnbd/keys/clients/ID` and `/etc/rnbd/keys/own/ID`.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The key files of the machine.
    pub fn new(system: &System) -> Self {
        Self {
            folder: system.file("etc/rnbd/keys"),
        }
    }

    /// A client's file.
    pub fn path(&self, role: Role, client: &ClientId) -> PathBuf {
        self.folder.join(role.folder()).join(client.as_str())
    }

    /// Reads a client's file; `None` if there is none.
    pub fn read(&self, role: Role, client: &ClientId) -> Result<Option<KeyFile>> {
        let path = self.path(role, client);
        let place = path.display().to_string();
        let meta = match fs::metadata(&path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(place, &error)),
        };
        if meta.permissions().mode() & 0o077 != 0 {
            let why = "users other than its owner can read the file";
            return Err(Error::new(Kind::BadConfig, &place, why)
                .hint(format!("run chmod 600 {place}, and make new keys")));
        }
        let text = fs::read_to_string(&path).map_err(|error| Error::io(&place, &error))?;
        KeyFile::parse(*client, &place, &text).map(Some)
    }

    /// All files for `role`, in the order of their names.
    pub fn list(&self, role: Role) -> Result<Vec<KeyFile>> {
        let folder = self.folder.join(role.folder());
        let place = folder.display();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(place, &error)),
        };
        let mut clients = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::io(place.to_string(), &error))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Files that are being written are left out.
            if name.starts_with('.') {
                continue;
            }
            clients.push(ClientId::new(name.as_bytes()).map_err(|error| {
                let file = entry.path().display().to_string();
                Error::new(Kind::BadConfig, file, format!("the client id {error}"))
            })?);
        }
        clients.sort();
        clients
            .iter()
            .filter_map(|client| self.read(role, client).transpose())
            .collect()
    }

    /// All files, for each role in the order of their names.
    pub fn all(&self) -> Result<Vec<(Role, KeyFile)>> {
        let mut files = Vec::new();
        for role in Role::ALL {
            files.extend(self.list(role)?.into_iter().map(|file| (role, file)));
        }
        Ok(files)
    }

    /// Writes a client's whole file, for root alone. A file without keys is removed.
    pub fn write(&self, role: Role, file: &KeyFile) -> Result {
        let path = self.path(role, &file.client);
        let failed = |error: io::Error| Error::io(path.display(), &error);
        if file.keys.is_empty() {
            return fs::remove_file(&path).map_err(failed);
        }
        let folder = self.folder.join(role.folder());
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed)?;
        let partial = folder.join(format!(".{}.new", file.client));
        // The file may be left from an earlier attempt, with other rights.
        let _ = fs::remove_file(&partial);
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&partial)
            .map_err(failed)?;
        out.write_all(file.text().as_bytes())
            .and_then(|()| out.sync_all())
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(failed)
    }
}
