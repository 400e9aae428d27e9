// SPDX-License-Identifier: GPL-2.0

//! How requests are sent: together by a [`Submission`], so that the device is told of several at
//! once, or singly by [`Session::send()`]. Every request is sent by code of this file.

use core::ptr;
use kernel::{
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::{
    prelude::*,
    rdma::{
        SendBatch,
        SendRoom,
        Sge,
        Unposted, //
    },
    sync::state_cell::Owned, //
};

use rtrs_core::connection::SERVICE_CID;

use crate::{
    connection::Connection,
    events::SubmitError,
    path::{
        Path,
        PathHandler, //
    },
    permit::Permit,
    requests::{
        request::{
            Kind,
            Request, //
        },
        submit::{
            has_room,
            FullBatch,
            Posted,
            Refused,
            SubmissionRoom,
            COPIED_SGE,
            MAX_BATCH, //
        },
        tags::{
            Phase,
            FLAGS,
            MOVED,
            RESENT, //
        },
        PathRequests, //
    },
    session::Session, //
};

/// Sends requests of one session together.
///
/// Added requests are sent at the latest when this is dropped. An added request that cannot be sent
/// after all ends by [`SessionEvents::unanswered`](crate::SessionEvents::unanswered), which is
/// called in the context of this object's user.
///
/// The RCU read lock is held all the time: no path is taken down while a request for it is waiting
/// here.
///
/// # Invariants
///
/// The work requests in `batch` are for `target`. `tags` has the tag of each work request.
pub struct Submission<'s, 'g> {
    session: &'s Session,
    guard: &'g rcu::Guard,
    batch: FullBatch<'g>,
    tags: [u32; MAX_BATCH],
    /// The connection that the batch is for. Nothing if the batch is empty.
    target: Option<Target<'g>>,
}

/// A connection of a path.
#[derive(Clone, Copy)]
struct Target<'g> {
    path: &'g Arc<Path>,
    requests: &'g PathRequests,
    connection: &'g Connection<PathHandler>,
}

impl<'s, 'g> Submission<'s, 'g> {
    /// Begins a submission, in `room`.
    #[inline]
    pub fn new(session: &'s Session, guard: &'g rcu::Guard, room: &'g mut SubmissionRoom) -> Self {
        // INVARIANT: There are no work requests.
        Self {
            session,
            guard,
            batch: SendBatch::new(room),
            tags: [0; MAX_BATCH],
            target: None,
        }
    }

    /// Adds a request. Never sleeps.
    ///
    /// `queue` is below the number of queues of the session, otherwise the error is
    /// [`SubmitError::NoPath`]. Queues that raise interrupts come first, then polled queues. The
    /// response comes to the completion queue of the queue. A service request goes by the service
    /// connection, whatever the queue. `header` is handed to the server's user.
    #[inline(always)]
    pub fn add(
        &mut self,
        permit: Permit<'s>,
        kind: Kind,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let request = prepare(self.session, permit, kind, queue, header)?;
        let added = match only_target(self.session, self.guard, request.connection) {
            Some(target) => self.add_to::<true>(target, request),
            None => self.add_by_policy::<true>(request, None),
        };
        added.map_err(|refused| refuse(self.session, refused))
    }

    /// Adds `request` for `target`. With `COPY` the data is copied if it is short. Any context.
    #[inline(always)]
    fn add_to<const COPY: bool>(
        &mut self,
        target: Target<'g>,
        request: Owned<'s, Request>,
    ) -> Result<(), Refused<'s>> {
        if let Some(old) = self.target {
            if !ptr::eq(old.connection, target.connection) || !has_room(&self.batch) {
                self.post();
            }
        }
        let (tag, first) = (request.tag(), self.batch.len());
        let phase = target
            .requests
            .add::<_, COPY>(target.connection, &mut self.batch, request)?;
        // INVARIANT: `tag` is that of the work request that was added. If there are two of this
        // request, `post_registration` sets the tag of the second.
        if let Some(place) = self.tags.get_mut(first) {
            *place = tag;
        }
        self.target = Some(target);
        if phase == Phase::Registering {
            self.post_registration(target, tag);
        }
        Ok(())
    }

    /// Posts the batch, whose last work requests are the registration of request `tag` and the
    /// request.
    #[inline(never)]
    fn post_registration(&mut self, target: Target<'g>, tag: u32) {
        // INVARIANT: The last work request belongs to request `tag`, too.
        let last = self.batch.len().wrapping_sub(1);
        if let Some(place) = self.tags.get_mut(last) {
            *place = tag;
        }
        self.post();
        let requests = target.requests;
        if requests.registration_posted(target.connection, tag) == Posted::Broken {
            target.path.submission_failed();
        }
    }

    /// Sends `request` as the policy says, on a path other than `except`, which has failed. With
    /// `COPY` the data is copied if it is short. Never sleeps.
    #[inline(never)]
    pub(crate) fn add_by_policy<const COPY: bool>(
        &mut self,
        mut request: Owned<'s, Request>,
        except: Option<&Path>,
    ) -> Result<(), Refused<'s>> {
        let mut error = ECONNABORTED;
        let Some(paths) = self.session.paths.load_ref(self.guard) else {
            return Err(Refused { request, error });
        };
        let connection = request.connection & !FLAGS;
        let policy = &self.session.policy;
        for path in policy.order(paths, self.guard, usize::from(connection)) {
            if except.is_some_and(|except| ptr::eq(except, &**path)) {
                continue;
            }
            let Some(target) = target_on(path, self.guard, connection) else {
                continue;
            };
            match self.send_alone::<COPY>(target, request) {
                Ok(()) => {
                    if except.is_some() {
                        path.stats.failed_over();
                    }
                    return Ok(());
                }
                Err(refused) => {
                    request = refused.request;
                    // The error of a path that is up is preferred.
                    if refused.error != ECONNABORTED {
                        error = refused.error;
                    }
                }
            }
        }
        Err(Refused { request, error })
    }

    /// Sends `request` alone to `target`, so that another path can take it after an error.
    fn send_alone<const COPY: bool>(
        &mut self,
        target: Target<'g>,
        mut request: Owned<'s, Request>,
    ) -> Result<(), Refused<'s>> {
        self.post();
        target.requests.add_to_policy_count(&mut request);
        if let Err(mut refused) = self.add_to::<COPY>(target, request) {
            target.requests.left(&mut refused.request);
            return Err(refused);
        }
        let mut refused = None;
        self.post_or(|request| refused = Some(request));
        refused.map_or(Ok(()), Err)
    }

    /// Posts the batch. Requests that cannot be sent end, and the user is told. Never sleeps.
    fn post(&mut self) {
        self.post_or(unanswered(self.session));
    }

    /// Posts the batch. Requests that cannot be sent are given to `refused`. Never sleeps.
    #[inline(always)]
    fn post_or(&mut self, refused: impl FnMut(Refused<'s>)) {
        let Some(target) = self.target.take() else {
            return;
        };
        let len = self.batch.len();
        // INVARIANT: The batch is empty afterwards.
        if let Err(unposted) = target.connection.queue_pair().post(&mut self.batch) {
            let numbers = self.tags.get(..len).unwrap_or(&[]);
            take_back(self.session, target, numbers, unposted, refused);
        }
    }
}

impl Session {
    /// Sends one request, in fewer instructions than a [`Submission`] with one request takes. Never
    /// sleeps.
    ///
    /// Arguments and errors are those of [`Submission::add()`]. A request that the device does not
    /// take ends by [`SessionEvents::unanswered`](crate::SessionEvents::unanswered).
    #[inline(always)]
    pub fn send<'s>(
        &'s self,
        permit: Permit<'s>,
        kind: Kind,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let request = prepare(self, permit, kind, queue, header)?;
        let guard = rcu::read_lock();
        let sent = match only_target(self, &guard, request.connection) {
            Some(target) if target.requests.is_copied(&request) => {
                send_copied(self, target, request, None)
            }
            _ => send_otherwise::<true>(self, &guard, request),
        };
        sent.map_err(|refused| refuse(self, refused))
    }
}

impl Session {
    /// As [`Self::send()`], for a write whose data is sent from its own memory, however short the
    /// data is. So several sessions can send the same
    /// [`SharedTable`](kernel_ext::scatterlist::SharedTable), or [page](Self::share_pages), without
    /// a copy for each of them. `EINVAL` without data. Data that is sent again by another path is
    /// copied if it is short.
    pub fn send_from_memory<'s>(
        &'s self,
        permit: Permit<'s>,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let request = prepare(self, permit, Kind::Write, queue, header)?;
        let guard = rcu::read_lock();
        let target = only_target(self, &guard, request.connection);
        let page = target.and_then(|target| Some((target, target.requests.shared_page(&request)?)));
        let sent = match page {
            Some((target, page)) => send_copied(self, target, request, Some(page)),
            None => send_otherwise::<false>(self, &guard, request),
        };
        sent.map_err(|refused| refuse(self, refused))
    }
}

impl Session {
    /// As [`Self::send()`], but a request that the device of one path does not take is offered to
    /// the other paths. If none takes it, an error is returned, and no event is called. Costs a
    /// little more than [`Self::send()`].
    pub fn send_or_return<'s>(
        &'s self,
        permit: Permit<'s>,
        kind: Kind,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let request = prepare(self, permit, kind, queue, header)?;
        send_by_policy(self, request)
    }

    /// As [`Self::send()`], for a moved request: the user knows it by another number than that of
    /// `permit`. See [`SessionEvents::tag_of_moved`](crate::SessionEvents::tag_of_moved).
    #[cold]
    pub fn send_moved<'s>(
        &'s self,
        permit: Permit<'s>,
        kind: Kind,
        queue: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let mut request = prepare(self, permit, kind, queue, header)?;
        request.connection |= MOVED;
        send_by_policy(self, request)
    }
}

/// Sends one request that needs a single RDMA write. The data is copied to the bounce buffer now,
/// or is `shared`, in the page of the tag.
#[inline(always)]
fn send_copied<'s>(
    session: &'s Session,
    target: Target<'_>,
    request: Owned<'s, Request>,
    shared: Option<Sge>,
) -> Result<(), Refused<'s>> {
    let tag = request.tag();
    let mut room = SendRoom::<1, COPIED_SGE>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    target
        .requests
        .add_copied(target.connection, &mut batch, request, shared)?;
    if let Err(unposted) = target.connection.queue_pair().post(&mut batch) {
        take_back(session, target, &[tag], unposted, unanswered(session));
    }
    Ok(())
}

/// Sends one request of any kind.
#[inline(never)]
fn send_otherwise<'s, const COPY: bool>(
    session: &'s Session,
    guard: &rcu::Guard,
    request: Owned<'s, Request>,
) -> Result<(), Refused<'s>> {
    let mut room = SubmissionRoom::EMPTY;
    let mut submission = Submission::new(session, guard, &mut room);
    match only_target(session, guard, request.connection) {
        Some(target) => submission.add_to::<COPY>(target, request),
        None => submission.add_by_policy::<COPY>(request, None),
    }
}

/// Sends one request by the first path that takes it, in the order of the policy. If none does, the
/// permit is given back.
fn send_by_policy<'s>(
    session: &'s Session,
    request: Owned<'s, Request>,
) -> Result<(), SubmitError> {
    let guard = rcu::read_lock();
    let mut room = SubmissionRoom::EMPTY;
    let mut submission = Submission::new(session, &guard, &mut room);
    let sent = submission.add_by_policy::<true>(request, None);
    sent.map_err(|refused| refuse(session, refused))
}

/// Prepares a request from a permit of `session`.
#[inline(always)]
fn prepare<'s>(
    session: &'s Session,
    permit: Permit<'s>,
    kind: Kind,
    queue: u32,
    header: &[u8],
) -> Result<Owned<'s, Request>, SubmitError> {
    let connection = match permit.is_by_service_connection() {
        true => SERVICE_CID,
        // A queue number that is out of range finds no connection.
        false => queue.wrapping_add(1).min(u32::from(RESENT.wrapping_sub(1))) as u16,
    };
    if !ptr::eq(permit.session(), session) {
        return Err(SubmitError::Failed(EINVAL));
    }
    let Some(mut request) = permit.into_request() else {
        return Err(SubmitError::Failed(EINVAL));
    };
    match request.prepare(kind, connection, header) {
        Ok(()) => Ok(request),
        Err(error) => Err(refuse(session, Refused { request, error })),
    }
}

/// Connection `connection` of the only path. Nothing if there are several paths, or if the path is
/// not connected.
#[inline(always)]
fn only_target<'g>(
    session: &Session,
    guard: &'g rcu::Guard,
    connection: u16,
) -> Option<Target<'g>> {
    match session.paths.load_ref(guard)?.as_slice() {
        [path] => target_on(path, guard, connection),
        _ => None,
    }
}

/// Connection `connection` of `path`, if the path is connected.
#[inline(always)]
fn target_on<'g>(
    path: &'g Arc<Path>,
    guard: &'g rcu::Guard,
    connection: u16,
) -> Option<Target<'g>> {
    path.connected(guard)?
        .sender(usize::from(connection))
        .map(|(requests, connection)| Target {
            path,
            requests,
            connection,
        })
}

/// Takes back the last of the requests `numbers`, which were added for `target`: the device has not
/// taken them.
#[cold]
#[inline(never)]
fn take_back<'s>(
    session: &'s Session,
    target: Target<'_>,
    numbers: &[u32],
    unposted: Unposted,
    refused: impl FnMut(Refused<'s>),
) {
    let (tags, cid) = (&session.tags, target.connection.cid());
    let taken = target
        .requests
        .take_back(tags, cid, numbers, unposted, refused);
    if taken == Posted::Broken {
        target.path.submission_failed();
    }
}

/// Returns a function that tells the user of a request that was added and could not be sent.
fn unanswered<'s>(session: &'s Session) -> impl FnMut(Refused<'s>) {
    |refused| session.tags.unanswered(refused.request, refused.error)
}

/// Gives back the permit of a request that was not sent, and returns the reason.
#[cold]
fn refuse(session: &Session, refused: Refused<'_>) -> SubmitError {
    session.tags.give_back(refused.request);
    SubmitError::new(refused.error)
}

impl Drop for Submission<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.post_or(unanswered(self.session));
    }
}
