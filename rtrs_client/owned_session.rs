// SPDX-License-Identifier: GPL-2.0

//! A session that is closed when its owner drops it.

use core::ops::Deref;
use kernel::sync::Arc;
use kernel_ext::prelude::*;

use crate::{
    events::SessionEvents,
    session::{
        OpenParams,
        Session, //
    }, //
};

/// A session that is closed when this object is dropped, which sleeps. Other references to the
/// session may be left then; nothing can be sent by them any more.
pub struct OwnedSession(Arc<Session>);

impl OwnedSession {
    /// As [`Session::open`].
    pub fn open(params: &OpenParams<'_>, events: Arc<dyn SessionEvents>) -> Result<Self> {
        Session::open(params, events).map(Self)
    }
}

impl Deref for OwnedSession {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for OwnedSession {
    fn drop(&mut self) {
        self.0.close();
    }
}
