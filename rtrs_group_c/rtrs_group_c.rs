// SPDX-License-Identifier: GPL-2.0

//! Groups of RTRS sessions for users in C: the functions of `include/rtrs-group.h`, on the groups
//! of [`rtrs_group`] and the sessions of [`rtrs_client_c`].
//!
//! The module is loaded when such a user needs it.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::prelude::*;

mod callbacks;
mod events;
mod functions;
mod handles;
mod members;
mod requests;
mod user_group;

module! {
    type: RtrsGroupC,
    name: "rtrs_group_c",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: requests to several servers at once, for users in C",
    license: "GPL",
}

/// The module. Its users in C depend on it, and so prevent that it is unloaded.
pub(crate) struct RtrsGroupC;

impl kernel::Module for RtrsGroupC {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        handles::begin()?;
        Ok(Self)
    }
}

impl Drop for RtrsGroupC {
    fn drop(&mut self) {
        handles::end();
    }
}
