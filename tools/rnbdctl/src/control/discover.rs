// SPDX-License-Identifier: GPL-2.0

//! Asks a server for the disks that this machine could map.

use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;

use proto::addr::PathAddress;
use proto::map_options;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use super::write;
use super::write::meaning;
use super::write::Meaning;
use crate::address::path_text;
use crate::kernel_log::KernelLog;
use crate::model::AccessMode;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The kernel returns whole lines, a page at a time.
const PAGE: usize = 4096;

/// The server to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoverRequest {
    /// The session by which the server is asked; it is opened if there is none of this name.
    pub session: String,
    /// The paths to the server; empty if the session exists.
    pub paths: Vec<PathAddress>,
    /// The server's port, 1234 if not given.
    pub port: Option<u16>,
}

/// A disk that this machine could map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemoteDisk {
    /// The path at the server, as `map` takes it.
    pub device_path: String,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The logical block size in bytes.
    #[schemars(range(min = 512))]
    pub block_size: u32,
    /// The access modes that are possible now. Modes that this program does not know are left out.
    pub modes: Vec<AccessMode>,
    /// The number of sessions that have the disk mapped.
    pub sessions: u32,
    /// Whether the disk is a regular file.
    pub file: bool,
    /// Whether the server's machine itself uses the disk.
    pub used_by_server: bool,
    /// The wwid of the disk; `None` if it has none.
    pub wwid: Option<String>,
    /// The device on this machine, `rnbd0`; `None` if this session has not mapped the disk.
    pub device: Option<String>,
}

const MEANINGS: &[Meaning] = &[
    meaning(
        Errno::NXIO,
        Kind::NotFound,
        "the session does not exist, and no address is given to make the session",
        "give the server's address",
    ),
    meaning(
        Errno::ACCESS,
        Kind::NotPermitted,
        "the server does not serve this client",
        "the server's export policy has no rule for this session and address",
    ),
    meaning(
        Errno::OPNOTSUPP,
        Kind::Unsupported,
        "the server does not list its disks",
        "the server has the C module, is older than 0.2.0, or has discovery=N; ask its \
         administrator for the disks",
    ),
    meaning(
        Errno::INVAL,
        Kind::Failed,
        "the server's response is invalid",
        "see the kernel log: dmesg | tail",
    ),
    meaning(
        Errno::FBIG,
        Kind::Failed,
        "the server has more disks than can be listed",
        "",
    ),
];

impl DiscoverRequest {
    /// The line for the kernel, checked as the module checks it.
    fn line(&self) -> Result<String> {
        let mut line = format!("sessname={}", self.session);
        if let Some(port) = self.port {
            line.push_str(&format!(" dest_port={port}"));
        }
        for path in &self.paths {
            line.push_str(&format!(" path={}", path_text(path)));
        }
        let wrong = |why: &str| Error::new(Kind::Usage, self.what(), why);
        if self.session.contains(|c: char| c == ' ' || c.is_control()) {
            return Err(wrong(
                "the session's name has white space or control characters",
            ));
        }
        match map_options::parse_session(line.as_bytes()) {
            Ok(_) => Ok(line),
            Err(error) => Err(wrong(error.message().as_str())),
        }
    }

    fn what(&self) -> String {
        format!(
            "asking the server of session {} for its disks",
            self.session
        )
    }
}

/// The disks that this machine could map, in the order of their paths.
///
/// Blocks while a session is being connected, as [`super::map`] does.
pub fn discover(system: &System, request: &DiscoverRequest) -> Result<Vec<RemoteDisk>> {
    let what = request.what();
    let line = request.line()?;
    system.need_client(&what)?;
    let path = system.file("dev/rnbd-discover");
    let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("the kernel has no file {}", path.display());
            return Err(Error::new(Kind::Unsupported, what, why)
                .hint("the loaded rnbd_client is older than 0.2.0, or the C module"));
        }
        Err(error) => return Err(write::cannot_open(&what, &path, &error)),
    };
    let explain = |error: io::Error| write::explain(&what, &error, &[MEANINGS, write::CONNECT]);
    let log = KernelLog::begin();
    if let Err(error) = file.write_all(line.as_bytes()) {
        return Err(explain(error).kernel(log.lines()));
    }
    let mut disks = Vec::new();
    let mut page = [0; PAGE];
    loop {
        let len = match file.read(&mut page) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result.map_err(explain)?,
        };
        let lines = page.get(..len).unwrap_or(&[]);
        if lines.is_empty() {
            return Ok(disks);
        }
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let disk = parse(line).ok_or_else(|| {
                let why = "a line of the kernel is not as expected";
                Error::new(Kind::Failed, &what, why)
            })?;
            disks.push(disk);
        }
    }
}

impl RemoteDisk {
    /// Fills in the device on this machine, if the session has the disk mapped.
    pub fn locate(&mut self, system: &System, session: &str) -> Result {
        self.device = system.client_device_name(session, &self.device_path)?;
        Ok(())
    }
}

/// Parses `SECTORS BLOCK_SIZE MODES SESSIONS FLAGS WWID PATH`. A path that is not UTF-8 is shown
/// with replacement characters, and cannot be mapped by that text.
fn parse(line: &[u8]) -> Option<RemoteDisk> {
    let line = String::from_utf8_lossy(line.strip_suffix(b"\n")?);
    let mut words = line.splitn(7, ' ');
    let mut word = || words.next();
    let list = |word: &str| match word {
        "-" => Vec::new(),
        words => words.split(',').map(str::to_owned).collect(),
    };
    let sectors: u64 = word()?.parse().ok()?;
    let block_size = word()?.parse().ok()?;
    let modes = list(word()?);
    let modes = modes.iter().filter_map(|mode| AccessMode::parse(mode));
    let modes = modes.collect();
    let sessions = word()?.parse().ok()?;
    let flags = list(word()?);
    let has = |name: &str| flags.iter().any(|flag| flag == name);
    let wwid = Some(word()?).filter(|wwid| *wwid != "-");
    let device_path = word().filter(|path| !path.is_empty())?;
    Some(RemoteDisk {
        device_path: device_path.to_owned(),
        size_bytes: sectors.checked_mul(512)?,
        block_size,
        modes,
        sessions,
        file: has("file"),
        used_by_server: has("used"),
        wwid: wwid.map(str::to_owned),
        device: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let disk = parse(b"2048 4096 ro,migration 3 own,used naa.5000 my disk\n").unwrap();
        assert_eq!(disk.device_path, "my disk");
        assert_eq!((disk.size_bytes, disk.block_size), (1 << 20, 4096));
        assert_eq!(disk.modes, [AccessMode::Ro, AccessMode::Migration]);
        assert_eq!((disk.sessions, disk.file), (3, false));
        assert!(disk.used_by_server);
        assert_eq!(disk.wwid.as_deref(), Some("naa.5000"));
        let disk = parse(b"8 512 ro,later,rw 0 - - a\n").unwrap();
        assert_eq!(disk.modes, [AccessMode::Ro, AccessMode::Rw]);
        let disk = parse(b"8 512 - 0 file - a\xff\n").unwrap();
        assert_eq!(disk.device_path, "a\u{fffd}");
        assert!(disk.file && disk.modes.is_empty() && disk.wwid.is_none());
        for line in [
            &b"8 512 - 0 - - a"[..],
            b"8 512 - 0 - -\n",
            b"8 512 - 0 - - \n",
            b"x 512 - 0 - - a\n",
            b"18446744073709551615 512 - 0 - - a\n",
            b"\n",
        ] {
            assert_eq!(parse(line), None, "{}", line.escape_ascii());
        }
    }
}
