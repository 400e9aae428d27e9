// SPDX-License-Identifier: GPL-2.0

//! The RTRS server for users in C: the functions of `include/rtrs.h`, on the listeners of
//! [`rtrs_server`].
//!
//! The module is loaded when such a user needs it. Its functions have the names of those of the C
//! module rtrs-server, so only one of the two modules can be loaded.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::prelude::*;

mod functions;
mod listeners;
mod operations;
mod sessions;
mod tickets;

module! {
    type: RtrsServerC,
    name: "rtrs_server_c",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS server: RDMA transport, serving end, for users in C",
    license: "GPL",
}

/// The module; dropped when it is unloaded. Its users in C depend on it, which keeps it loaded.
struct RtrsServerC;

impl kernel::Module for RtrsServerC {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // Dropping this ends what was begun, also after an error.
        let this = Self;
        sessions::begin()?;
        listeners::begin()?;
        Ok(this)
    }
}

impl Drop for RtrsServerC {
    fn drop(&mut self) {
        // Closes listeners that were left open.
        listeners::end();
        sessions::end();
    }
}
