// SPDX-License-Identifier: GPL-2.0

//! The server's configuration, `/etc/rnbd/server.toml`: the parameters of its modules, the clients
//! that have keys, and which clients may map which disks.
//!
//! - [`parse`]: parses the text into a [`ServerConfig`], strictly.
//! - [`plan`]: the steps to be taken, as plain data.
//!
//! Nothing here looks at the machine.

mod parse;
mod plan;

use std::collections::BTreeMap;

use proto::client_id::ClientId;

pub use parse::parse;
pub use plan::Plan;
pub use plan::Running;
pub use plan::RunningKeys;
pub use plan::Step;

/// The default path of the file.
pub const DEFAULT_FILE: &str = "/etc/rnbd/server.toml";

/// The parameters of the server's modules, in the order in which the modules are loaded.
pub const PARAMETERS: [(&str, &[&str]); 2] = [
    (
        "rtrs_server",
        &[
            "always_invalidate",
            "max_chunk_size",
            "sess_queue_depth",
            "chunk_pool_mb",
            "max_sessions",
            "max_sessions_per_client",
            "max_paths",
            "max_paths_per_client",
            "max_connections",
            "max_connections_per_client",
            "max_half_open",
            "max_half_open_per_client",
            "hb_interval_ms",
            "hb_missed_max",
            "ack_timeout_ms",
            "require_auth",
        ],
    ),
    (
        "rnbd_server",
        &[
            "dev_search_path",
            "port_nr",
            "require_export_policy",
            "file_io_mode",
            "block_io_mode",
            "discovery",
            "state_dir",
            "realtime_priority",
        ],
    ),
];

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// The parameters by module and name, as the module takes them.
    pub parameters: BTreeMap<String, BTreeMap<String, String>>,
    /// The rules of the export policy. `None` if the file has no exports; then the policy is left
    /// as it is.
    pub policy: Option<String>,
    /// The clients that must have keys in `/etc/rnbd/keys/clients`. `None` if the file has no keys;
    /// then the kernel's keys are left as they are.
    pub keys: Option<Vec<ClientId>>,
    /// The patterns of client ids in the exports, as in the rules, each with the number of its
    /// export, from 1.
    pub client_ids: Vec<(usize, String)>,
    /// The devices of the exports that are paths, not patterns.
    pub paths: Vec<String>,
}
