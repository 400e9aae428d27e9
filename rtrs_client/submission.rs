// SPDX-License-Identifier: GPL-2.0

//! Requests that are sent together, so that the device is told of several at once.

use core::{
    mem::MaybeUninit,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};

use crate::{
    connection::Connection,
    path::Path,
    permit::{
        Permit,
        SubmitError, //
    },
    request::{
        Kind,
        Request, //
    },
    session::Session,
    transfer::{
        FullBatch,
        Refused,
        Submitted,
        Transfer, //
    }, //
};

/// Sends requests of one session together.
///
/// What was added is sent at the latest when this is dropped. A request that cannot be sent then
/// after all ends as by [`SessionEvents::unanswered`](crate::SessionEvents::unanswered), which is
/// called in the context of this object's user.
///
/// The read lock is held all the time: no path is taken down while one of its requests is waiting
/// here.
pub struct Submission<'a> {
    session: &'a Session,
    guard: &'a rcu::Guard,
    batch: &'a mut FullBatch,
    /// Where the batch goes, if there is one.
    target: Option<Target<'a>>,
}

/// A connection of a path.
#[derive(Clone, Copy)]
struct Target<'a> {
    path: &'a Arc<Path>,
    transfer: &'a Transfer,
    connection: &'a Connection,
}

impl<'a> Submission<'a> {
    /// Begins one, in `room`.
    #[inline]
    pub fn new(
        session: &'a Session,
        guard: &'a rcu::Guard,
        room: &'a mut MaybeUninit<FullBatch>,
    ) -> Self {
        Self {
            session,
            guard,
            batch: FullBatch::init(room),
            target: None,
        }
    }

    /// Adds a request. Never sleeps.
    ///
    /// `queue` is below the number of queues of the session; the response interrupts the CPU of
    /// that queue. `header` is handed to the server's user.
    pub fn add(
        &mut self,
        permit: Permit<'_>,
        kind: Kind,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let session = self.session;
        if !ptr::eq(permit.session(), session) {
            return Err(SubmitError::Failed(EINVAL));
        }
        let Some(mut request) = permit.into_request() else {
            return Err(SubmitError::Failed(EINVAL));
        };
        let added = match request.prepare(kind, queue.saturating_add(1), header) {
            Ok(()) => self.add_request(request),
            Err(error) => Err(Refused { request, error }),
        };
        match added {
            Ok(()) => Ok(()),
            Err(refused) => Err(session.refused(refused)),
        }
    }

    #[inline]
    fn add_request(&mut self, request: KBox<Request>) -> Result<(), Refused> {
        let Some(target) = self.choose(request.connection) else {
            return self.session.dispatch_except(request, None);
        };
        let is_other = |old: Target<'_>| !ptr::eq(old.connection, target.connection);
        let entries = target.transfer.most_entries(&request);
        if self.target.is_some_and(is_other) || !self.batch.has_room(entries) {
            self.post();
        }
        target.path.count_submitted(&request);
        match target
            .transfer
            .add(target.connection, self.batch, request)?
        {
            Submitted::Added => self.target = Some(target),
            Submitted::Posted => {}
            Submitted::Broken => target.path.submission_failed(),
        }
        Ok(())
    }

    /// The connection of number `connection`, if there is just one path. With several each request
    /// goes where the policy says, and alone.
    #[inline]
    fn choose(&self, connection: u32) -> Option<Target<'a>> {
        let paths = self.session.paths.load_ref(self.guard)?;
        let [path] = paths.as_slice() else {
            return None;
        };
        if !path.is_connected() {
            return None;
        }
        let set = path.connections(self.guard)?;
        Some(Target {
            path,
            transfer: set.incarnation.transfer()?,
            connection: set.get(connection as usize)?,
        })
    }

    /// Sends what was added. Never sleeps.
    #[inline]
    fn post(&mut self) {
        let (Some(target), session) = (self.target.take(), self.session) else {
            return;
        };
        let posted = target
            .transfer
            .post(target.connection, self.batch, |refused| {
                session.unposted(refused)
            });
        if posted == Submitted::Broken {
            target.path.submission_failed();
        }
    }
}

impl Drop for Submission<'_> {
    #[inline]
    fn drop(&mut self) {
        self.post();
    }
}
