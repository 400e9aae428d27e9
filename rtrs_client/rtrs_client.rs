// SPDX-License-Identifier: GPL-2.0

//! RTRS client: RDMA transport, initiating end.

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
    type: RtrsClient,
    name: "rtrs_client",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: RDMA transport, initiating end",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RtrsClient;

impl kernel::Module for RtrsClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
