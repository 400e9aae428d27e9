// SPDX-License-Identifier: GPL-2.0

//! RTRS server: RDMA transport, serving end.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::prelude::*;

mod listener;
mod operation;
mod session;

pub use listener::{
    Listener,
    Server,
    SessionHandler, //
};
pub use operation::{
    Direction,
    Operation, //
};
pub use session::Session;

module! {
    type: RtrsServer,
    name: "rtrs_server",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS server: RDMA transport, serving end",
    license: "GPL",
}

/// The module; dropped when it is unloaded.
struct RtrsServer;

impl kernel::Module for RtrsServer {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
