// SPDX-License-Identifier: GPL-2.0

//! Groups of sessions: a request is submitted once, and confirmed by all servers.
//!
//! A [`Group`] is made of established sessions, its [`Member`]s. A write is sent to all of them,
//! from one memory, and ends when all have confirmed it; a read goes to one. A member that fails
//! gets no more writes, and its list says which it has not confirmed, until the user has brought
//! them to it. [`SyncGroup`] is for tasks that wait for their requests.
//! `Documentation/rtrs-api.md` says what may be called where.
//!
//! ```ignore
//! let group = SyncGroup::open(members, ReadPolicy::RoundRobin)?;
//! let written = group.write(b"colour", b"blue")?;
//! for member in written.failed.iter() {
//!     pr_warn!("member {} does not have write {}\n", member, written.number);
//! }
//! ```

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel_ext::{
    module::ModuleReference,
    prelude::*, //
};

mod events;
mod group;
mod group_core;
mod member;
mod slots;
mod sync_group;
mod this;

pub use proto::group::{
    member::State,
    missed::Range,
    reads::ReadPolicy,
    Members,
    MAX_MEMBERS, //
};

pub use crate::{
    events::{
        Ended,
        GroupEvents, //
    },
    group::{
        Group,
        Permit, //
    },
    group_core::Missing,
    member::Member,
    sync_group::{
        SyncGroup,
        Written, //
    }, //
};

module! {
    type: RtrsGroup,
    name: "rtrs_group",
    authors: ["The RNBD in Rust developers"],
    description: "RTRS client: requests to several servers at once",
    license: "GPL",
}

/// The module. Its users, who hold the groups, prevent that it is unloaded.
struct RtrsGroup;

impl kernel::Module for RtrsGroup {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        this::set_module(ModuleReference::new::<Self>);
        Ok(Self)
    }
}
