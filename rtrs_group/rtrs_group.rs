// SPDX-License-Identifier: GPL-2.0

//! Groups of sessions: a request is submitted once, and confirmed by all servers.
//!
//! A [`Group`] is made of established sessions, its [`Member`]s. A write is sent to all members,
//! from one memory, and ends when all have confirmed it. A read goes to one member. A member that
//! fails gets no more writes, and its list has the writes that it has not confirmed, until the user
//! has brought them to the member. [`SyncGroup`] is for tasks that wait for their requests.
//! `Documentation/rtrs-api.md` says which functions may be called in which context.
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

/// The module. Its users, which hold the groups, prevent that it is unloaded.
struct RtrsGroup;

impl kernel::Module for RtrsGroup {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        this::set_module(ModuleReference::new::<Self>);
        Ok(Self)
    }
}
