// SPDX-License-Identifier: GPL-2.0

//! The kinds of troubles.

use schemars::JsonSchema;
use serde::Serialize;

/// The kind of a trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// `rnbd_client` is not loaded, and the configuration file has disks to map.
    NoModule,
    /// The disk is in the configuration file, and not mapped.
    NotMapped,
    /// No path of the session is up.
    NoPath,
    /// All attempts to connect the path have failed.
    GivenUp,
    /// The server was loaded with other sizes: the session cannot go on.
    ServerChanged,
    /// The server is away for maintenance.
    Maintenance,
    /// The server still has the old session of this client.
    OldSession,
    /// The server's machine refuses the connection.
    Refused,
    /// The server does not respond.
    Silent,
    /// No RDMA device of this machine leads to the address.
    NoRoute,
    /// The RDMA device of the path is missing.
    RdmaDeviceGone,
    /// The port of the RDMA device is not active.
    PortDown,
    /// The path cannot be connected.
    NotConnected,
    /// The path is disconnected, and the kernel's log has no cause.
    Disconnected,
    /// The server's administrator has closed the device.
    ClosedByServer,
    /// The server could not open the disk again.
    NotOpened,
    /// Requests took longer than `io_timeout_ms`, and the server has not responded to them.
    DiskHangs,
    /// No request has ended for a second, though requests are in flight.
    RequestsStuck,
    /// The server's disk was removed.
    DiskRemoved,
    /// The server's disk has ended requests with an error.
    IoErrors,
}

impl TroubleKind {
    /// The kind in a word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoModule => "no-module",
            Self::NotMapped => "not-mapped",
            Self::NoPath => "no-path",
            Self::GivenUp => "given-up",
            Self::ServerChanged => "server-changed",
            Self::Maintenance => "maintenance",
            Self::OldSession => "old-session",
            Self::Refused => "refused",
            Self::Silent => "silent",
            Self::NoRoute => "no-route",
            Self::RdmaDeviceGone => "rdma-device-gone",
            Self::PortDown => "port-down",
            Self::NotConnected => "not-connected",
            Self::Disconnected => "disconnected",
            Self::ClosedByServer => "closed-by-server",
            Self::NotOpened => "not-opened",
            Self::DiskHangs => "disk-hangs",
            Self::RequestsStuck => "requests-stuck",
            Self::DiskRemoved => "disk-removed",
            Self::IoErrors => "io-errors",
        }
    }
}
