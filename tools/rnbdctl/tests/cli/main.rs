// SPDX-License-Identifier: GPL-2.0

//! The program as a user runs it, on a tree of files that looks like the kernel's.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that fails panics"
)]

mod changes;
mod checks;
mod device_values;
mod discover;
mod errors;
mod events;
mod fabric;
mod fake;
mod json;
mod keys;
mod latency;
mod listing;
mod mirror;
mod mirror_faults;
mod scale;
mod schema;
mod server_apply;
mod shell;
