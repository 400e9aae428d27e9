// SPDX-License-Identifier: GPL-2.0

//! The self test of a fabric: the raw connection beside RTRS, which both ends share.
//!
//! The transport gives its users no wrong key and no missing receive. So the part of the test that
//! needs them has a queue pair of its own, made of the same verbs (`Documentation/fabric.md`).

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::prelude::*;

mod endpoint;
mod memory;
mod peer;

pub use endpoint::{
    Endpoint,
    Received, //
};
pub use memory::Memory;
pub use peer::Peer;

module! {
    type: RtrsTest,
    name: "rtrs_test",
    authors: ["The RNBD in Rust developers"],
    description: "Self test of a fabric: what both ends share",
    license: "GPL",
}

/// The module, which keeps nothing.
struct RtrsTest;

impl kernel::Module for RtrsTest {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
