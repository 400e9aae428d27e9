// SPDX-License-Identifier: GPL-2.0

//! The parts of `rnbdctl`, the administrator's program for RNBD.
//!
//! - [`model`]: devices, sessions and paths as plain data.
//! - [`sysfs`]: reads these from the kernel's files; the content is checked, not trusted.
//! - [`control`]: changes them by writing to the kernel's files, and explains the kernel's errors.
//! - [`address`], [`server_name`]: addresses, servers and disks as users write them.
//! - [`identity`], [`ways`]: the name of a session with a server, and the paths to that server.
//! - [`config`], [`apply`]: the configuration file, and bringing the machine to its state.
//! - [`keys`]: the keys by which clients prove their identity.
//! - [`kernel_log`]: the kernel's messages about a failure.
//! - [`live`], [`top`]: the present rates of devices and paths.
//! - [`latency`]: the stages in which requests spend their time.
//! - [`why`], [`events`]: present troubles, and changes as they happen.
//! - [`mirror`]: mirrors over disks of several servers.
//! - [`server_config`]: the configuration file of a server.
//! - [`link_name`]: the names of disks that stay the same.
//! - [`complete`], [`examples`]: completions for shells, and examples for the help and the manual
//!   pages.
//! - [`exporter`]: metrics for monitoring systems.
//! - [`fabric`]: the self test of a fabric.
//! - [`output`]: tables, JSON and CSV.
//! - [`schema`]: the JSON schema of the output.
//! - [`preflight`]: checks whether this machine has everything that it needs.
//! - [`commands`]: a file for each subcommand, which joins the parts above.
//!
//! The program works with the C modules of mainline Linux, too; values that they lack are absent.

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
pub mod mirror;
pub mod model;
pub mod output;
pub mod preflight;
pub mod schema;
pub mod server_config;
pub mod server_name;
pub mod sysfs;
pub mod top;
pub mod ways;
pub mod why;

pub use error::Error;
pub use error::Kind;
pub use sysfs::System;

/// The result of a function of this program.
pub type Result<T = ()> = std::result::Result<T, Error>;
