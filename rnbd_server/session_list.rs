// SPDX-License-Identifier: GPL-2.0

//! Lists of sessions that are checked regularly.

use kernel::sync::Arc;
use kernel_ext::prelude::*;

use crate::session::Session;

/// A session of a list.
pub(crate) struct Listed<N> {
    /// The session.
    pub(crate) session: Arc<Session>,
    /// The same session, as the transport knows it.
    pub(crate) transport: Arc<rtrs_server::Session>,
    /// The notes on the session.
    pub(crate) notes: N,
}

/// Sessions, with notes on each.
///
/// # Invariants
///
/// Each session is in the list at most once.
pub(crate) struct SessionList<N> {
    sessions: KVec<Listed<N>>,
}

impl<N: Default> SessionList<N> {
    /// Makes an empty list. Any context.
    pub(crate) const fn new() -> Self {
        Self {
            sessions: KVec::new(),
        }
    }

    /// Adds a session with empty notes, unless the list has the session. Sleeps. `ENOMEM`.
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
        // INVARIANT: The list does not have the session, see above.
        Ok(self.sessions.push(listed, GFP_KERNEL)?)
    }

    /// Takes a session out, if the list has it. Any context. The result may have the last reference
    /// to the session: it is to be dropped when the list is not locked any more.
    pub(crate) fn remove(&mut self, session: &Arc<Session>) -> Option<Listed<N>> {
        let position = self.position(session)?;
        self.sessions.remove(position).ok()
    }

    /// The sessions of the list. Any context.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed<N>> {
        self.sessions.iter()
    }

    /// The sessions of the list, whose notes may be changed. Any context.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Listed<N>> {
        self.sessions.iter_mut()
    }

    /// Whether the list is empty. Any context.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn position(&self, session: &Arc<Session>) -> Option<usize> {
        let mut sessions = self.sessions.iter();
        sessions.position(|listed| Arc::ptr_eq(&listed.session, session))
    }
}
