// SPDX-License-Identifier: GPL-2.0

//! The subcommands.
//!
//! Each subcommand has a file with its arguments (`Args`) and a function `run`, and is named in
//! [`crate::cli::Command`].

pub mod apply;
pub mod check;
pub mod completions;
pub mod config;
pub mod device;
pub mod discover;
mod each;
pub mod events;
#[cfg(feature = "exporter")]
pub mod exporter;
pub mod fabric;
pub mod key;
pub mod latency;
pub mod list;
pub mod man;
pub mod map;
pub mod mirror;
pub mod mirror_status;
pub mod mirror_watch;
pub mod path;
pub mod rdma;
pub mod remap;
pub mod resize;
pub mod schema;
pub mod server;
pub mod server_apply;
pub mod server_drain;
pub mod server_policy;
pub mod session;
pub mod show;
pub mod stats;
#[cfg(feature = "top")]
pub mod top;
mod tunable;
pub mod udev;
pub mod unmap;
pub mod why;

use each::each;
use each::each_at_once;
