// SPDX-License-Identifier: GPL-2.0

//! The mapped devices as a configuration.

use proto::addr::Address;
use proto::addr::PathAddress;
use proto::name::SessName;
use proto::setting::Setting;
use proto::setting::HOLD_DISK_IO;
use proto::setting::HOLD_IO;
use proto::setting::IO_TIMEOUT;

use super::to_toml;
use super::Config;
use super::Device;
use super::Session;
use super::DEFAULT_HOLD_MS;
use crate::address::lacks_interface;
use crate::model::AccessMode;
use crate::model::Client;
use crate::model::ClientSession;
use crate::model::IoModeWish;
use crate::model::Path;
use crate::model::Settings;

/// A configuration with the same sessions, paths and devices. Numbers that have their default
/// values are left out.
pub fn from_client(client: &Client) -> Config {
    let session = |have: &ClientSession| {
        let mine = || {
            client
                .devices
                .iter()
                .filter(|device| device.session == have.name)
        };
        let polls = mine()
            .filter_map(|device| device.poll_queues)
            .find(|&nr| nr > 0);
        Session {
            name: have.name.clone(),
            paths: have.paths.iter().filter_map(path).collect(),
            hosts: Vec::new(),
            found: Vec::new(),
            dest_port: None,
            policy: have.policy,
            nr_poll_queues: polls.and_then(|nr| i32::try_from(nr).ok()),
            settings: Settings::ALL
                .into_iter()
                .filter_map(|setting| {
                    let value = i32::try_from(have.settings.get(setting.name)?).ok()?;
                    (value != default_of(&setting)).then_some((setting.name, value))
                })
                .collect(),
            devices: mine()
                .map(|device| Device {
                    path: device.device_path.clone(),
                    access_mode: device.access_mode.unwrap_or(AccessMode::Rw),
                    io_mode: device.io_mode.and_then(IoModeWish::mode),
                    io_timeout_ms: device.io_timeout_ms.filter(|&ms| ms != IO_TIMEOUT.default),
                    hold_io_ms: device.hold_io_ms.filter(|&ms| ms != HOLD_DISK_IO.default),
                })
                .collect(),
        }
    };
    let mut sessions: Vec<_> = client.sessions.iter().map(session).collect();
    // Sessions of other users of RTRS have no devices. A name that the kernel would not take is not
    // usable in a file.
    sessions.retain(|session| {
        !session.devices.is_empty() && SessName::new(session.name.as_bytes()).is_ok()
    });
    Config {
        sessions,
        mirrors: Vec::new(),
    }
}

/// The value of a session whose file does not say.
fn default_of(setting: &Setting) -> i32 {
    match setting.name == HOLD_IO.name {
        true => DEFAULT_HOLD_MS,
        false => setting.default,
    }
}

/// The path with both ends, or without the source if the path has none yet.
fn path(path: &Path) -> Option<PathAddress> {
    let mut path = PathAddress::parse(path.name.as_bytes()).ok()?;
    let is_nothing = |address: &Address| match address {
        Address::V4(bytes) => *bytes == [0; 4],
        Address::V6 { addr, .. } | Address::Gid(addr) => *addr == [0; 16],
    };
    path.src = path.src.filter(|src| !is_nothing(src));
    Some(path)
}

/// The text of a file with that configuration, with a head that says where it comes from.
pub fn file_text(client: &Client) -> String {
    let config = from_client(client);
    let mut head = String::from(
        "# The mapped devices, written by `rnbdctl config'; configuration.md has all keys.\n\
         # The kernel does not show a server's port: give dest_port if the port is not 1234.\n",
    );
    let mut paths = config.sessions.iter().flat_map(|session| &session.paths);
    let lacks = |path: &PathAddress| {
        lacks_interface(&path.dst) || path.src.as_ref().is_some_and(lacks_interface)
    };
    if paths.any(lacks) {
        head.push_str(
            "# The kernel does not show the interface of a link-local address: \
             write the interface behind fe80:..., as %eth0.\n",
        );
    }
    format!("{head}\n{}", to_toml(&config))
}
