// SPDX-License-Identifier: GPL-2.0

//! RTRS core: code that both ends of the RDMA transport share.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::{
    module::Returned,
    prelude::*, //
};

pub mod address;
pub mod connection;
pub mod error;
pub mod heartbeat;
pub mod identity;
pub mod latency;
pub mod params;
pub mod sysfs;
pub mod traffic;

module! {
    type: RtrsCore,
    name: "rtrs_core",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS core: what both ends of the RDMA transport share",
    license: "GPL",
}

/// The module. Dropped when it is unloaded.
struct RtrsCore {
    _keyring: identity::KeyringOwner,
    /// For sysfs functions that have given back the reference to a module.
    _returned: Returned,
}

impl kernel::Module for RtrsCore {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _keyring: identity::KeyringOwner::new()?,
            _returned: Returned::new(),
        })
    }
}
