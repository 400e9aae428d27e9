// SPDX-License-Identifier: GPL-2.0

//! The files of the client's modules.

use std::path::Path as FilePath;
use std::path::PathBuf;
use std::str::FromStr;

use proto::setting::HOLD_DISK_IO;
use proto::setting::IO_TIMEOUT;

use super::read;
use super::System;
use crate::link_name;
use crate::model::AccessMode;
use crate::model::BlockStat;
use crate::model::Client;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::DeviceState;
use crate::model::IoModeWish;
use crate::model::Path;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Policy;
use crate::model::SessionState;
use crate::model::Settings;
use crate::model::Side;
use crate::Error;
use crate::Result;

const SECTOR_SIZE: u64 = 512;

impl System {
    /// Everything about this machine as a client.
    pub fn client(&self) -> Result<Client> {
        Ok(Client {
            loaded: self.client_loaded(),
            devices: self.client_devices()?,
            sessions: self.client_sessions()?,
        })
    }

    /// The file that maps devices.
    pub fn map_device_file(&self) -> PathBuf {
        self.sys("class/rnbd-client/ctl/map_device")
    }

    /// All mapped devices, by name.
    pub fn client_devices(&self) -> Result<Vec<ClientDevice>> {
        self.devices(Detail::Whole)
    }

    /// All mapped devices, by name, with the values for a row of a table or a completion: name,
    /// session, disk, access mode, state and size. The others are `None`, as of a module that does
    /// not have them. It reads half as many files as [`Self::client_devices`].
    pub fn client_device_rows(&self) -> Result<Vec<ClientDevice>> {
        self.devices(Detail::Row)
    }

    fn devices(&self, detail: Detail) -> Result<Vec<ClientDevice>> {
        let mut devices = Vec::new();
        // This also finds devices that are being mapped, which have no link in ctl/devices yet.
        for (name, folder) in read::entries(&self.sys("block"))? {
            if name.starts_with("rnbd") {
                devices.extend(client_device(&name, &folder, detail)?);
            }
        }
        Ok(devices)
    }

    /// The device that the kernel calls `name`; `None` if there is none.
    pub fn client_device(&self, name: &str) -> Result<Option<ClientDevice>> {
        if !name.starts_with("rnbd") || name.contains('/') {
            return Ok(None);
        }
        client_device(name, &self.sys("block").join(name), Detail::Whole)
    }

    /// The kernel's name of the device that `session` has mapped from `device_path`.
    pub fn client_device_name(&self, session: &str, device_path: &str) -> Result<Option<String>> {
        let link = format!("{}@{session}", device_path.replace('/', "!"));
        read::link_name(&self.sys("class/rnbd-client/ctl/devices").join(link))
    }

    /// The names of a device that stay the same, whichever number it has: the links that udev has
    /// made.
    pub fn links_to(&self, device: &ClientDevice) -> Vec<String> {
        let session = format!("dev/rnbd/by-session/{}", device.session);
        let by_session = link_name::of(&device.device_path).map(|name| format!("{session}/{name}"));
        let by_id = read::entries(&self.file("dev/disk/by-id")).unwrap_or_default();
        let by_id = by_id.into_iter().map(|(name, _)| name);
        let by_id = by_id.filter(|name| name.starts_with("rnbd-"));
        let candidates = by_session
            .into_iter()
            .chain(by_id.map(|name| format!("dev/disk/by-id/{name}")));
        let leads_there = |link: &String| {
            let target = self.file(link).canonicalize();
            target.is_ok_and(|target| target.ends_with(&device.name))
        };
        let found = candidates.filter(leads_there);
        found.map(|link| format!("/{link}")).collect()
    }

    /// The block layer's counters of a disk; `None` if it is gone.
    pub fn block_stat(&self, disk: &str) -> Result<Option<BlockStat>> {
        let text = read::text(&self.sys("block").join(disk).join("stat"))?;
        Ok(text.and_then(|text| BlockStat::parse(&text)))
    }

    /// All sessions of `rtrs_client`, by name.
    pub fn client_sessions(&self) -> Result<Vec<ClientSession>> {
        let mut sessions = Vec::new();
        for (name, folder) in read::entries(&self.sys("class/rtrs-client"))? {
            sessions.extend(client_session(&name, &folder)?);
        }
        Ok(sessions)
    }

    /// The session of that name; `None` if there is none.
    pub fn client_session(&self, name: &str) -> Result<Option<ClientSession>> {
        if name.is_empty() || name.contains(['/', '.']) {
            return Ok(None);
        }
        client_session(name, &self.sys("class/rtrs-client").join(name))
    }
}

/// How many of a device's files are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Those for a row of a table.
    Row,
    /// All.
    Whole,
}

fn client_device(name: &str, disk: &FilePath, detail: Detail) -> Result<Option<ClientDevice>> {
    let folder = disk.join("rnbd");
    // A disk without this folder is being mapped or unmapped, and cannot be used.
    let Some(files) = read::Folder::open(&folder)? else {
        return Ok(None);
    };
    let text = |file: &str| files.text(file);
    let Some(state) = text("state")? else {
        return Ok(None);
    };
    let state = DeviceState::parse(&state);
    let more = |file: &str| match detail {
        Detail::Row => Ok(None),
        Detail::Whole => files.text(file),
    };
    let number = |file: &str| Ok::<Option<i32>, Error>(parsed(more(file)?));
    // An administrator's close is told only of a closed device.
    let closed_by = match state {
        DeviceState::Closed => more("closed_by")?,
        _ => None,
    };
    let sectors: Option<u64> = files.number("../size")?;
    Ok(Some(ClientDevice {
        name: name.to_owned(),
        path: format!("/dev/{name}"),
        session: text("session")?.unwrap_or_default(),
        device_path: text("mapping_path")?.unwrap_or_default(),
        access_mode: text("access_mode")?.and_then(|mode| AccessMode::parse(&mode)),
        io_mode: more("io_mode")?.and_then(|mode| IoModeWish::parse(&mode)),
        state,
        closed_by_server: closed_by.is_some_and(|by| by == "server"),
        size_bytes: sectors.and_then(|sectors| sectors.checked_mul(SECTOR_SIZE)),
        poll_queues: parsed(more("nr_poll_queues")?),
        io_timeout_ms: number(IO_TIMEOUT.name)?.filter(|&ms| IO_TIMEOUT.contains(ms)),
        hold_io_ms: number(HOLD_DISK_IO.name)?.filter(|&ms| HOLD_DISK_IO.contains(ms)),
        io_timeouts: parsed(more("io_timeouts")?),
        io_unanswered: parsed(more("io_unanswered")?),
        folder,
    }))
}

/// The number of a file's text; `None` if it is none.
fn parsed<T: FromStr>(text: Option<String>) -> Option<T> {
    text.and_then(|text| text.parse().ok())
}

fn client_session(name: &str, folder: &FilePath) -> Result<Option<ClientSession>> {
    let Some(policy) = read::text(&folder.join("mpath_policy"))? else {
        return Ok(None);
    };
    let mut paths = Vec::new();
    for (path, folder) in read::entries(&folder.join("paths"))? {
        paths.extend(client_path(name, &path, folder)?);
    }
    let mut settings = Settings::default();
    for setting in Settings::ALL {
        if let Some(value) = read::number(&folder.join(setting.name))? {
            settings.0.insert(setting.name, value);
        }
    }
    let up = paths.iter().filter(|path| path.is_up()).count();
    Ok(Some(ClientSession {
        name: name.to_owned(),
        state: SessionState::of(up, paths.len()),
        policy: Policy::parse(&policy),
        settings,
        paths,
        folder: folder.to_path_buf(),
    }))
}

fn client_path(session: &str, name: &str, folder: PathBuf) -> Result<Option<Path>> {
    let text = |file: &str| read::text(&folder.join(file));
    let Some(state) = text("state")? else {
        return Ok(None);
    };
    // "1234 ns"
    let latency =
        text("cur_latency")?.and_then(|text| text.split_whitespace().next()?.parse().ok());
    let stats = PathStats::parse(
        &text("stats/rdma")?.unwrap_or_default(),
        &text("stats/reconnects")?.unwrap_or_default(),
    );
    let state = PathState::parse(&state);
    Ok(Some(path(
        session,
        name,
        Side::Client,
        state,
        latency,
        stats,
        folder,
    )?))
}

/// Reads a path of either end; both ends have these files.
pub(super) fn path(
    session: &str,
    name: &str,
    side: Side,
    state: PathState,
    latency_ns: Option<u64>,
    stats: PathStats,
    folder: PathBuf,
) -> Result<Path> {
    let text = |file: &str| read::text(&folder.join(file));
    Ok(Path {
        name: name.to_owned(),
        session: session.to_owned(),
        side,
        state,
        hca_name: text("hca_name")?.filter(|name| !name.is_empty()),
        hca_port: read::number(&folder.join("hca_port"))?,
        source: text("src_addr")?.unwrap_or_default(),
        destination: text("dst_addr")?.unwrap_or_default(),
        latency_ns,
        stats,
        folder,
    })
}
