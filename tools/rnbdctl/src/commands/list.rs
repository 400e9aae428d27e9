// SPDX-License-Identifier: GPL-2.0

//! `rnbdctl list`: devices, sessions and paths at a glance.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Context;
use crate::model::ClientDevice;
use crate::model::ClientSession;
use crate::model::DeviceState;
use crate::model::Path;
use crate::model::PathState;
use crate::model::ServerDevice;
use crate::model::ServerSession;
use crate::model::SessionState;
use crate::model::Side;
use crate::model::Version;
use crate::model::JSON_VERSION;
use crate::output;
use crate::output::Cell;
use crate::output::Column;
use crate::output::Format;
use crate::output::Report;
use crate::output::Table;
use crate::output::Tone;
use crate::Result;

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only objects of this kind
    #[arg(value_enum)]
    pub what: Option<What>,

    /// Only objects of this machine as a client
    #[arg(long, conflicts_with = "server")]
    pub client: bool,

    /// Only objects of this machine as a server
    #[arg(long)]
    pub server: bool,
}

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Mapped and exported devices
    Devices,
    /// Sessions with servers and of clients
    Sessions,
    /// The paths of sessions
    Paths,
}

/// The lists; a part that was not asked for is absent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listing {
    version: Version,
    /// This machine as a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<Part<ClientDevice, ClientSession>>,
    /// This machine as a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Part<ServerDevice, ServerSession>>,
    #[serde(skip)]
    what: Option<What>,
}

/// The objects of this machine as a client or as a server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Part<D, S> {
    /// Whether the module is loaded.
    loaded: bool,
    /// The devices, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<D>>,
    /// The sessions, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<S>>,
}

/// Lists.
pub fn run(args: &Args, context: &Context) -> Result {
    let system = &context.system;
    let devices = matches!(args.what, None | Some(What::Devices));
    let client_devices = || match context.output.format() {
        Format::Json => system.client_devices(),
        Format::Table | Format::Csv => system.client_device_rows(),
    };
    let sessions = !matches!(args.what, Some(What::Devices));
    let mut listing = Listing {
        version: JSON_VERSION,
        client: None,
        server: None,
        what: args.what,
    };
    if !args.server {
        listing.client = Some(Part {
            loaded: system.client_loaded(),
            devices: devices.then(client_devices).transpose()?,
            sessions: sessions.then(|| system.client_sessions()).transpose()?,
        });
    }
    if !args.client {
        listing.server = Some(Part {
            loaded: system.server_loaded(),
            devices: devices.then(|| system.server_devices()).transpose()?,
            sessions: sessions.then(|| system.server_sessions()).transpose()?,
        });
    }
    context.output.print(&listing)?;
    match (args.client, args.server) {
        (true, _) => system.need_client("listing mapped devices"),
        (_, true) => system.need_server("listing exported devices"),
        _ => system.need_any("listing devices"),
    }
}

impl Report for Listing {
    fn tables(&self) -> Vec<Table> {
        // A machine that is not a server shows the server's part only if asked.
        let is_server = |server: &&Part<_, _>| server.loaded || self.client.is_none();
        self.tables_with(self.server.as_ref().filter(is_server))
    }

    fn csv_tables(&self) -> Vec<Table> {
        self.tables_with(self.server.as_ref())
    }
}

impl Listing {
    fn tables_with(&self, server: Option<&Part<ServerDevice, ServerSession>>) -> Vec<Table> {
        let mut tables = Vec::new();
        let wanted = |what| self.what.is_none() || self.what == Some(what);
        if let Some(client) = &self.client {
            let empty = |text: &str| not_there(client.loaded, "rnbd_client", text);
            if let Some(devices) = &client.devices {
                tables.push(client_devices(devices, empty("no device is mapped")));
            }
            let sessions = client.sessions.as_deref().unwrap_or_default();
            if wanted(What::Sessions) {
                tables.push(client_sessions(sessions, empty("no session")));
            }
            if wanted(What::Paths) {
                let paths = sessions.iter().flat_map(|session| &session.paths);
                tables.push(self::paths(Side::Client, paths, empty("no path")));
            }
        }
        if let Some(server) = server {
            let empty = |text: &str| not_there(server.loaded, "rnbd_server", text);
            if let Some(devices) = &server.devices {
                tables.push(server_devices(devices, empty("no device is exported")));
            }
            let sessions = server.sessions.as_deref().unwrap_or_default();
            if wanted(What::Sessions) {
                tables.push(server_sessions(sessions, empty("no session of a client")));
            }
            if wanted(What::Paths) {
                let paths = sessions.iter().flat_map(|session| &session.paths);
                tables.push(self::paths(
                    Side::Server,
                    paths,
                    empty("no path of a client"),
                ));
            }
        }
        tables
    }
}

fn not_there(loaded: bool, module: &str, text: &str) -> String {
    match loaded {
        true => text.to_owned(),
        false => format!("{text}, the module {module} is not loaded"),
    }
}

const CLIENT_DEVICES: &[Column] = &[
    Column::text("name", ""),
    Column::text("path", "DEVICE"),
    Column::number("size_bytes", "SIZE").rank(1),
    Column::text("state", "STATE"),
    Column::text("access_mode", "ACCESS").rank(3),
    Column::text("session", "SESSION").rank(2),
    Column::text("device_path", "DISK"),
];

/// The table of mapped devices.
pub(crate) fn client_devices(devices: &[ClientDevice], empty: String) -> Table {
    let row = |device: &ClientDevice| {
        vec![
            Cell::new(&device.name),
            Cell::new(&device.path),
            Cell::value(device.size_bytes, |size| output::bytes(*size)),
            device_state(device.state),
            Cell::option(device.access_mode.map(|mode| mode.as_str())),
            Cell::new(&device.session),
            Cell::new(&device.device_path),
        ]
    };
    Table {
        kind: "client-device",
        title: "Mapped devices".to_owned(),
        columns: CLIENT_DEVICES,
        rows: devices.iter().map(row).collect(),
        empty,
    }
}

pub(crate) fn device_state(state: DeviceState) -> Cell {
    let tone = match state {
        DeviceState::Open => Tone::Good,
        DeviceState::Init | DeviceState::Unmapped => Tone::Warning,
        DeviceState::Closed | DeviceState::Unknown => Tone::Bad,
    };
    Cell::new(state.as_str()).tone(tone)
}

const CLIENT_SESSIONS: &[Column] = &[
    Column::text("name", "SESSION"),
    Column::text("state", "STATE"),
    Column::number("paths", "PATHS"),
    Column::number("paths_up", "UP"),
    Column::text("policy", "POLICY").rank(1),
];

/// The table of sessions with servers.
pub(crate) fn client_sessions(sessions: &[ClientSession], empty: String) -> Table {
    let row = |session: &ClientSession| {
        vec![
            Cell::new(&session.name),
            session_state(session.state),
            Cell::new(session.paths.len()),
            Cell::new(session.paths_up()),
            Cell::option(session.policy.map(|policy| policy.as_str())),
        ]
    };
    Table {
        kind: "client-session",
        title: "Sessions with servers".to_owned(),
        columns: CLIENT_SESSIONS,
        rows: sessions.iter().map(row).collect(),
        empty,
    }
}

pub(crate) fn session_state(state: SessionState) -> Cell {
    let tone = match state {
        SessionState::Connected => Tone::Good,
        SessionState::Degraded => Tone::Warning,
        SessionState::Disconnected => Tone::Bad,
    };
    Cell::new(state.as_str()).tone(tone)
}

const SERVER_DEVICES: &[Column] = &[
    Column::text("name", "DEVICE"),
    Column::text("session", "CLIENT SESSION"),
    Column::text("access_mode", "ACCESS").rank(1),
    Column::text("device_path", "DISK").rank(2),
];

/// The table of exported devices, with a row for each session that has the device.
pub(crate) fn server_devices(devices: &[ServerDevice], empty: String) -> Table {
    let mut rows = Vec::new();
    for device in devices {
        for export in &device.exports {
            rows.push(vec![
                Cell::new(&device.name),
                Cell::new(&export.session),
                Cell::option(export.access_mode.map(|mode| mode.as_str())),
                Cell::new(&export.device_path),
            ]);
        }
    }
    Table {
        kind: "server-device",
        title: "Exported devices".to_owned(),
        columns: SERVER_DEVICES,
        rows,
        empty,
    }
}

const SERVER_SESSIONS: &[Column] = &[
    Column::text("name", "SESSION"),
    Column::number("paths", "PATHS"),
    Column::number("memory_bytes", "MEMORY").rank(1),
    Column::number("pooled_memory_bytes", "FROM POOL").rank(2),
];

/// The table of clients' sessions.
pub(crate) fn server_sessions(sessions: &[ServerSession], empty: String) -> Table {
    let row = |session: &ServerSession| {
        vec![
            Cell::new(&session.name),
            Cell::new(session.paths.len()),
            Cell::value(session.memory_bytes, |bytes| output::bytes(*bytes)),
            Cell::value(session.pooled_memory_bytes, |bytes| output::bytes(*bytes)),
        ]
    };
    Table {
        kind: "server-session",
        title: "Sessions of clients".to_owned(),
        columns: SERVER_SESSIONS,
        rows: sessions.iter().map(row).collect(),
        empty,
    }
}

const PATHS: &[Column] = &[
    Column::text("session", "SESSION").rank(1),
    Column::text("name", "PATH"),
    Column::text("state", "STATE"),
    Column::text("hca_name", "RDMA DEVICE").rank(5),
    Column::number("hca_port", "PORT").rank(7),
    Column::number("read_bytes", "READ").rank(6),
    Column::number("write_bytes", "WRITTEN").rank(6),
    Column::number("reads", ""),
    Column::number("writes", ""),
    Column::number("inflight", "IN FLIGHT").rank(4),
    Column::number("latency_ns", "LATENCY").rank(2),
    Column::number("reconnects", "RECONNECTS").rank(3),
    Column::number("failed_reconnects", ""),
    Column::number("failovers", ""),
];

pub(crate) fn path_state(state: PathState) -> Cell {
    let tone = match state {
        PathState::Connected => Tone::Good,
        PathState::Disconnected => Tone::Bad,
    };
    Cell::new(state.as_str()).tone(tone)
}

/// The table of paths.
pub(crate) fn paths<'a>(side: Side, paths: impl Iterator<Item = &'a Path>, empty: String) -> Table {
    let row = |path: &Path| {
        let stats = &path.stats;
        vec![
            Cell::new(&path.session),
            Cell::new(&path.name),
            path_state(path.state),
            Cell::option(path.hca_name.as_ref()),
            Cell::option(path.hca_port),
            Cell::value(Some(stats.read_bytes), |size| output::bytes(*size)),
            Cell::value(Some(stats.write_bytes), |size| output::bytes(*size)),
            Cell::new(stats.reads),
            Cell::new(stats.writes),
            Cell::option(stats.inflight),
            Cell::value(path.latency_ns, |time| output::nanoseconds(*time)),
            Cell::option(stats.reconnects),
            Cell::option(stats.failed_reconnects),
            Cell::option(stats.failovers),
        ]
    };
    let (kind, title) = match side {
        Side::Client => ("client-path", "Paths to servers"),
        Side::Server => ("server-path", "Paths of clients"),
    };
    Table {
        kind,
        title: title.to_owned(),
        columns: PATHS,
        rows: paths.map(row).collect(),
        empty,
    }
}
