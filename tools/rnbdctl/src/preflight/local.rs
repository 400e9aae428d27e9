// SPDX-License-Identifier: GPL-2.0

//! This machine: its kernel, its modules, and the rights of this user.

use std::fs;

use rustix::fs::Access;
use rustix::io::Errno;

use super::Finding;
use crate::control::errno;
use crate::Result;
use crate::System;

pub(super) fn check(system: &System, must_be_client: bool) -> Result<Vec<Finding>> {
    let release = fs::read_to_string(system.file("proc/sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    let mut findings = vec![kernel(system, release)];
    let client = Module::find(system, release, "rnbd_client", system.client_loaded());
    let server = Module::find(system, release, "rnbd_server", system.server_loaded());
    // A machine is often only a client or only a server.
    let is_server = server.state == State::Loaded;
    let is_client = client.state == State::Loaded;
    findings.push(client.finding("client module", must_be_client || !is_server));
    findings.push(server.finding(
        "server module",
        !must_be_client && !is_client && client.state == State::Missing,
    ));
    if is_client || is_server {
        findings.push(implementation(system));
    }
    findings.push(permissions(system, is_client));
    Ok(findings)
}

fn kernel(system: &System, release: &str) -> Finding {
    if system.file("lib/modules").join(release).is_dir() && !release.is_empty() {
        return Finding::ok("kernel", format!("Linux {release}"));
    }
    Finding::failed(
        "kernel",
        format!("no modules of the running kernel ({release}) are installed"),
        "reboot into the installed kernel; then install linux-headers for it and rnbd-dkms",
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Loaded,
    Installed,
    Missing,
}

struct Module {
    name: &'static str,
    state: State,
}

impl Module {
    fn find(system: &System, release: &str, name: &'static str, loaded: bool) -> Self {
        let state = match loaded {
            true => State::Loaded,
            false if is_installed(system, release, name) => State::Installed,
            false => State::Missing,
        };
        Self { name, state }
    }

    fn finding(&self, role: &str, needed: bool) -> Finding {
        let name = self.name;
        let load = format!("load it with: modprobe {name}");
        match (self.state, needed) {
            (State::Loaded, _) => Finding::ok(role, format!("{name} is loaded")),
            (State::Installed, true) => {
                Finding::warning(role, format!("{name} is not loaded"), load)
            }
            (State::Installed, false) => {
                Finding::ok(role, format!("{name} is installed, but not loaded"))
            }
            (State::Missing, false) => Finding::ok(role, format!("{name} is not installed")),
            (State::Missing, true) => Finding::failed(
                role,
                format!("{name} is neither loaded nor installed for this kernel"),
                "install the package rnbd-dkms; dkms status shows whether the modules were built",
            ),
        }
    }
}

/// Whether modprobe would find the module; C's file names have '-' for '_'.
fn is_installed(system: &System, release: &str, name: &str) -> bool {
    let list = system.file("lib/modules").join(release).join("modules.dep");
    let Ok(list) = fs::read_to_string(list) else {
        return false;
    };
    let module_of = |line: &str| {
        let file = line.split_once(':')?.0.rsplit('/').next()?;
        Some(file.split_once(".ko")?.0.replace('-', "_"))
    };
    list.lines()
        .any(|line| module_of(line).as_deref() == Some(name))
}

/// Whether the loaded modules are the modules in Rust or in C.
fn implementation(system: &System) -> Finding {
    let has = |name: &str| system.sys("module").join(name).exists();
    let ours = has("rtrs_client/parameters/hb_interval_ms")
        || has("rtrs_server/parameters/hb_interval_ms");
    match ours {
        true => Finding::ok("modules", "the modules in Rust, with all tunables"),
        false => Finding::ok(
            "modules",
            "the C modules, with no tunable except max_reconnect_attempts",
        ),
    }
}

fn permissions(system: &System, is_client: bool) -> Finding {
    const REMEDY: &str = "run rnbdctl as root";
    if is_client {
        let file = system.map_device_file();
        return match rustix::fs::access(&file, Access::WRITE_OK) {
            Ok(()) => Finding::ok("permissions", "this user may map devices"),
            Err(Errno::ROFS) => {
                let (message, remedy) = errno::SYS_IS_READ_ONLY;
                Finding::failed("permissions", message, remedy)
            }
            Err(error) => {
                let why = errno::name(error);
                let message = format!("this user may not write to {} ({why})", file.display());
                Finding::failed("permissions", message, REMEDY)
            }
        };
    }
    match rustix::process::geteuid().is_root() {
        true => Finding::ok("permissions", "this user is root"),
        false => Finding::failed("permissions", "this user is not root", REMEDY),
    }
}
