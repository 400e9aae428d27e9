// SPDX-License-Identifier: GPL-2.0

//! The RTRS client for users in C: the functions of `include/rtrs.h`, on the sessions of
//! [`rtrs_client`].
//!
//! The module is loaded when such a user needs it. The functions have the names of the C module
//! rtrs-client, so only one of the two modules can be loaded. [`JoiningSession`] and [`Permits`]
//! are for `rtrs_group_c`.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::prelude::*;

mod addresses;
mod callbacks;
mod client;
mod events;
mod functions;
mod handles;
mod joining;
mod permits;

pub use crate::{
    functions::RawAttrs,
    joining::{
        JoinedSession,
        JoiningSession, //
    },
    permits::{
        PermitUse,
        Permits, //
    }, //
};

module! {
    type: RtrsClientC,
    name: "rtrs_client_c",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: RDMA transport, initiating end, for users in C",
    license: "GPL",
}

/// The module. Its users in C depend on it, and so prevent that it is unloaded.
pub(crate) struct RtrsClientC;

impl kernel::Module for RtrsClientC {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        handles::begin()?;
        Ok(Self)
    }
}

impl Drop for RtrsClientC {
    fn drop(&mut self) {
        handles::end();
    }
}
