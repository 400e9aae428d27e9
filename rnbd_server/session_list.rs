// SPDX-License-Identifier: GPL-2.0

//! Lists of sessions that are looked at now and then.

use kernel::sync::Arc;
use kernel_ext::prelude::*;

use crate::session::Session;

/// A session of a list.
pub(crate) struct Listed<N> {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// The same session, as the transport knows it.
    pub(crate) transport: Arc<rtrs_server::Session>,
    /// What was noted of it.
    pub(crate) notes: N,
}

/// Sessions, and what is noted of each of them.
///
/// # Invariants
///
/// Each session is in the list at most once.
pub(crate) struct SessionList<N> {
    sessions: KVec<Listed<N>>,
}

impl<N: Default> SessionList<N> {
    /// No session. Any context.
    pub(crate) const fn new() -> Self {
        Self {
            sessions: KVec::new(),
        }
    }

    /// Adds a session of which nothing is noted, unless it is there already. Sleeps. `ENOMEM`.
    pub(crate) fn add(
        &mut self,
        session: &Arc<Session>,
        transport: &Arc<rtrs_server::Session>,
    ) -> Result {
        if self.position(session).is_some() {
            return Ok(());
        }
        let listed = Listed {
            session: session.clone(),
            transport: transport.clone(),
            notes: N::default(),
        };
        // INVARIANT: It is not there, see above.
        Ok(self.sessions.push(listed, GFP_KERNEL)?)
    }

    /// Takes a session out, if it is there. Any context. The result may be the last that keeps the
    /// session: it is to be dropped when the list is not locked any more.
    pub(crate) fn remove(&mut self, session: &Arc<Session>) -> Option<Listed<N>> {
        let position = self.position(session)?;
        self.sessions.remove(position).ok()
    }

    /// Its sessions. Any context.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed<N>> {
        self.sessions.iter()
    }

    /// Its sessions, whose notes may be changed. Any context.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Listed<N>> {
        self.sessions.iter_mut()
    }

    /// Whether there is none. Any context.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn position(&self, session: &Arc<Session>) -> Option<usize> {
        let mut sessions = self.sessions.iter();
        sessions.position(|listed| Arc::ptr_eq(&listed.session, session))
    }
}
