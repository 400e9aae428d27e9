// SPDX-License-Identifier: GPL-2.0

//! The files of the server's modules.

use std::path::Path as FilePath;
use std::path::PathBuf;

use super::client;
use super::read;
use super::System;
use crate::model::AccessMode;
use crate::model::Export;
use crate::model::Path;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Server;
use crate::model::ServerDevice;
use crate::model::ServerSession;
use crate::model::Side;
use crate::Result;

impl System {
    /// Everything about this machine as a server.
    pub fn server(&self) -> Result<Server> {
        Ok(Server {
            loaded: self.server_loaded(),
            devices: self.server_devices()?,
            sessions: self.server_sessions()?,
        })
    }

    /// The devices that clients have mapped, by name.
    pub fn server_devices(&self) -> Result<Vec<ServerDevice>> {
        let mut devices = Vec::new();
        for (name, folder) in read::entries(&self.sys("class/rnbd-server/ctl/devices"))? {
            let mut exports = Vec::new();
            for (session, folder) in read::entries(&folder.join("sessions"))? {
                exports.extend(export(session, folder)?);
            }
            devices.push(ServerDevice { name, exports });
        }
        Ok(devices)
    }

    /// The sessions of clients, by name.
    pub fn server_sessions(&self) -> Result<Vec<ServerSession>> {
        let mut sessions = Vec::new();
        for (name, folder) in read::entries(&self.sys("class/rtrs-server"))? {
            // The class has only sessions, each with this folder.
            if folder.join("paths").is_dir() {
                sessions.push(server_session(name, folder)?);
            }
        }
        Ok(sessions)
    }

    /// The client's session of that name; `None` if there is none.
    pub fn server_session(&self, name: &str) -> Result<Option<ServerSession>> {
        let folder = self.sys("class/rtrs-server").join(name);
        if name.is_empty() || name.contains(['/', '.']) || !folder.join("paths").is_dir() {
            return Ok(None);
        }
        server_session(name.to_owned(), folder).map(Some)
    }
}

fn export(session: String, folder: PathBuf) -> Result<Option<Export>> {
    let Some(device_path) = read::text(&folder.join("mapping_path"))? else {
        return Ok(None);
    };
    Ok(Some(Export {
        session,
        device_path,
        access_mode: read::text(&folder.join("access_mode"))?
            .and_then(|mode| AccessMode::parse(&mode)),
        folder,
    }))
}

fn server_session(name: String, folder: PathBuf) -> Result<ServerSession> {
    let mut paths = Vec::new();
    for (path, folder) in read::entries(&folder.join("paths"))? {
        paths.push(server_path(&name, &path, folder)?);
    }
    Ok(ServerSession {
        memory_bytes: read::number(&folder.join("memory_bytes"))?,
        pooled_memory_bytes: read::number(&folder.join("pooled_memory_bytes"))?,
        name,
        paths,
        folder,
    })
}

fn server_path(session: &str, name: &str, folder: PathBuf) -> Result<Path> {
    let rdma: &FilePath = &folder.join("stats/rdma");
    let stats = PathStats::parse(&read::text(rdma)?.unwrap_or_default(), "");
    client::path(
        session,
        name,
        Side::Server,
        PathState::Connected,
        None,
        stats,
        folder,
    )
}
