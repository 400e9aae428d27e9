// SPDX-License-Identifier: GPL-2.0

//! The kernel's keyring of the user root, which holds the keys for the modules.
//!
//! Keys of type `logon` cannot be read back.

use std::io;

use keyutils::keytypes::logon::Description;
use keyutils::keytypes::Logon;
use keyutils::Key;
use keyutils::Keyring;
use keyutils::SpecialKeyring;
use proto::auth_keys;
use proto::auth_keys::client_description;
use proto::auth_keys::server_description;
use rustix::io::Errno;

use super::KeyFile;
use super::Role;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The beginnings of the descriptions of RNBD's keys.
const PREFIXES: [&str; 2] = ["rnbd-server:", "rnbd-client:"];

/// The descriptions of a file's keys in the keyring. If the file is loaded, the keyring has the
/// first.
fn descriptions(role: Role, file: &KeyFile) -> Vec<String> {
    match role {
        Role::Client => vec![server_description(&file.client).as_str().to_owned()],
        Role::Own if file.servers.is_empty() => vec![client_description(None).as_str().to_owned()],
        Role::Own => file
            .servers
            .iter()
            .map(|server| client_description(Some(server)).as_str().to_owned())
            .collect(),
    }
}

fn failed(what: &str, error: keyutils::Error) -> Error {
    let error = io::Error::from_raw_os_error(error.0);
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => Kind::NotPermitted,
        _ => Kind::Failed,
    };
    Error::new(kind, what, crate::control::errno::text(&error))
}

fn keyring() -> Result<Keyring> {
    if !rustix::process::geteuid().is_root() {
        let why = "only root can write to the keyring of the modules";
        return Err(Error::new(Kind::NotPermitted, "loading keys", why));
    }
    Keyring::attach_or_create(SpecialKeyring::User)
        .map_err(|error| failed("the kernel's keyring of root", error))
}

/// Makes the keys of these files the only keys of RNBD in the keyring.
///
/// Two files for the same server are refused before the keyring is changed.
pub fn load(files: &[(Role, KeyFile)]) -> Result {
    let mut wanted = Vec::new();
    for (role, file) in files {
        for description in descriptions(*role, file) {
            if wanted.iter().any(|(other, _)| *other == description) {
                let why = "two identities of this machine are for the same server";
                return Err(
                    Error::new(Kind::BadConfig, file.client.to_string(), why).hint(
                        "write the servers of each key into its file, with lines: server ADDRESS",
                    ),
                );
            }
            wanted.push((description, file));
        }
    }
    let mut keyring = keyring()?;
    let old = ours(&keyring)?;
    for (description, file) in &wanted {
        let what = format!("loading the keys of {}", file.client);
        let mut payload = Vec::new();
        auth_keys::payload(&file.client, &file.keys, |piece| {
            payload.extend_from_slice(piece);
        })
        .map_err(|error| Error::new(Kind::BadConfig, &what, error.to_string()))?;
        let before = old.iter().find(|(name, _)| name == description);
        let added = add(
            &mut keyring,
            description,
            &payload,
            before.map(|(_, key)| key),
        );
        payload.fill(0);
        added.map_err(|error| failed(&what, error))?;
    }
    for (name, key) in &old {
        if !wanted.iter().any(|(wanted, _)| wanted == name) {
            keyring
                .unlink_key(key)
                .map_err(|error| failed("removing old keys from the keyring", error))?;
        }
    }
    Ok(())
}

/// Puts keys into the keyring, in place of the keys with that description.
fn add(
    keyring: &mut Keyring,
    description: &str,
    payload: &[u8],
    before: Option<&Key>,
) -> std::result::Result<(), keyutils::Error> {
    let add = |keyring: &mut Keyring| {
        let added = keyring.add_key::<Logon, _, _>(of(description), payload);
        added.map(|_| ())
    };
    match (add(keyring), before) {
        // A key that the session's keyring does not reach, as in a service of systemd, can only be
        // replaced.
        (Err(error), Some(before)) if error.0 == Errno::ACCESS.raw_os_error() => {
            keyring.unlink_key(before)?;
            add(keyring)
        }
        (added, _) => added,
    }
}

/// The keys of RNBD in the keyring, with their descriptions.
fn ours(keyring: &Keyring) -> Result<Vec<(String, Key)>> {
    let (keys, _) = keyring
        .read()
        .map_err(|error| failed("reading the kernel's keyring of root", error))?;
    let named = keys.into_iter().filter_map(|key| {
        // The key may be gone by now.
        let name = key.description().ok()?.description;
        let is_ours = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        is_ours.then_some((name, key))
    });
    Ok(named.collect())
}

/// The description of a key in two parts, as the library takes it.
fn of(description: &str) -> Description {
    let (subtype, description) = description.split_once(':').unwrap_or((description, ""));
    Description {
        subtype: subtype.to_owned().into(),
        description: description.to_owned().into(),
    }
}

/// Whether the keyring has keys of this file; `None` if that cannot be known.
pub fn is_loaded(role: Role, file: &KeyFile) -> Option<bool> {
    let loaded = ours(&keyring().ok()?).ok()?;
    let first = descriptions(role, file).into_iter().next()?;
    Some(loaded.iter().any(|(name, _)| *name == first))
}
