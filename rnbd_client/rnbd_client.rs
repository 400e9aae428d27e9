// SPDX-License-Identifier: GPL-2.0

//! RNBD client: remote disks as local block devices.

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
    type: RnbdClient,
    name: "rnbd_client",
    authors: ["The RNBD in Rust developers"],
    description: "RNBD client: remote disks as local block devices",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RnbdClient;

impl kernel::Module for RnbdClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
