// SPDX-License-Identifier: GPL-2.0

//! A group of a user in C.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::{
        Handle,
        Vectors, //
    },
    prelude::*,
    scatterlist::ScatterTable,
    sync::set_once::SetOnce, //
};
use rtrs_client_c::{
    JoinedSession,
    JoiningSession,
    Permits, //
};
use rtrs_group::{
    Group,
    Member,
    Members,
    ReadPolicy, //
};

use crate::{
    callbacks::{
        Confirmation,
        FailureCallback, //
    },
    events::Events, //
};

/// A group of a user in C, which [`Self::open()`] opens. Dropping it closes it.
pub(crate) struct UserGroup {
    opened: SetOnce<Opened>,
}

/// The parts of a group that is open.
///
/// # Invariants
///
/// - `group` sends a request only with a permit of `permits` that has the request's tag. So the
///   tables of a tag, in the members' sessions and in the group, are only used by requests, and
///   each request first fills or empties the table that it uses.
/// - `sessions` are those of the members of `group`. They are closed before `group` is dropped.
pub(crate) struct Opened {
    sessions: KVec<JoinedSession>,
    group: Group,
    permits: Arc<Permits<Confirmation>>,
    /// The fewest connections for CPUs that a member has; not 0.
    queues: u32,
}

/// The destination of a request, and its message.
pub(crate) enum Target<'a> {
    /// A write, to all members.
    All(&'a [u8]),
    /// A write, to all members, with a message for each member. All messages can be read.
    Each(&'a Vectors<'a>),
    /// A write, to one member.
    Member(usize, &'a [u8]),
    /// A read, from a member that is not in this set.
    ReadExcept(Members, &'a [u8]),
}

impl UserGroup {
    /// Makes a group that is not open.
    pub(crate) fn new() -> Self {
        Self {
            opened: SetOnce::new(),
        }
    }

    /// Makes a group of these sessions. If that fails, they stay the caller's. Sleeps.
    ///
    /// `ENODEV` and `EBUSY` as of [`JoiningSession::new()`], `EINVAL` for no sessions or too many.
    pub(crate) fn open(
        &self,
        sessions: impl ExactSizeIterator<Item = Result<Handle>>,
        fell_behind: Option<FailureCallback>,
    ) -> Result {
        let mut joining = KVec::with_capacity(sessions.len(), GFP_KERNEL)?;
        let mut members = KVec::with_capacity(sessions.len(), GFP_KERNEL)?;
        let mut joined = KVec::with_capacity(sessions.len(), GFP_KERNEL)?;
        let mut queues = u32::MAX;
        for handle in sessions {
            let session = JoiningSession::new(handle?)?;
            queues = queues.min(u32::from(session.transport().num_irq_queues()));
            let member = Member::of_session(session.transport().clone())?;
            joining.push((session, member.events()), GFP_KERNEL)?;
            members.push(member, GFP_KERNEL)?;
        }
        let events = Arc::new(Events::new(fell_behind), GFP_KERNEL)?;
        let group = Group::new(members, ReadPolicy::RoundRobin, events.clone())?;
        let permits = Permits::new(group.queue_depth())?;
        events.permits.populate(permits.clone());
        // Nothing fails from here on.
        for (session, events) in joining {
            // There is room.
            let _ = joined.push_within_capacity(session.join(events));
        }
        // INVARIANT: The group was just made, of the members of these sessions.
        self.opened.populate(Opened {
            sessions: joined,
            group,
            permits,
            queues: queues.max(1),
        });
        Ok(())
    }

    /// The parts of the group. `ENODEV` if it is not open yet. Any context.
    pub(crate) fn opened(&self) -> Result<&Opened> {
        self.opened.as_ref().ok_or(ENODEV)
    }

    /// Confirms all requests, and waits until all permits were given back. Sleeps.
    pub(crate) fn close(&self) {
        if let Ok(opened) = self.opened() {
            opened.close_sessions();
            opened.permits.wait_for_all();
        }
    }
}

impl Opened {
    /// The group. Not for requests.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// The permits.
    pub(crate) fn permits(&self) -> &Permits<Confirmation> {
        &self.permits
    }

    /// Sends a request under `permit`. `confirmation` is called later, unless this fails. Any
    /// context.
    ///
    /// `fill` describes the data of the request, if there is any, in an empty table. Errors are
    /// those of the functions of `rtrs-group.h` that send, and of `fill`.
    pub(crate) fn request(
        &self,
        permit: Handle,
        target: Target<'_>,
        confirmation: Confirmation,
        mut fill: Option<impl FnOnce(&mut ScatterTable) -> Result>,
    ) -> Result {
        let mine = self.permits.use_for_request(permit)?;
        let tag = mine.tag();
        // By the type invariant the tag's last request has ended.
        let mut right = self.group.permit(tag).ok_or(EBUSY)?;
        let queue = mine.cpu().checked_rem(self.queues).ok_or(EINVAL)?;
        if !matches!(target, Target::ReadExcept(..)) {
            if let Some(fill) = fill.take() {
                right.fill(fill)?;
            }
        }
        // From here on the request may be confirmed, before the group returns.
        mine.begin(confirmation);
        let sent = match target {
            Target::All(message) => right.write(queue, message).map(drop),
            Target::Each(messages) => {
                let message = |member| messages.piece(member).unwrap_or(&[]);
                right.write_each(queue, message).map(drop)
            }
            Target::Member(member, message) => right.write_to(member, queue, message),
            Target::ReadExcept(except, message) => {
                let read = right.read(queue, message, except, |table| {
                    table.clear();
                    let filled = fill.map_or(Ok(()), |fill| fill(table));
                    filled.inspect_err(|_| table.clear())
                });
                read.map(drop)
            }
        };
        sent.inspect_err(|_| self.permits.not_sent(tag))
    }

    fn close_sessions(&self) {
        for session in &self.sessions {
            session.close();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // INVARIANT: The group is dropped after this.
        self.close_sessions();
    }
}
