// SPDX-License-Identifier: GPL-2.0

//! A member of a group: a session, and its events for the group.

use kernel::sync::Arc;
use kernel_ext::{
    module::ModuleReference,
    page::send::SendPages,
    prelude::*,
    scatterlist::{
        ScatterTable,
        Sharing, //
    },
    sync::set_once::SetOnce, //
};
use rtrs_client::{
    Kind,
    LinkEvent,
    OpenParams,
    OwnedSession,
    Session,
    SessionEvents,
    SubmitError, //
};

use crate::{
    group_core::{
        Core,
        Failure, //
    },
    this, //
};

/// An established session that can become a member of a group, once. Dropping it closes the
/// session, and sleeps. A session of [another owner](Self::of_session) stays open.
pub struct Member {
    session: Arc<Session>,
    events: Arc<MemberEvents>,
    _owned: Option<OwnedSession>,
}

/// The data of a write, which all members send from the same memory.
pub(crate) enum Data<'a> {
    /// This many bytes, at least 1, in the tag's page of these pages.
    InPage(&'a Arc<SendPages>, u32),
    /// Data that the user has described.
    Shared(Sharing),
}

impl Data<'_> {
    /// The length in bytes.
    pub(crate) fn byte_len(&self) -> usize {
        match self {
            Self::InPage(_, len) => *len as usize,
            Self::Shared(sharing) => sharing.byte_len(),
        }
    }

    /// Describes the data in the table of a member's request of `tag`.
    fn describe(&self, table: &mut ScatterTable, tag: u32) -> Result {
        match self {
            Self::InPage(pages, len) => table.set_page(pages, tag as usize, *len),
            Self::Shared(sharing) => table.set_shared(sharing),
        }
    }
}

/// The events of a member's session.
struct MemberEvents {
    joined: SetOnce<Joined>,
}

/// A group that the session has joined.
struct Joined {
    core: Arc<Core>,
    /// The number of the member.
    index: usize,
}

impl Member {
    /// Opens a session as [`Session::open`] does, with its errors. Sleeps.
    pub fn open(params: &OpenParams<'_>) -> Result<Self> {
        let events = MemberEvents::new()?;
        let owned = OwnedSession::open(params, events.clone())?;
        Ok(Self {
            session: (*owned).clone(),
            events,
            _owned: Some(owned),
        })
    }

    /// Makes a member of a session that its owner has opened, and will close. Sleeps.
    ///
    /// The owner has the session call [`Self::events`] for the requests that the group sends. From
    /// the moment on when the group is made, these are all requests. The owner closes the session
    /// before the group is dropped.
    pub fn of_session(session: Arc<Session>) -> Result<Self> {
        Ok(Self {
            session,
            events: MemberEvents::new()?,
            _owned: None,
        })
    }

    /// The events for a session of another owner. Any context.
    pub fn events(&self) -> Arc<dyn SessionEvents> {
        self.events.clone()
    }

    /// The session, for its limits, its name, and whether it is connected. Not for requests.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Has the session's events go to `core`, as those of member `index`. `EEXIST` if the session
    /// has joined a group before.
    pub(crate) fn join(&self, core: Arc<Core>, index: usize) -> Result {
        match self.events.joined.populate(Joined { core, index }) {
            true => Ok(()),
            false => Err(EEXIST),
        }
    }

    /// Sends a write under `tag`, with `data`, if any.
    pub(crate) fn send_write(
        &self,
        tag: u32,
        queue: u32,
        header: &[u8],
        data: Option<&Data<'_>>,
    ) -> Result {
        // The group's tag is only free when this tag of the session is.
        let mut permit = self.session.permit(tag).ok_or(EBUSY)?;
        let sent = match data {
            Some(data) => {
                data.describe(permit.scatter().ok_or(EBUSY)?, tag)?;
                self.session.send_from_memory(permit, queue, header)
            }
            None => self.session.send(permit, Kind::HeaderOnly, queue, header),
        };
        sent.map_err(SubmitError::to_error)
    }
}

impl MemberEvents {
    /// Makes the events of a session that has joined no group.
    fn new() -> Result<Arc<Self>> {
        let joined = SetOnce::new();
        Ok(Arc::new(Self { joined }, GFP_KERNEL)?)
    }

    fn ended(&self, tag: u32, result: Result<(), Failure>) {
        // The session sends no request before it has joined.
        if let Some(joined) = self.joined.as_ref() {
            joined.core.member_ended(tag, joined.index, result);
        }
    }
}

impl SessionEvents for MemberEvents {
    fn complete(&self, tag: u32, result: Result) {
        self.ended(tag, result.map_err(Failure::Refused));
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        self.ended(tag, Err(Failure::Unanswered(error.to_error())));
    }

    fn link_event(&self, event: LinkEvent) {
        if let Some(joined) = self.joined.as_ref() {
            joined.core.events.link_event(joined.index, event);
        }
    }

    /// The module of the group's user, which depends on this one. Before there is a user, this
    /// module.
    fn module(&self) -> Result<ModuleReference> {
        match self.joined.as_ref() {
            Some(joined) => joined.core.events.module(),
            None => this::module(),
        }
    }
}
