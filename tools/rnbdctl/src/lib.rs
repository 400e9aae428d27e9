// SPDX-License-Identifier: GPL-2.0

//! What `rnbdctl` is made of, the administrator's program for RNBD.
//!
//! - [`model`]: what there is (devices, sessions, paths), as plain data.
//! - [`sysfs`]: reads it from the kernel's files; what is read there is checked, not trusted.
//! - [`control`]: changes it by writing to those files, and explains what the kernel refuses.
//! - [`address`], [`server_name`]: addresses, servers and disks as users write them.
//! - [`identity`], [`ways`]: the name of a session with a server, and the paths to that server.
//! - [`config`], [`apply`]: the configuration file, and bringing the machine to what it says.
//! - [`keys`]: the keys by which clients prove who they are.
//! - [`kernel_log`]: what the kernel says of what has failed.
//! - [`live`], [`top`]: what devices and paths are doing now.
//! - [`latency`]: where the time of requests goes.
//! - [`why`], [`events`]: what is wrong, and what changes.
//! - [`server_config`]: the configuration file of a server.
//! - [`link_name`]: the names of disks that stay the same.
//! - [`complete`], [`examples`]: what shells offer, and what the help and the manual pages show.
//! - [`exporter`]: metrics for monitoring systems.
//! - [`fabric`]: the self test of a fabric.
//! - [`output`]: tables, JSON and CSV.
//! - [`preflight`]: whether everything is there that is needed.
//! - [`commands`]: a file for each subcommand, which joins the above.
//!
//! It works with the C modules of mainline Linux too; what they lack is absent.

#![forbid(unsafe_code)]

pub mod address;
pub mod apply;
pub mod cli;
pub mod commands;
pub mod complete;
pub mod config;
pub mod control;
pub mod error;
pub mod events;
pub mod examples;
pub mod exporter;
pub mod fabric;
pub mod identity;
pub mod kernel_log;
pub mod keys;
pub mod latency;
pub mod link_name;
pub mod live;
pub mod model;
pub mod output;
pub mod preflight;
pub mod server_config;
pub mod server_name;
pub mod sysfs;
pub mod top;
pub mod ways;
pub mod why;

pub use error::Error;
pub use error::Kind;
pub use sysfs::System;

/// What a function of this program gives.
pub type Result<T = ()> = std::result::Result<T, Error>;
