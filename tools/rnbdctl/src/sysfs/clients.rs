// SPDX-License-Identifier: GPL-2.0

//! The counts of this server's clients, drains, and reservations.

use std::path::Path as FilePath;

use super::read;
use super::System;
use crate::model::ClientSession;
use crate::model::ClientUse;
use crate::model::Reserved;
use crate::model::ServerClients;
use crate::Result;

impl System {
    /// The counts of this server's clients.
    pub fn server_clients(&self) -> Result<ServerClients> {
        let module = self.sys("module/rtrs_server");
        let folder = module.join("clients");
        let number = |name: &str| read::number(&folder.join(name));
        let mut by_address = Vec::new();
        for (address, folder) in read::entries(&folder)? {
            if folder.is_dir() {
                by_address.push((address, client_use(&folder)?));
            }
        }
        let mut limits = Vec::new();
        for name in ServerClients::LIMITS {
            let parameter = module.join(format!("parameters/max_{name}"));
            // 0: any number.
            let limit = read::number(&parameter)?.filter(|&limit| limit != 0);
            limits.extend(limit.map(|limit| (name, limit)));
        }
        Ok(ServerClients {
            all: client_use(&folder)?,
            by_address,
            limits,
            refused: number("refused")?,
            given_up: number("given_up")?,
            auth_failed: number("auth_failed")?,
            pool_bytes: read::number(&module.join("chunk_pool/total_bytes"))?,
            pool_free_bytes: read::number(&module.join("chunk_pool/free_bytes"))?,
        })
    }

    /// The rest of this server's drain in seconds, 0 if it does not drain; `None` if the module
    /// cannot drain.
    pub fn server_drain(&self) -> Result<Option<u64>> {
        drain(&self.sys("class/rnbd-server/ctl/drain"))
    }

    /// The rest of the time in seconds for which a session's requests wait while its server is away
    /// on purpose, 0 if they do not wait; `None` if the module does not know of drains.
    pub fn session_drain(&self, session: &ClientSession) -> Result<Option<u64>> {
        drain(&session.folder.join("drain"))
    }

    /// How a disk of this server is reserved; `None` if the module keeps no reservations.
    pub fn reserved(&self, disk: &str) -> Result<Option<Reserved>> {
        let folder = self.sys("class/rnbd-server/ctl/devices").join(disk);
        let text = read::text(&folder.join("reservations"))?;
        Ok(text.map(|text| Reserved::parse(&text)))
    }
}

fn client_use(folder: &FilePath) -> Result<ClientUse> {
    let number = |name: &str| read::number(&folder.join(name));
    Ok(ClientUse {
        sessions: number("sessions")?,
        paths: number("paths")?,
        connections: number("connections")?,
        half_open: number("half_open")?,
    })
}

/// Reads the seconds in a file. The file says `off` for 0, and may have more text behind the
/// seconds.
fn drain(file: &FilePath) -> Result<Option<u64>> {
    let Some(text) = read::text(file)? else {
        return Ok(None);
    };
    Ok(match text.split_whitespace().next() {
        Some("off") => Some(0),
        word => word.and_then(|word| word.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drain");
        assert_eq!(drain(&file).unwrap(), None);
        for (text, expected) in [
            ("off\n", Some(0)),
            ("598 2 1\n", Some(598)),
            ("12\n", Some(12)),
            ("on\n", None),
            ("\n", None),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(drain(&file).unwrap(), expected, "{text:?}");
        }
    }
}
