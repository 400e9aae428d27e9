// SPDX-License-Identifier: GPL-2.0

//! The parts of `rnbdctl`, the administrator's program for RNBD, as a library for other programs.
//!
//! [`System`] is a machine. Its functions read the devices, sessions and paths of that machine;
//! those of [`control`] change them:
//!
//! ```no_run
//! use rnbdctl::control;
//! use rnbdctl::model::DeviceState;
//! use rnbdctl::System;
//!
//! let system = System::new(None, None);
//! for device in system.client_devices()? {
//!     println!("{}: {}", device.path, device.state.as_str());
//!     if device.state == DeviceState::Closed && !device.closed_by_server {
//!         control::device::remap(&device)?;
//!     }
//! }
//! # Ok::<(), rnbdctl::Error>(())
//! ```
//!
//! All functions block: they read and write files of the kernel, and some wait for a server. An
//! [`Error`] says what was not done, why, and what to do; its [`Kind`] is for programs. Library and
//! kernel modules may be of different releases. The library also works with the C modules of
//! mainline Linux; values that they lack are `None`.
//!
//! # Modules
//!
//! For any program:
//!
//! - [`model`]: devices, sessions and paths as plain data.
//! - [`sysfs`]: reads these from the kernel's files; the content is checked, not trusted.
//! - [`control`]: changes them by writing to the kernel's files, and explains the kernel's errors.
//! - [`address`], [`server_name`]: addresses, servers and disks as users write them.
//! - [`identity`], [`ways`]: the name of a session with a server, and the paths to that server.
//! - [`config`], [`apply`]: the configuration file, and bringing the machine to its state.
//! - [`keys`]: the keys by which clients prove their identity.
//! - [`kernel_log`]: the kernel's messages about a failure.
//! - [`live`]: the present rates of devices and paths.
//! - [`latency`]: the stages in which requests spend their time.
//! - [`why`], [`events`]: present troubles, and changes as they happen.
//! - [`mirror`]: mirrors over disks of several servers.
//! - [`server_config`]: the configuration file of a server.
//! - [`link_name`]: the names of disks that stay the same.
//! - [`fabric`]: the self test of a fabric.
//! - [`preflight`]: checks whether a machine has everything that it needs.
//! - [`schema`]: the JSON schema of the program's output.
//! - `exporter`: metrics for monitoring systems. Feature `exporter`.
//! - `top`: a full-screen view of the present rates. Feature `top`.
//!
//! Of the program itself:
//!
//! - [`cli`], [`commands`]: the command line, and a file for each subcommand, which joins the
//!   modules above.
//! - [`output`]: tables, JSON and CSV; sizes and times as users write them.
//! - [`complete`], [`examples`]: completions for shells, and examples for the help and the manual
//!   pages.
//!
//! # Features
//!
//! Both are on by default, as the program has both. Each brings crates that nothing else needs, so
//! a program that depends on the library is best built with `default-features = false`, as the CSI
//! driver is.
//!
//! | feature | module and subcommand | crates |
//! |---|---|---|
//! | `exporter` | `exporter` | `prometheus-client`, `hyper`, `tokio` |
//! | `top` | `top` | `ratatui`, `crossterm` |
//!
//! # Releases
//!
//! The library is part of RNBD's source, and not on crates.io. Functions and types may change with
//! each release; the JSON does not, unless its [version](model::JSON_VERSION) changes.

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
#[cfg(feature = "exporter")]
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
#[cfg(feature = "top")]
pub mod top;
pub mod ways;
pub mod why;

pub use error::Error;
pub use error::Kind;
pub use sysfs::System;

/// The result of a function of this program.
pub type Result<T = ()> = std::result::Result<T, Error>;
