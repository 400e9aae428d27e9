// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over what the `kernel` crate does not offer yet.
//!
//! All unsafe code of the project is in this crate.

mod bindings;

pub mod block;
pub mod gate;
pub mod slot;

/// The prefix of this crate's log lines.
const __LOG_PREFIX: &[u8] = b"rtrs_core\0";
