// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl show`: everything about one device, session or path.

use proto::setting::HOLD_DISK_IO;
use proto::setting::IO_TIMEOUT;
use schemars::JsonSchema;
use serde::Serialize;

use super::list;
use crate::cli::Context;
use crate::complete;
use crate::model::BlockStat;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::Path;
use crate::model::ServerDevice;
use crate::model::ServerSession;
use crate::model::Settings;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Report;
use crate::output::Table;
use crate::sysfs::Found;
use crate::Result;
use crate::System;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A device (rnbd0, /dev/rnbd0, a disk's path at the server; of a server: sda), a session, or a
    /// path (SOURCE@ADDRESS, or ADDRESS if only one path has it)
    #[arg(value_name = "DEVICE|SESSION|PATH", add = complete::everything())]
    pub name: String,
}

/// The object of the name, and its parts.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Item {
    /// A mapped device.
    ClientDevice {
        /// The device.
        device: ClientDevice,
        /// The block layer's counters; `None` if the device has just gone.
        statistics: Option<BlockStat>,
        /// The session that carries the device; `None` if it has just gone.
        session: Option<ClientSession>,
        /// The stable names of the device, below /dev/rnbd/by-session and /dev/disk/by-id.
        links: Vec<String>,
    },
    /// A session with a server.
    ClientSession {
        /// The session.
        session: ClientSession,
        /// The devices that the session carries.
        devices: Vec<ClientDevice>,
    },
    /// A path.
    Path {
        /// The path.
        path: Path,
    },
    /// A device that clients have mapped.
    ServerDevice {
        /// The device.
        device: ServerDevice,
    },
    /// A client's session.
    ServerSession {
        /// The session.
        session: ServerSession,
        /// The devices that the session has mapped.
        devices: Vec<ServerDevice>,
    },
}

/// A device, a session or a path.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    version: Version,
    #[serde(flatten)]
    item: Item,
}

/// Shows the object.
pub fn run(args: &Args, context: &Context) -> Result {
    let found = context.system.find(&args.name)?;
    context.output.print(&Shown {
        version: JSON_VERSION,
        item: item(found, &context.system)?,
    })
}

fn item(found: Found, system: &System) -> Result<Item> {
    Ok(match found {
        Found::Device(device) => Item::ClientDevice {
            statistics: system.block_stat(&device.name)?,
            session: system.client_session(&device.session)?,
            links: system.links_to(&device),
            device,
        },
        Found::Session(session) => {
            let mut devices = system.client_devices()?;
            devices.retain(|device| device.session == session.name);
            Item::ClientSession { session, devices }
        }
        Found::Path(path) => Item::Path { path },
        Found::ServerDevice(device) => Item::ServerDevice { device },
        Found::ServerSession(session) => {
            let mut devices = system.server_devices()?;
            for device in &mut devices {
                device
                    .exports
                    .retain(|export| export.session == session.name);
            }
            devices.retain(|device| !device.exports.is_empty());
            Item::ServerSession { session, devices }
        }
    })
}

const FIELDS: &[Column] = &[
    Column::text("field", "FIELD"),
    Column::text("value", "VALUE").wraps(),
];

/// Fields and their values, one below the other.
#[derive(Default)]
struct Fields(Vec<Vec<Cell>>);

impl Fields {
    fn add(&mut self, name: &str, value: Cell) {
        self.0.push(vec![Cell::new(name), value]);
    }

    fn text(&mut self, name: &str, value: impl ToString) {
        self.add(name, Cell::new(value));
    }

    fn bytes(&mut self, name: &str, value: Option<u64>) {
        let shown = |bytes: &u64| format!("{} ({bytes} bytes)", output::bytes(*bytes));
        self.add(name, Cell::value(value, shown));
    }

    fn table(self, title: String) -> Table {
        Table {
            kind: "field",
            title,
            columns: FIELDS,
            rows: self.0,
            empty: String::new(),
        }
    }
}

impl Report for Shown {
    fn tables(&self) -> Vec<Table> {
        match &self.item {
            Item::ClientDevice {
                device,
                statistics,
                session,
                links,
            } => {
                let mut tables = vec![client_device(device, statistics.as_ref(), links)];
                if let Some(session) = session {
                    tables.push(client_session(session));
                    tables.push(paths(&session.paths));
                }
                tables
            }
            Item::ClientSession { session, devices } => vec![
                client_session(session),
                paths(&session.paths),
                list::client_devices(devices, "no device is mapped".to_owned()),
            ],
            Item::Path { path } => vec![one_path(path)],
            Item::ServerDevice { device } => {
                let devices = std::slice::from_ref(device);
                vec![list::server_devices(
                    devices,
                    "no client has mapped the device".to_owned(),
                )]
            }
            Item::ServerSession { session, devices } => vec![
                list::server_sessions(std::slice::from_ref(session), String::new()),
                paths(&session.paths),
                list::server_devices(devices, "no device is mapped".to_owned()),
            ],
        }
    }
}

fn paths(paths: &[Path]) -> Table {
    let side = paths
        .first()
        .map_or(crate::model::Side::Client, |path| path.side);
    list::paths(side, paths.iter(), "no path".to_owned())
}

fn client_device(device: &ClientDevice, statistics: Option<&BlockStat>, links: &[String]) -> Table {
    let mut fields = Fields::default();
    fields.text("device", &device.path);
    for link in links {
        fields.text("stable name", link);
    }
    fields.add("state", list::device_state(device.state));
    fields.bytes("size", device.size_bytes);
    fields.text("session", &device.session);
    fields.text("disk", &device.device_path);
    fields.add(
        "access",
        Cell::option(device.access_mode.map(|mode| mode.as_str())),
    );
    fields.add("queues for polled IO", Cell::option(device.poll_queues));
    // The C module lacks these values.
    if let Some(mode) = device.io_mode {
        fields.text("IO mode", mode.as_str());
    }
    if let Some(ms) = device.io_timeout_ms {
        fields.text(IO_TIMEOUT.name, ms);
    }
    if let Some(ms) = device.hold_io_ms {
        fields.text(HOLD_DISK_IO.name, ms);
    }
    if let Some(count) = device.io_timeouts {
        fields.text("requests ended by io_timeout_ms", count);
    }
    if let Some(count) = device.io_unanswered {
        fields.text("of these without a response", count);
    }
    if let Some(stat) = statistics {
        fields.text("reads", stat.reads);
        fields.bytes("read", Some(stat.read_bytes));
        fields.text("writes", stat.writes);
        fields.bytes("written", Some(stat.write_bytes));
        fields.text("discards", stat.discards);
        fields.text("flushes", stat.flushes);
        fields.text("requests in flight", stat.inflight);
    }
    fields.table("Device".to_owned())
}

fn client_session(session: &ClientSession) -> Table {
    let mut fields = Fields::default();
    fields.text("session", &session.name);
    fields.add("state", list::session_state(session.state));
    fields.add(
        "policy",
        Cell::option(session.policy.map(|policy| policy.as_str())),
    );
    for setting in Settings::ALL {
        let value = session.settings.get(setting.name);
        let value = value.map_or_else(
            || "not in the loaded module".to_owned(),
            |value| value.to_string(),
        );
        fields.text(setting.name, value);
    }
    fields.table("Session".to_owned())
}

fn one_path(path: &Path) -> Table {
    let mut fields = Fields::default();
    fields.text("path", &path.name);
    fields.text("session", &path.session);
    fields.text("this end", path.side.as_str());
    fields.add("state", list::path_state(path.state));
    fields.text("source", &path.source);
    fields.text("destination", &path.destination);
    fields.add("RDMA device", Cell::option(path.hca_name.as_ref()));
    fields.add("port", Cell::option(path.hca_port));
    let stats = &path.stats;
    fields.text("reads", stats.reads);
    fields.bytes("read", Some(stats.read_bytes));
    fields.text("writes", stats.writes);
    fields.bytes("written", Some(stats.write_bytes));
    if path.side == crate::model::Side::Client {
        let latency = Cell::value(path.latency_ns, |time| output::nanoseconds(*time));
        fields.add("latency", latency);
        fields.add("requests in flight", Cell::option(stats.inflight));
        fields.add("requests from lost paths", Cell::option(stats.failovers));
        fields.add("reconnects", Cell::option(stats.reconnects));
        fields.add("failed reconnects", Cell::option(stats.failed_reconnects));
    }
    fields.table("Path".to_owned())
}
