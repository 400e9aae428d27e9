// SPDX-License-Identifier: GPL-2.0

//! Mapping remote disks.

use std::time::Duration;
use std::time::Instant;

use proto::addr::PathAddress;
use proto::map_options;
use proto::rnbd::IoMode;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use super::write;
use super::write::meaning;
use super::write::Meaning;
use crate::address::path_text;
use crate::model::AccessMode;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// A disk to map, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// The session that shall carry the device.
    pub session: String,
    /// The disk's path at the server.
    pub device_path: String,
    /// The paths to the server; empty if the session exists.
    pub paths: Vec<PathAddress>,
    /// The server's port, 1234 if not given.
    pub port: Option<u16>,
    /// The access mode; read-write if not given.
    pub access_mode: Option<AccessMode>,
    /// How the server shall read and write the disk; as the server's setting says if not given.
    pub io_mode: Option<IoMode>,
    /// The number of queues for polled IO, -1 for one of each CPU, 0 if not given.
    pub poll_queues: Option<i32>,
}

/// A mapped disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mapped {
    /// The disk's path at the server.
    pub device_path: String,
    /// The session that carries the device.
    pub session: String,
    /// The kernel's name: `rnbd0`.
    pub name: String,
    /// The device node: `/dev/rnbd0`.
    pub path: String,
}

/// The meaning if there is neither a session nor a path. In other cases the errno comes from the
/// server, as below.
const NO_SESSION: &[Meaning] = &[meaning(
    Errno::NXIO,
    Kind::NotFound,
    "the session does not exist, and no address is given to make the session",
    "give the server's address with --path ADDRESS",
)];

const MEANINGS: &[Meaning] = &[
    meaning(
        Errno::EXIST,
        Kind::Busy,
        "the session has mapped the disk already, a path was given twice, or the server still has \
         a path with these addresses",
        "list the mapped devices with: rnbdctl list; if the disk is not in the list, try again \
         after 35 s",
    ),
    meaning(
        Errno::NOENT,
        Kind::NotFound,
        "the server has no such disk",
        "the path is relative to the server's dev_search_path (a parameter of rnbd_server)",
    ),
    meaning(
        Errno::NXIO,
        Kind::NotFound,
        "the server has no disk behind the device node",
        "",
    ),
    meaning(
        Errno::ACCESS,
        Kind::NotPermitted,
        "the server does not allow this client to map the disk",
        "the server's export policy must list this client and device, and a read-only disk \
         needs --access ro",
    ),
    meaning(
        Errno::PERM,
        Kind::NotPermitted,
        "another client has mapped the disk for writing",
        "map the disk with --access ro, or with --access migration if both clients coordinate \
         their writes",
    ),
    meaning(
        Errno::ROFS,
        Kind::NotPermitted,
        "the disk is read-only",
        "map the disk with --access ro",
    ),
    meaning(
        Errno::NOTBLK,
        Kind::NotFound,
        "the path at the server is not a block device",
        "",
    ),
    meaning(
        Errno::BUSY,
        Kind::Busy,
        "the disk is in use at the server, or a limit of the server is reached",
        "if other clients have mapped the disk with another --io-mode, use the same mode; for a \
         limit see the server's kernel log: dmesg | grep refused",
    ),
    meaning(
        Errno::OPNOTSUPP,
        Kind::Usage,
        "the server does not support --io-mode",
        "leave out --io-mode",
    ),
    meaning(
        Errno::INVAL,
        Kind::Usage,
        "the kernel or the server refuses an option",
        "queues for polled IO need a session of their own; see the kernel log: dmesg | tail",
    ),
];

impl MapRequest {
    /// The line for `map_device`, checked as the module checks it.
    ///
    /// Errors name the option that is wrong.
    pub fn line(&self) -> Result<String> {
        for (name, value) in [
            ("session", &self.session),
            ("device path", &self.device_path),
        ] {
            if value.contains(|c: char| c == ' ' || c.is_control()) {
                let why = format!("the {name} {value:?} has white space or control characters");
                return Err(self
                    .wrong(why)
                    .hint("the kernel's file map_device cannot take such characters"));
            }
        }
        if self.device_path.split('/').any(|part| part == "..") {
            let why = format!(
                "{:?} contains \"..\", which no server allows",
                self.device_path
            );
            return Err(self.wrong(why));
        }
        let mut line = format!("sessname={} device_path={}", self.session, self.device_path);
        // The port stands before the paths, as the C module applies it only to paths behind it.
        if let Some(port) = self.port {
            line.push_str(&format!(" dest_port={port}"));
        }
        for path in &self.paths {
            line.push_str(&format!(" path={}", path_text(path)));
        }
        if let Some(mode) = self.access_mode {
            line.push_str(&format!(" access_mode={}", mode.as_str()));
        }
        if let Some(mode) = self.io_mode {
            line.push_str(&format!(" io_mode={}", mode.as_str()));
        }
        if let Some(queues) = self.poll_queues {
            line.push_str(&format!(" nr_poll_queues={queues}"));
        }
        // The kernel compares with the number of CPUs.
        match map_options::parse(line.as_bytes(), u32::from(u16::MAX)) {
            Ok(_) => Ok(line),
            Err(error) => Err(self.wrong(error.message().as_str())),
        }
    }

    fn what(&self) -> String {
        format!("mapping {} on session {}", self.device_path, self.session)
    }

    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::new(Kind::Usage, self.what(), why)
    }
}

/// The meanings of error numbers; `without_path` if there was neither a session nor a path.
fn meanings(without_path: bool) -> &'static [&'static [Meaning]] {
    match without_path {
        true => &[NO_SESSION, MEANINGS, write::CONNECT],
        false => &[MEANINGS, write::CONNECT],
    }
}

/// Maps a disk and waits for its device node, no longer than `patience`.
///
/// Blocks while a session is being connected. If the server does not respond, each step takes as
/// long as the session's `connect_timeout_ms` says (30 s).
pub fn map(system: &System, request: &MapRequest, patience: Duration) -> Result<Mapped> {
    let what = request.what();
    let line = request.line()?;
    system.need_client(&what)?;
    let is_new = request.paths.is_empty() && system.client_session(&request.session)?.is_none();
    write::write(&what, &system.map_device_file(), &line, meanings(is_new))?;
    let Some(name) = system.client_device_name(&request.session, &request.device_path)? else {
        // Another process unmapped the device at once.
        return Err(Error::new(
            Kind::NotFound,
            what,
            "the disk was mapped, but the device is gone again",
        ));
    };
    let node = system.device_node(&name);
    let end = Instant::now().checked_add(patience);
    while !node.exists() {
        if end.is_none_or(|end| Instant::now() >= end) {
            let why = format!("the disk is mapped, but {} did not appear", node.display());
            return Err(Error::new(Kind::Failed, what, why)
                .hint("check whether devtmpfs is mounted on /dev, and whether udev is running"));
        }
        // There is no event for a node in devtmpfs. The node is there within a millisecond.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Mapped {
        device_path: request.device_path.clone(),
        session: request.session.clone(),
        path: format!("/dev/{name}"),
        name,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_is_missing_is_the_session_or_the_disk() {
        let why = |without_path| {
            let error = io::Error::from_raw_os_error(Errno::NXIO.raw_os_error());
            write::explain("mapping x", &error, meanings(without_path))
        };
        assert!(why(true).why().starts_with("the session does not exist"));
        assert!(why(false).why().starts_with("the server has no disk"));
        assert!(why(true)
            .remedy()
            .is_some_and(|hint| hint.contains("--path")));
    }
}
