// SPDX-License-Identifier: GPL-2.0

//! Wire formats and pure logic of RTRS and RNBD.
//!
//! Everything here works on values and byte slices: no kernel types, no
//! allocation, no `unsafe`. The kernel's build system links the crate into
//! `rtrs_core.ko`; cargo builds the same files for the host, where they are
//! tested and fuzzed.
//!
//! Bytes of a peer or a user enter through a `parse` function. It returns a value that satisfies
//! every documented limit, or an error. The error displays the reason, and has the errno that the C
//! modules return for it.

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs, unreachable_pub)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod addr;
pub mod admission;
pub mod auth_keys;
pub mod client_id;
pub mod device_number;
pub mod device_state;
pub mod disk_id;
pub mod disk_places;
pub mod drain;
pub mod errno;
pub mod error;
pub mod export_policy;
pub mod fabric;
pub mod file_disk;
pub mod group;
pub mod handshake;
pub mod heartbeat;
pub mod latency;
pub mod least_names;
pub mod map_options;
pub mod name;
pub mod number;
mod numbered;
pub mod path_state;
pub mod pattern;
pub mod policy;
pub mod reconnect;
pub mod resent;
pub mod reservation;
pub mod reservation_state;
pub mod rnbd;
pub mod rtrs;
pub mod search_path;
pub mod setting;
pub mod sysfs_name;
pub mod text;
mod wire;

pub use errno::Errno;
pub use error::ProtoError;
pub use name::{
    NAME_MAX,
    PATH_MAX, //
};

/// The port an RTRS server listens on by default.
pub const RTRS_PORT: u16 = 1234;
