// SPDX-License-Identifier: GPL-2.0

//! Completions: the devices, sessions and paths that a shell offers when the user presses Tab.
//!
//! The shell runs this program for that, with the words so far. Objects that cannot be read are not
//! offered.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap_complete::engine::ArgValueCandidates;
use clap_complete::engine::CompletionCandidate;

use crate::mirror::record::Records;
use crate::mirror::MirrorName;
use crate::model::ClientDevice;
use crate::model::Path;
use crate::schema;
use crate::System;

/// Mapped devices.
pub fn devices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let devices = system().client_device_rows().unwrap_or_default();
        devices.iter().map(device).collect()
    })
}

/// This client's sessions.
pub fn sessions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let sessions = system().client_sessions().unwrap_or_default();
        let name = |session: &crate::model::ClientSession| {
            let help = format!("{}, paths: {}", session.state.as_str(), session.paths.len());
            candidate(&session.name, help)
        };
        sessions.iter().map(name).collect()
    })
}

/// The paths of this client's sessions.
pub fn paths() -> ArgValueCandidates {
    ArgValueCandidates::new(|| client_paths(&system()))
}

/// This machine's mirrors.
pub fn mirrors() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = Records::of(&system()).names().unwrap_or_default();
        let mirror = |name: &MirrorName| candidate(name.as_str(), "mirror");
        names.iter().map(mirror).collect()
    })
}

/// The objects that `show` and `stats` accept, of both ends.
pub fn everything() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let system = system();
        let mut found: Vec<_> = (system.client_device_rows().unwrap_or_default().iter())
            .map(device)
            .collect();
        let sessions = system.client_sessions().unwrap_or_default();
        found.extend(sessions.iter().map(|session| {
            candidate(
                &session.name,
                format!("session, {}", session.state.as_str()),
            )
        }));
        found.extend(client_paths(&system));
        let exported = system.server_devices().unwrap_or_default();
        found.extend(
            exported
                .iter()
                .map(|device| candidate(&device.name, "exported device")),
        );
        found.extend(clients(&system));
        found
    })
}

/// The words of the subcommands that print JSON.
pub fn documents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let words: BTreeSet<_> = schema::commands()
            .flat_map(|name| name.split(' '))
            .collect();
        words.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The sessions of clients, and their paths.
pub fn server_sessions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| clients(&system()))
}

/// The devices that clients have mapped.
pub fn exports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let devices = system().server_devices().unwrap_or_default();
        let export = |device: &crate::model::ServerDevice| {
            let sessions = device.exports.iter().map(|export| export.session.as_str());
            candidate(&device.name, sessions.collect::<Vec<_>>().join(", "))
        };
        devices.iter().map(export).collect()
    })
}

/// Mapped and exported devices.
pub fn timed_devices() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let system = system();
        let devices = system.client_device_rows().unwrap_or_default();
        let exported = system.server_devices().unwrap_or_default();
        let exported = exported.iter();
        let exported = exported.map(|device| candidate(&device.name, "exported device"));
        devices.iter().map(device).chain(exported).collect()
    })
}

/// The machine, or the folder that a test uses as a machine.
fn system() -> System {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (root, sysfs) = (folder("RNBDCTL_ROOT"), folder("RNBDCTL_SYSFS"));
    System::new(root.as_deref(), sysfs.as_deref())
}

fn client_paths(system: &System) -> Vec<CompletionCandidate> {
    let sessions = system.client_sessions().unwrap_or_default();
    let all: Vec<_> = sessions.iter().flat_map(|session| &session.paths).collect();
    paths_of(&all)
}

fn clients(system: &System) -> Vec<CompletionCandidate> {
    let sessions = system.server_sessions().unwrap_or_default();
    let mut found: Vec<_> = sessions
        .iter()
        .map(|session| candidate(&session.name, "session of a client"))
        .collect();
    let all: Vec<_> = sessions.iter().flat_map(|session| &session.paths).collect();
    found.extend(paths_of(&all));
    found
}

fn device(device: &ClientDevice) -> CompletionCandidate {
    let (disk, session) = (&device.device_path, &device.session);
    candidate(
        &device.name,
        format!("{disk} of {session}, {}", device.state.as_str()),
    )
}

/// Each path by its destination, if only one path has it. bash takes characters of the full names
/// for ends of words.
fn paths_of(all: &[&Path]) -> Vec<CompletionCandidate> {
    let is_enough = |path: &Path| {
        let same = all
            .iter()
            .filter(|other| other.destination == path.destination);
        same.count() == 1
    };
    let offer = |path: &&Path| {
        let name = match is_enough(path) {
            true => path
                .destination
                .strip_prefix("ip:")
                .unwrap_or(&path.destination),
            false => &path.name,
        };
        candidate(name, format!("{}, {}", path.session, path.state.as_str()))
    };
    all.iter().map(offer).collect()
}

fn candidate(name: &str, help: impl Into<String>) -> CompletionCandidate {
    let help: String = help.into();
    CompletionCandidate::new(name).help(Some(help.into()))
}
