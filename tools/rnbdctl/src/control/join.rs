// SPDX-License-Identifier: GPL-2.0

//! The choice of the session by which the disks of a server are mapped.

use std::collections::BTreeSet;

use proto::addr::PathAddress;

use super::session;
use crate::address::path_text;
use crate::identity;
use crate::model::ClientSession;
use crate::model::Path;
use crate::ways::Ways;
use crate::Error;
use crate::Kind;
use crate::Result;
use crate::System;

/// The server whose disks are to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// The user's name for the server.
    pub name: &'a str,
    /// The paths to the server.
    pub ways: &'a Ways,
    /// The server's port, if the user has given it.
    pub port: Option<u16>,
    /// The disk that needs a session of its own, because it has queues for polled IO.
    pub polled: Option<&'a str>,
}

impl Server<'_> {
    /// The name of the session for the server's disks: the session that carries disks of this
    /// server already, or else the name that this machine gives to such a session.
    pub fn session(&self, system: &System) -> Result<String> {
        let purpose = identity::purpose(self.port, self.polled);
        let own = identity::session_name(system, self.name, &purpose);
        if let Some(session) = system.client_session(&own)? {
            return match session.paths.is_empty() || self.is_of(&session) {
                true => Ok(own),
                false => Err(self.elsewhere(&session)),
            };
        }
        // The port of an existing session cannot be read.
        if self.port.is_some() || self.polled.is_some() {
            return Ok(own);
        }
        let mut candidates = self.candidates(system)?;
        match (candidates.pop(), candidates.pop()) {
            (None, _) => Ok(own),
            (Some(only), None) => Ok(only),
            (Some(a), Some(b)) => {
                let what = format!("choosing a session with {}", self.name);
                let why = format!("several sessions lead to the server: {a}, {b}");
                let error = Error::new(Kind::Usage, what, why);
                Err(error.hint(format!("choose a session, as in --session {a}")))
            }
        }
    }

    /// Fails if the session `name`, which the user has chosen, exists and leads to another server:
    /// the kernel would map the disk of that name from that server.
    pub fn check(&self, system: &System, name: &str) -> Result {
        match system.client_session(name)? {
            Some(session) if !session.paths.is_empty() && !self.is_of(&session) => {
                Err(self.elsewhere(&session))
            }
            _ => Ok(()),
        }
    }

    /// The sessions with this server that carry devices. Sessions for polled IO are left out, since
    /// they take only one device.
    fn candidates(&self, system: &System) -> Result<Vec<String>> {
        let mut sessions = system.client_sessions()?;
        sessions.retain(|session| self.is_of(session));
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let mut carrying = BTreeSet::new();
        let mut polled = BTreeSet::new();
        for device in system.client_devices()? {
            if device.poll_queues.is_some_and(|queues| queues > 0) {
                polled.insert(device.session.clone());
            }
            carrying.insert(device.session);
        }
        let names = sessions.into_iter().map(|session| session.name);
        Ok(names
            .filter(|name| carrying.contains(name) && !polled.contains(name))
            .collect())
    }

    fn is_of(&self, session: &ClientSession) -> bool {
        let mut ways = self.ways.all();
        ways.any(|way| session.paths.iter().any(|path| leads_to(way, path)))
    }

    fn elsewhere(&self, session: &ClientSession) -> Error {
        let what = format!("choosing a session with {}", self.name);
        let destinations: Vec<_> = session
            .paths
            .iter()
            .map(|path| path.destination.as_str())
            .collect();
        let why = format!(
            "session {} leads to another address: {}",
            session.name,
            destinations.join(", ")
        );
        Error::new(Kind::Busy, what, why).hint(format!(
            "add the new address with rnbdctl path add {0} {1}, or give another --session",
            session.name, self.name
        ))
    }
}

/// Whether a path of a session has the destination of `way`.
fn leads_to(way: &PathAddress, path: &Path) -> bool {
    let have = PathAddress::parse(path.name.as_bytes());
    have.is_ok_and(|have| have.dst.same_as(&way.dst))
}

/// Adds the found paths that the session does not have yet. Returns the paths that could not be
/// added, each with the reason: the address may be another server's, or out of reach.
pub fn add_found(system: &System, session: &str, ways: &Ways) -> Result<Vec<(String, Error)>> {
    let mut failed = Vec::new();
    for way in &ways.found {
        let session = system.find_session(session)?;
        if session.paths.iter().any(|path| leads_to(way, path)) {
            continue;
        }
        if let Err(error) = session::add_path(&session, way) {
            failed.push((path_text(way), error));
        }
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::address::parse_path;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn session(&self, name: &str, path: &str, number: u32, queues: u32) {
            let folder = format!("sys/class/rtrs-client/{name}");
            self.write(&format!("{folder}/mpath_policy"), "min-inflight (MI: 1)\n");
            self.write(&format!("{folder}/add_path"), "");
            self.write(&format!("{folder}/paths/{path}/state"), "connected\n");
            let folder = format!("sys/block/rnbd{number}/rnbd");
            self.write(&format!("{folder}/state"), "open\n");
            self.write(&format!("{folder}/session"), &format!("{name}\n"));
            self.write(&format!("{folder}/nr_poll_queues"), &format!("{queues}\n"));
        }

        fn choose(&self, polled: Option<&str>, port: Option<u16>) -> Result<String> {
            let ways = Ways {
                given: vec![parse_path("10.0.0.2").unwrap()],
                found: Vec::new(),
            };
            let server = Server {
                name: "storage",
                ways: &ways,
                port,
                polled,
            };
            server.session(&System::new(Some(self.0.path()), None))
        }
    }

    #[test]
    fn disks_of_a_server_share_a_session() {
        let machine = Machine::new();
        machine.write("proc/sys/kernel/hostname", "web1\n");
        assert_eq!(machine.choose(None, None), Ok("web1-storage".into()));
        machine.session("mine", "ip:10.0.0.1@ip:10.0.0.2", 0, 0);
        machine.session("elsewhere", "ip:10.0.0.1@ip:10.0.0.3", 1, 0);
        machine.session("fast", "ip:10.0.0.1@ip:10.0.0.2", 2, 4);
        assert_eq!(machine.choose(None, None), Ok("mine".into()));
        assert_eq!(
            machine.choose(Some("vg/a"), None),
            Ok("web1-storage-vg-a".into())
        );
        assert_eq!(
            machine.choose(None, Some(4321)),
            Ok("web1-storage-4321".into())
        );
        machine.session("again", "ip:10.0.0.9@ip:10.0.0.2", 3, 0);
        let error = machine.choose(None, None).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(
            error.why().contains("again") && error.why().contains("mine"),
            "{error}"
        );
        machine.session("web1-storage", "ip:10.0.0.1@ip:10.0.0.2", 4, 0);
        assert_eq!(machine.choose(None, None), Ok("web1-storage".into()));
    }

    #[test]
    fn a_server_that_has_moved_is_noticed() {
        let machine = Machine::new();
        machine.write("proc/sys/kernel/hostname", "web1\n");
        machine.session("web1-storage", "ip:10.0.0.1@ip:10.0.0.7", 0, 0);
        let error = machine.choose(None, None).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        assert_eq!(
            error.why(),
            "session web1-storage leads to another address: "
        );
        assert!(
            error.remedy().unwrap().contains("path add web1-storage"),
            "{error:?}"
        );
    }

    #[test]
    fn found_paths_that_are_missing_are_added() {
        let machine = Machine::new();
        machine.session("mine", "ip:10.0.0.1@ip:10.0.0.2", 0, 0);
        let ways = Ways {
            given: Vec::new(),
            found: ["10.0.0.2", "10.0.1.2"]
                .map(|text| parse_path(text).unwrap())
                .to_vec(),
        };
        let system = System::new(Some(machine.0.path()), None);
        assert_eq!(add_found(&system, "mine", &ways), Ok(Vec::new()));
        let file = machine.0.path().join("sys/class/rtrs-client/mine/add_path");
        assert_eq!(fs::read_to_string(&file).unwrap(), "ip:10.0.1.2");
        fs::remove_file(&file).unwrap();
        let failed = add_found(&system, "mine", &ways).unwrap();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0, "ip:10.0.1.2");
    }
}
