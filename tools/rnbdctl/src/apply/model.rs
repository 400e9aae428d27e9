// SPDX-License-Identifier: GPL-2.0

//! A machine in memory that behaves as the kernel does, with servers that may be out of reach.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use proto::addr::PathAddress;
use proto::setting::Setting;

use super::Machine;
use super::State;
use crate::address::path_text;
use crate::config::Device;
use crate::config::Session;
use crate::model::Client;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::DeviceState;
use crate::model::Path;
use crate::model::PathState;
use crate::model::PathStats;
use crate::model::Policy;
use crate::model::SessionState;
use crate::model::Settings;
use crate::model::Side;
use crate::Error;
use crate::Kind;
use crate::Result;

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) state: State,
    /// Destinations that do not respond.
    pub(crate) down: BTreeSet<String>,
    /// The paths that host names stand for.
    pub(crate) names: BTreeMap<String, Vec<PathAddress>>,
    /// Disks that no server has.
    pub(crate) missing: BTreeSet<String>,
    /// Destinations and disks that fail in another way.
    pub(crate) refused: BTreeMap<String, Kind>,
    /// Device nodes in use.
    pub(crate) busy: BTreeSet<String>,
    /// The time that requests of new sessions wait.
    pub(crate) hold_io_ms: i32,
    /// Whether sessions have only the values of the C module.
    pub(crate) is_c: bool,
    /// All changes that were requested.
    pub(crate) writes: Vec<String>,
    /// The number of attempts to map a disk that fail before it appears.
    pub(crate) patience: BTreeMap<String, usize>,
    next: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Model(pub(crate) Mutex<Inner>);

fn fail(kind: Kind, why: &str) -> Error {
    Error::new(kind, "asking the model", why)
}

impl Model {
    pub(crate) fn new() -> Self {
        let model = Self::default();
        model.with(|inner| {
            inner.state.cpus = 4;
            inner.state.client.loaded = true;
            inner.hold_io_ms = crate::config::DEFAULT_HOLD_MS;
        });
        model
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap())
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.with(|inner| std::mem::take(&mut inner.writes))
    }
}

impl Inner {
    fn session(&mut self, name: &str) -> Result<&mut ClientSession> {
        let mut sessions = self.state.client.sessions.iter_mut();
        sessions
            .find(|have| have.name == name)
            .ok_or_else(|| fail(Kind::NotFound, "no such session"))
    }

    fn reach(&self, path: &PathAddress) -> Result {
        let destination = path.dst.to_text();
        match self.down.contains(destination.as_str()) {
            true => Err(fail(Kind::Unreachable, "the server does not respond")),
            false => self.accept(destination.as_str()),
        }
    }

    fn accept(&self, name: &str) -> Result {
        match self.refused.get(name) {
            Some(kind) => Err(fail(*kind, "refused")),
            None => Ok(()),
        }
    }

    fn make_session(&mut self, name: &str, paths: &[PathAddress]) -> Result {
        if paths.is_empty() {
            return Err(fail(Kind::NotFound, "no such session, and no path"));
        }
        for path in paths {
            self.reach(path)?;
        }
        let mut settings = Settings::default();
        for setting in Settings::ALL {
            if !self.is_c || setting.name == "max_reconnect_attempts" {
                settings.0.insert(setting.name, setting.default.into());
            }
            // As if rtrs_client had been loaded with this parameter.
            if !self.is_c && setting.name == "hold_io_ms" {
                settings.0.insert(setting.name, self.hold_io_ms.into());
            }
        }
        self.state.client.sessions.push(ClientSession {
            name: name.to_owned(),
            state: SessionState::Connected,
            policy: Some(Policy::MinInflight),
            settings,
            paths: paths.iter().map(|path| path_of(name, path)).collect(),
            folder: PathBuf::new(),
        });
        Ok(())
    }

    fn end_unused(&mut self) {
        let Client {
            devices, sessions, ..
        } = &mut self.state.client;
        sessions.retain(|session| devices.iter().any(|device| device.session == session.name));
    }
}

fn path_of(session: &str, path: &PathAddress) -> Path {
    let source = path.src.map_or("ip:192.168.7.7".to_owned(), |src| {
        src.to_text().as_str().to_owned()
    });
    let destination = path.dst.to_text().as_str().to_owned();
    Path {
        name: format!("{source}@{destination}"),
        session: session.to_owned(),
        side: Side::Client,
        state: PathState::Connected,
        hca_name: None,
        hca_port: None,
        source,
        destination,
        latency_ns: None,
        stats: PathStats::default(),
        folder: PathBuf::new(),
    }
}

impl Machine for Model {
    fn state(&self) -> Result<State> {
        Ok(self.with(|inner| inner.state.clone()))
    }

    fn look_up(&self, session: &Session) -> Result<Session> {
        let mut session = session.clone();
        self.with(|inner| {
            for host in &session.hosts {
                let Some(paths) = inner.names.get(&host.to_string()) else {
                    return Err(fail(Kind::Unreachable, "no such name"));
                };
                session.found.extend(paths);
            }
            Ok(())
        })?;
        Ok(session)
    }

    fn map(&self, session: &Session, paths: &[PathAddress], device: &Device) -> Result<String> {
        self.with(|inner| {
            inner
                .writes
                .push(format!("map {}@{}", device.path, session.name));
            if inner.session(&session.name).is_err() {
                inner.make_session(&session.name, paths)?;
            }
            let attempts = inner.patience.entry(device.path.clone()).or_default();
            let is_late = *attempts > 0;
            *attempts = attempts.saturating_sub(1);
            let devices = &inner.state.client.devices;
            let result = if is_late || inner.missing.contains(&device.path) {
                Err(fail(Kind::NotFound, "no such disk"))
            } else if devices
                .iter()
                .any(|have| have.session == session.name && have.device_path == device.path)
            {
                Err(fail(Kind::Busy, "mapped already"))
            } else {
                inner.accept(&device.path)
            };
            if let Err(error) = result {
                inner.end_unused();
                return Err(error);
            }
            let name = format!("rnbd{}", inner.next);
            inner.next += 1;
            let path = format!("/dev/{name}");
            inner.state.client.devices.push(ClientDevice {
                name,
                path: path.clone(),
                session: session.name.clone(),
                device_path: device.path.clone(),
                access_mode: Some(device.access_mode),
                io_mode: Some(device.io_mode.into()),
                state: DeviceState::Open,
                closed_by_server: false,
                size_bytes: None,
                poll_queues: Some(match session.nr_poll_queues.unwrap_or(0) {
                    -1 => 4,
                    nr => nr as u32,
                }),
                io_timeout_ms: (!inner.is_c).then_some(0),
                hold_io_ms: (!inner.is_c).then_some(-1),
                io_timeouts: (!inner.is_c).then_some(0),
                io_unanswered: (!inner.is_c).then_some(0),
                folder: PathBuf::new(),
            });
            Ok(path)
        })
    }

    fn unmap(&self, device: &ClientDevice) -> Result {
        self.with(|inner| {
            inner.writes.push(format!("unmap {}", device.name));
            if inner.busy.contains(&device.name) {
                return Err(fail(Kind::Busy, "it is in use"));
            }
            inner
                .state
                .client
                .devices
                .retain(|have| have.name != device.name);
            inner.end_unused();
            Ok(())
        })
    }

    fn reopen(&self, device: &ClientDevice) -> Result {
        self.with(|inner| {
            inner.writes.push(format!("reopen {}", device.name));
            let devices = &mut inner.state.client.devices;
            for have in devices.iter_mut().filter(|have| have.name == device.name) {
                have.state = DeviceState::Open;
            }
            Ok(())
        })
    }

    fn add_path(&self, session: &str, path: &PathAddress) -> Result {
        self.with(|inner| {
            inner
                .writes
                .push(format!("add {} to {session}", path_text(path)));
            inner.reach(path)?;
            let path = path_of(session, path);
            let session = inner.session(session)?;
            if session.paths.iter().any(|have| have.name == path.name) {
                return Err(fail(Kind::Busy, "exists already"));
            }
            session.paths.push(path);
            Ok(())
        })
    }

    fn reconnect(&self, session: &str, path: &str) -> Result {
        self.with(|inner| {
            inner.writes.push(format!("reconnect {path} of {session}"));
            inner.reach(&PathAddress::parse(path.as_bytes()).unwrap())?;
            let paths = &mut inner.session(session)?.paths;
            for have in paths.iter_mut().filter(|have| have.name == path) {
                have.state = PathState::Connected;
            }
            Ok(())
        })
    }

    fn remove_path(&self, session: &str, path: &str) -> Result {
        self.with(|inner| {
            inner.writes.push(format!("remove {path} of {session}"));
            inner
                .session(session)?
                .paths
                .retain(|have| have.name != path);
            Ok(())
        })
    }

    fn set_policy(&self, session: &str, policy: Policy) -> Result {
        self.with(|inner| {
            inner.writes.push(format!("set policy of {session}"));
            inner.session(session)?.policy = Some(policy);
            Ok(())
        })
    }

    fn set(&self, session: &str, setting: &Setting, value: i32) -> Result {
        self.with(|inner| {
            inner
                .writes
                .push(format!("set {} of {session}", setting.name));
            let settings = &mut inner.session(session)?.settings;
            match settings.0.get_mut(setting.name) {
                None => Err(fail(Kind::Unsupported, "the module does not have it")),
                Some(have) => {
                    *have = value.into();
                    Ok(())
                }
            }
        })
    }

    fn set_device(&self, device: &ClientDevice, setting: &Setting, value: i32) -> Result {
        self.with(|inner| {
            let name = &device.name;
            inner
                .writes
                .push(format!("set {} of {name} to {value}", setting.name));
            inner.accept(name)?;
            let mut devices = inner.state.client.devices.iter_mut();
            let Some(have) = devices.find(|have| have.name == *name) else {
                return Err(fail(Kind::NotFound, "no such device"));
            };
            let field = match setting.name {
                "hold_io_ms" => &mut have.hold_io_ms,
                _ => &mut have.io_timeout_ms,
            };
            match field {
                None => Err(fail(Kind::Unsupported, "the module does not have it")),
                Some(have) => {
                    *have = value;
                    Ok(())
                }
            }
        })
    }
}
