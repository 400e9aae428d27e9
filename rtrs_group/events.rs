// SPDX-License-Identifier: GPL-2.0

//! What a group tells its user.

use kernel_ext::{
    module::ModuleReference,
    prelude::*, //
};
use proto::group::Members;
use rtrs_client::LinkEvent;

/// How a request of a group has ended.
#[derive(Debug)]
pub struct Ended {
    /// The tag, which is free again.
    pub tag: u32,
    /// The number of the write; 0 for a read, and for a write to a single member.
    pub number: u64,
    /// The members that have confirmed it.
    pub confirmed: Members,
    /// The members that it was sent to, and that have not confirmed it.
    pub failed: Members,
    /// Those of `failed` that have not responded, and may have it all the same.
    pub unanswered: Members,
    /// An error if no member has confirmed it: that of the member that failed first.
    pub result: Result,
}

/// What a group tells its user.
pub trait GroupEvents: Send + Sync + 'static {
    /// A request has ended: all members that it was sent to have confirmed it, or have failed.
    /// Called once for each request that was sent. Any context, also within the call that sends;
    /// never sleeps.
    fn ended(&self, ended: &Ended);

    /// `member` has not confirmed write `number`, and gets no more writes. Called once each time
    /// that it falls behind, before [`Self::ended`] for that write. Any context; never sleeps.
    fn fell_behind(&self, member: usize, number: u64) {
        let _ = (member, number);
    }

    /// The session of `member` lost its last path, or has one again: then the user may have the
    /// member [rejoin](crate::Group::rejoin). Process context; may sleep, but not drop the group.
    fn link_event(&self, member: usize, event: LinkEvent) {
        let _ = (member, event);
    }

    /// As [`SessionEvents::module`](rtrs_client::SessionEvents::module).
    fn module(&self) -> Result<ModuleReference>;
}
