// SPDX-License-Identifier: GPL-2.0

//! The metrics of this machine as a server.

use std::fmt;

use super::metrics::count;
use super::metrics::labels;
use super::metrics::Labels;
use super::metrics::Writer;
use crate::model::ClientUse;
use crate::model::Reserved;
use crate::model::Server;
use crate::model::ServerClients;
use crate::Result;
use crate::System;

/// All values of a server, read at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    pub(super) server: Server,
    clients: ServerClients,
    drain: Option<u64>,
    reserved: Vec<(String, Reserved)>,
}

impl Served {
    /// Reads the values. Objects that vanish meanwhile are left out.
    pub(super) fn take(system: &System) -> Result<Self> {
        let server = system.server()?;
        let mut reserved = Vec::new();
        for device in &server.devices {
            let found = system.reserved(&device.name)?;
            reserved.extend(found.map(|found| (device.name.clone(), found)));
        }
        Ok(Self {
            server,
            clients: system.server_clients()?,
            drain: system.server_drain()?,
            reserved,
        })
    }

    /// Writes all metrics except those of paths.
    pub(super) fn write(&self, out: &mut Writer<'_>) -> fmt::Result {
        self.sessions(out)?;
        self.exports(out)?;
        self.reservations(out)?;
        out.gauge(
            "rnbd_server_drain_seconds",
            "The rest of the time for which the server drains; 0 without a drain",
            self.drain.map(|seconds| (Labels::new(), seconds)),
        )?;
        self.uses(out)?;
        self.refusals(out)
    }

    fn sessions(&self, out: &mut Writer<'_>) -> fmt::Result {
        let sessions = &self.server.sessions;
        let paths = sessions
            .iter()
            .map(|session| (labels([("session", &session.name)]), count(&session.paths)));
        out.gauge(
            "rnbd_server_session_paths",
            "Paths of a client's session",
            paths,
        )?;
        let memory = sessions.iter().filter_map(|session| {
            Some((labels([("session", &session.name)]), session.memory_bytes?))
        });
        out.gauge(
            "rnbd_server_session_memory_bytes",
            "Memory of the chunks of a client's session",
            memory,
        )
    }

    fn exports(&self, out: &mut Writer<'_>) -> fmt::Result {
        let exports = self.server.devices.iter().flat_map(|device| {
            device.exports.iter().map(|export| {
                let mode = export.access_mode.map_or("unknown", |mode| mode.as_str());
                let all = [
                    ("device", device.name.as_str()),
                    ("session", &export.session),
                    ("device_path", &export.device_path),
                    ("access_mode", mode),
                ];
                (labels(all), 1)
            })
        });
        out.gauge(
            "rnbd_server_export_info",
            "A device that a client has mapped; always 1",
            exports,
        )
    }

    fn reservations(&self, out: &mut Writer<'_>) -> fmt::Result {
        let each = |value: fn(&Reserved) -> u64| {
            let disks = self.reserved.iter();
            disks.map(move |(disk, found)| (labels([("device", disk)]), value(found)))
        };
        out.gauge(
            "rnbd_server_device_reserved",
            "Whether a machine has reserved the disk",
            each(|found| u64::from(found.is_reserved)),
        )?;
        out.gauge(
            "rnbd_server_device_registered_machines",
            "Machines that are registered with the disk",
            each(|found| found.registered),
        )?;
        out.gauge(
            "rnbd_server_device_awaited_machines",
            "Machines that have lost the disk by a reservation and still have requests in flight",
            each(|found| found.awaited),
        )
    }

    /// The counts of clients, all together and by address, and the limits.
    fn uses(&self, out: &mut Writer<'_>) -> fmt::Result {
        for (name, what, value) in USES {
            let all = value(&self.clients.all).map(|value| (Labels::new(), value));
            out.gauge(
                &format!("rnbd_server_{name}"),
                &format!("{what} of all clients"),
                all,
            )?;
            let each =
                self.clients.by_address.iter().filter_map(|(address, has)| {
                    Some((labels([("client", address)]), value(has)?))
                });
            out.gauge(
                &format!("rnbd_server_client_{name}"),
                &format!("{what} of the clients at an address that has a session"),
                each,
            )?;
        }
        let limits = self.clients.limits.iter();
        out.gauge(
            "rnbd_server_limit",
            "The value of a limit; the label is the parameter of rtrs_server without max_",
            limits.map(|(name, limit)| (labels([("of", name)]), *limit)),
        )?;
        let pool = [
            (
                "pool_bytes",
                "Memory reserved for sessions",
                self.clients.pool_bytes,
            ),
            (
                "pool_free_bytes",
                "Memory reserved for sessions that no session uses",
                self.clients.pool_free_bytes,
            ),
        ];
        for (name, help, value) in pool {
            let value = value.map(|value| (Labels::new(), value));
            out.gauge(&format!("rnbd_server_{name}"), help, value)?;
        }
        Ok(())
    }

    fn refusals(&self, out: &mut Writer<'_>) -> fmt::Result {
        let counters = [
            (
                "refused",
                "Requests for sessions, paths and connections that a limit refused",
                self.clients.refused,
            ),
            (
                "given_up",
                "Half-open paths that were closed to make room for newer ones",
                self.clients.given_up,
            ),
            (
                "auth_failures",
                "Failed proofs of identity of clients",
                self.clients.auth_failed,
            ),
        ];
        for (name, help, value) in counters {
            let value = value.map(|value| (Labels::new(), value));
            out.counter(&format!("rnbd_server_{name}"), help, value)?;
        }
        Ok(())
    }
}

/// A count of clients: the end of its metric's name, its meaning, and its value.
type Use = (&'static str, &'static str, fn(&ClientUse) -> Option<u64>);

/// The counts of clients.
const USES: [Use; 4] = [
    ("sessions", "Sessions", |has| has.sessions),
    ("paths", "Paths", |has| has.paths),
    ("connections", "Connections", |has| has.connections),
    ("half_open_paths", "Half-open paths", |has| has.half_open),
];
