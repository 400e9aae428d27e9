// SPDX-License-Identifier: GPL-2.0

//! The events of a session of a user in C.

use kernel::sync::Arc;
use kernel_ext::{
    module::ModuleReference,
    prelude::*,
    sync::set_once::SetOnce, //
};
use rtrs_client::{
    LinkEvent,
    SessionEvents,
    SubmitError, //
};

use crate::{
    callbacks::{
        Confirmation,
        LinkCallback, //
    },
    permits::Permits,
    LocalModule, //
};

/// The events of a session, passed on to its user in C, or to the group that it has joined.
pub(crate) struct Events {
    link: LinkCallback,
    /// Set before the first request is sent.
    pub(crate) permits: SetOnce<Arc<Permits<Confirmation>>>,
    /// The receiver of requests that were not sent under a permit.
    pub(crate) joined: SetOnce<Arc<dyn SessionEvents>>,
}

impl Events {
    /// Makes the events of a session that is about to be opened.
    pub(crate) fn new(link: LinkCallback) -> Self {
        Self {
            link,
            permits: SetOnce::new(),
            joined: SetOnce::new(),
        }
    }

    /// Confirms the request of a permit. Returns false if no request has begun under the permit.
    fn confirm(&self, tag: u32, result: Result) -> bool {
        let permits = self.permits.as_ref();
        let confirmation = permits.and_then(|permits| permits.ended(tag));
        let is_known = confirmation.is_some();
        if let Some(confirmation) = confirmation {
            confirmation.call(result);
        }
        is_known
    }

    /// The receiver that the session has joined, if any. Out of line, as other sessions do not get
    /// here.
    #[cold]
    #[inline(never)]
    fn joined(&self) -> Option<&dyn SessionEvents> {
        self.joined.as_ref().map(|joined| &**joined)
    }
}

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        if !self.confirm(tag, result) {
            if let Some(joined) = self.joined() {
                joined.complete(tag, result);
            }
        }
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        if !self.confirm(tag, Err(error.to_error())) {
            if let Some(joined) = self.joined() {
                joined.unanswered(tag, error);
            }
        }
    }

    fn link_event(&self, event: LinkEvent) {
        self.link.call(event);
        if let Some(joined) = self.joined() {
            joined.link_event(event);
        }
    }

    /// The module of the receiver that the session has joined. That module depends on this one.
    fn module(&self) -> Result<ModuleReference> {
        match self.joined() {
            Some(joined) => joined.module(),
            None => ModuleReference::new::<LocalModule>(),
        }
    }
}
