// SPDX-License-Identifier: GPL-2.0

//! The events of a group, which its user handles.

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
    /// The members that have confirmed the request.
    pub confirmed: Members,
    /// The members that the request was sent to, and that have not confirmed it.
    pub failed: Members,
    /// The members of `failed` that have not responded. They may have the request all the same.
    pub unanswered: Members,
    /// An error if no member has confirmed the request: that of the member that failed first.
    pub result: Result,
}

/// The events of a group, which its user handles.
pub trait GroupEvents: Send + Sync + 'static {
    /// A request has ended: all members that it was sent to have confirmed it, or have failed.
    /// Called once for each request that was sent. Any context, also within the call that sends.
    /// Must not sleep.
    fn ended(&self, ended: &Ended);

    /// `member` has not confirmed write `number`, and gets no more writes. Called once each time
    /// that a member falls behind, before [`Self::ended`] for that write. Any context. Must not
    /// sleep.
    fn fell_behind(&self, member: usize, number: u64) {
        let _ = (member, number);
    }

    /// The session of `member` has lost its last path, or has a path again. Then the user may have
    /// the member [rejoin](crate::Group::rejoin). Process context. May sleep, but must not drop the
    /// group.
    fn link_event(&self, member: usize, event: LinkEvent) {
        let _ = (member, event);
    }

    /// As [`SessionEvents::module`](rtrs_client::SessionEvents::module).
    fn module(&self) -> Result<ModuleReference>;
}
