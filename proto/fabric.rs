// SPDX-License-Identifier: GPL-2.0

//! The self test of a fabric: what both ends send each other, and what the results mean.
//!
//! `rtrs_test_client`, `rtrs_test_server` and `rnbdctl fabric test` share these rules
//! (`Documentation/fabric.md`).

pub mod command;
pub mod fill;
pub mod options;
pub mod percentile;
pub mod sizes;
pub mod verdict;

/// The port of the test's transport part; its raw part listens on [`raw_port`].
pub const PORT: u16 = 1236;

/// The port of the raw part, next to the port of the transport part; the one before it for 65535.
pub const fn raw_port(port: u16) -> u16 {
    match port.checked_add(1) {
        Some(port) => port,
        None => port.wrapping_sub(1),
    }
}

/// Bytes in each piece of memory of the raw part: what a peer's key covers.
pub const RAW_SIZE: u32 = 64 << 10;

/// Bytes of a receive of the raw part, and so of the longest message.
pub const MESSAGE_SIZE: u32 = 8 << 10;

/// Receives that each end of a raw connection has posted, at most.
pub const RECEIVES: u32 = 4;
