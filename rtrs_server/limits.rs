// SPDX-License-Identifier: GPL-2.0

//! Module parameters that limit the resources of clients, fixed at load.

use proto::admission::{
    Limits,
    Usage, //
};

const ALL: Usage = Limits::DEFAULT.all;
const PER_CLIENT: Usage = Limits::DEFAULT.per_client;

kernel_ext::module_parameter! {
    /// See [`Usage::sessions`]. An extension.
    static MAX_SESSIONS: u32 = ALL.sessions;
    name: "max_sessions",
    description: "Most sessions of all clients at a time (0 and up, 0: any number, default: 4096)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::sessions`]. An extension.
    static MAX_SESSIONS_PER_CLIENT: u32 = PER_CLIENT.sessions;
    name: "max_sessions_per_client",
    description:
        "Most sessions of a client's address at a time (0 and up, 0: any number, default: 256)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::paths`]. An extension.
    static MAX_PATHS: u32 = ALL.paths;
    name: "max_paths",
    description: "Most paths of all clients at a time (0 and up, 0: any number, default: 16384)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::paths`]. An extension.
    static MAX_PATHS_PER_CLIENT: u32 = PER_CLIENT.paths;
    name: "max_paths_per_client",
    description:
        "Most paths of a client's address at a time (0 and up, 0: any number, default: 1024)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::connections`]. An extension.
    static MAX_CONNECTIONS: u32 = ALL.connections;
    name: "max_connections",
    description:
        "Most connections of all clients at a time (0 and up, 0: any number, default: 262144)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::connections`]. An extension.
    static MAX_CONNECTIONS_PER_CLIENT: u32 = PER_CLIENT.connections;
    name: "max_connections_per_client",
    description:
        "Most connections of a client's address at a time (0 and up, 0: any number, default: \
         16384)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::half_open`]. An extension.
    static MAX_HALF_OPEN: u32 = ALL.half_open;
    name: "max_half_open",
    description:
        "Most half-open paths of all clients at a time (0 and up, 0: any number, default: 1024)",
}

kernel_ext::module_parameter! {
    /// See [`Usage::half_open`]. An extension.
    static MAX_HALF_OPEN_PER_CLIENT: u32 = PER_CLIENT.half_open;
    name: "max_half_open_per_client",
    description:
        "Most half-open paths of a client's address at a time (0 and up, 0: any number, \
         default: 64)",
}

/// The limits that the parameters set.
pub(crate) fn limits() -> Limits {
    Limits {
        all: Usage {
            sessions: *MAX_SESSIONS.get(),
            paths: *MAX_PATHS.get(),
            connections: *MAX_CONNECTIONS.get(),
            half_open: *MAX_HALF_OPEN.get(),
        },
        per_client: Usage {
            sessions: *MAX_SESSIONS_PER_CLIENT.get(),
            paths: *MAX_PATHS_PER_CLIENT.get(),
            connections: *MAX_CONNECTIONS_PER_CLIENT.get(),
            half_open: *MAX_HALF_OPEN_PER_CLIENT.get(),
        },
    }
}
