// SPDX-License-Identifier: GPL-2.0

//! What a session tells its user in C.

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
    callbacks::LinkCallback,
    permits::Permits,
    LocalModule, //
};

/// What a session tells its user in C.
pub(crate) struct Events {
    link: LinkCallback,
    /// Set before the first request is sent.
    pub(crate) permits: SetOnce<Arc<Permits>>,
}

impl Events {
    /// For a session that is about to be opened.
    pub(crate) fn new(link: LinkCallback) -> Self {
        Self {
            link,
            permits: SetOnce::new(),
        }
    }

    fn confirm(&self, tag: u32, result: Result) {
        if let Some(permits) = self.permits.as_ref() {
            permits.confirm(tag, result);
        }
    }
}

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        self.confirm(tag, result);
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        self.confirm(tag, Err(error.to_error()));
    }

    fn link_event(&self, event: LinkEvent) {
        self.link.call(event);
    }

    fn module(&self) -> Result<ModuleReference> {
        ModuleReference::new::<LocalModule>()
    }
}
