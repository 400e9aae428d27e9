// SPDX-License-Identifier: GPL-2.0

//! RNBD server: block devices for remote clients.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::prelude::*;

module! {
    type: RnbdServer,
    name: "rnbd_server",
    authors: ["The RNBD in Rust developers"],
    description: "RNBD server: block devices for remote clients",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RnbdServer;

impl kernel::Module for RnbdServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
