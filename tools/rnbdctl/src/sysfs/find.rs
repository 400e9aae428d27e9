// SPDX-License-Identifier: GPL-2.0

//! Finds the object that the user means by a name.

use super::System;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::Path;
use crate::model::ServerDevice;
use crate::model::ServerSession;
use crate::Error;
use crate::Kind;
use crate::Result;

/// The object of a name.
#[derive(Clone, Debug)]
pub enum Found {
    /// A mapped device.
    Device(ClientDevice),
    /// A session of this client.
    Session(ClientSession),
    /// A path, of either end.
    Path(Path),
    /// A device that this server exports.
    ServerDevice(ServerDevice),
    /// A session of this server.
    ServerSession(ServerSession),
}

impl System {
    /// The mapped device that the user means by `name`: `rnbd0`, `/dev/rnbd0`, a link to that, the
    /// disk's path at the server if only one session has it, or the path with `@` and the session.
    pub fn find_device(&self, name: &str) -> Result<ClientDevice> {
        if let Some(device) = self.client_device(&self.kernel_name(name))? {
            return Ok(device);
        }
        if let Some((device_path, session)) = name.rsplit_once('@') {
            if let Some(name) = self.client_device_name(session, device_path)? {
                if let Some(device) = self.client_device(&name)? {
                    return Ok(device);
                }
            }
        }
        let mut matching = self.client_devices()?;
        matching.retain(|device| device.device_path == name);
        match (matching.pop(), matching.is_empty()) {
            (Some(device), true) => Ok(device),
            (Some(device), false) => Err(Error::new(
                Kind::Usage,
                format!("device {name}"),
                "more than one session has mapped the disk",
            )
            .hint(format!(
                "choose a device, as in {}, or {name}@{}",
                device.name, device.session
            ))),
            (None, _) => Err(self.no_device(name)),
        }
    }

    fn no_device(&self, name: &str) -> Error {
        if let Err(error) = self.need_client(&format!("device {name}")) {
            return error;
        }
        Error::new(
            Kind::NotFound,
            format!("device {name}"),
            "no such device is mapped",
        )
        .hint("list the mapped devices with: rnbdctl list devices")
    }

    /// The last part of the name of a device node. Links are followed.
    fn kernel_name(&self, name: &str) -> String {
        let Some(node) = name.strip_prefix("/dev/") else {
            return name.to_owned();
        };
        let real = self.device_node(node).canonicalize().ok();
        let last = real.as_deref().and_then(|path| path.file_name()?.to_str());
        last.unwrap_or(node).to_owned()
    }

    /// The session of this client called `name`.
    pub fn find_session(&self, name: &str) -> Result<ClientSession> {
        if let Some(session) = self.client_session(name)? {
            return Ok(session);
        }
        if !self.sys("class/rtrs-client").is_dir() {
            let error = Error::new(
                Kind::Unsupported,
                format!("session {name}"),
                "the module rtrs_client is not loaded",
            );
            return Err(error.hint("load it with: modprobe rnbd_client"));
        }
        Err(Error::new(
            Kind::NotFound,
            format!("session {name}"),
            "there is no such session",
        )
        .hint("list the sessions with: rnbdctl list sessions"))
    }

    /// The path of this client that the user means by `name`: `source@destination`, perhaps of the
    /// session `session` only. An address without `ip:` or `gid:` is an IP address; the source
    /// may be left out where the destination is enough.
    pub fn find_path(&self, name: &str, session: Option<&str>) -> Result<Path> {
        if !self.sys("class/rtrs-client").is_dir() {
            self.need_client(&format!("path {name}"))?;
        }
        let sessions = match session {
            Some(session) => vec![self.find_session(session)?],
            None => self.client_sessions()?,
        };
        let paths = sessions
            .into_iter()
            .flat_map(|session| session.paths)
            .collect();
        one_path(name, paths)
    }

    /// The path of this server that the user means by `name`, as for [`Self::find_path`].
    pub fn find_server_path(&self, name: &str, session: Option<&str>) -> Result<Path> {
        let mut sessions = self.server_sessions()?;
        if let Some(wanted) = session {
            sessions.retain(|session| session.name == wanted);
        }
        let paths = sessions
            .into_iter()
            .flat_map(|session| session.paths)
            .collect();
        one_path(name, paths)
    }

    /// All paths: of this machine as a client, and then as a server.
    pub fn all_paths(&self) -> Result<Vec<Path>> {
        let client = self.client_sessions()?.into_iter();
        let client = client.flat_map(|session| session.paths);
        let server = self.server_sessions()?.into_iter();
        let server = server.flat_map(|session| session.paths);
        Ok(client.chain(server).collect())
    }

    /// The object that the user means by `name`, of any kind.
    pub fn find(&self, name: &str) -> Result<Found> {
        self.need_any(name)?;
        if let Some(session) = self.client_session(name)? {
            return Ok(Found::Session(session));
        }
        if let Some(session) = self.server_session(name)? {
            return Ok(Found::ServerSession(session));
        }
        let exported = name.strip_prefix("/dev/").unwrap_or(name);
        let error = match self.find_device(name) {
            Ok(device) => return Ok(Found::Device(device)),
            Err(error) => error,
        };
        if let Some(device) = self
            .server_devices()?
            .into_iter()
            .find(|device| device.name == exported)
        {
            return Ok(Found::ServerDevice(device));
        }
        if error.kind() == Kind::Usage {
            return Err(error);
        }
        for path in [
            self.find_path(name, None),
            self.find_server_path(name, None),
        ] {
            match path {
                Ok(path) => return Ok(Found::Path(path)),
                Err(error) if error.kind() == Kind::Usage => return Err(error),
                Err(_) => (),
            }
        }
        Err(Error::new(
            Kind::NotFound,
            name,
            "there is no device, session or path of that name",
        )
        .hint("list all names with: rnbdctl list"))
    }
}

fn one_path(name: &str, mut paths: Vec<Path>) -> Result<Path> {
    paths.retain(|path| matches(name, path));
    match (paths.pop(), paths.is_empty()) {
        (Some(path), true) => Ok(path),
        (Some(path), false) => {
            let mut all: Vec<_> = paths
                .iter()
                .map(|path| format!("{} of {}", path.name, path.session))
                .collect();
            all.push(format!("{} of {}", path.name, path.session));
            let why = format!("more than one path has this name: {}", all.join(", "));
            Err(Error::new(Kind::Usage, format!("path {name}"), why)
                .hint("give the full name of the path, and --session"))
        }
        (None, _) => Err(Error::new(
            Kind::NotFound,
            format!("path {name}"),
            "there is no such path",
        )
        .hint("list the paths with: rnbdctl list paths")),
    }
}

fn matches(name: &str, path: &Path) -> bool {
    let is = |given: &str, have: &str| given == have || have.strip_prefix("ip:") == Some(given);
    match name.split_once(['@', ',']) {
        Some((source, destination)) => {
            let (have_source, have_destination) =
                path.name.split_once('@').unwrap_or(("", &path.name));
            is(source, have_source) && is(destination, have_destination)
        }
        None => is(name, path.name.rsplit('@').next().unwrap_or_default()),
    }
}
