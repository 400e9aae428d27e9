// SPDX-License-Identifier: GPL-2.0

//! How a user sends requests: it takes the permit of a tag, fills in the data, and submits.

use core::mem;
use kernel::{
    prelude::*,
    sync::rcu,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::scatterlist::ScatterTable;
use rtrs_core::connection::SERVICE_CID;

use crate::{
    path::Path,
    request::{
        Kind,
        Request, //
    },
    session::Session,
    transfer::Refused, //
};

/// The most completions that are processed by one poll.
const POLL_BUDGET: u32 = 64;

/// How long a request of a failed path waits before it is offered again to paths that are up and
/// cannot take it for the moment, in milliseconds.
const FAIL_OVER_PAUSE_MS: i64 = 10;

/// Why a request could not be submitted; its permit is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// No path is up (`ECONNABORTED` in C).
    NoPath,
    /// Something is short for the moment; try again later.
    Busy,
    /// It cannot be sent as it is.
    Failed(Error),
}

impl SubmitError {
    fn new(error: Error) -> Self {
        if error == ECONNABORTED {
            Self::NoPath
        } else if error == EAGAIN || error == ENOMEM || error == EBUSY {
            Self::Busy
        } else {
            Self::Failed(error)
        }
    }

    /// The error, as C returns it.
    pub fn to_error(self) -> Error {
        match self {
            Self::NoPath => ECONNABORTED,
            Self::Busy => EAGAIN,
            Self::Failed(error) => error,
        }
    }
}

/// The right to send one request, under one tag. Dropping it gives it back.
pub struct Permit<'a> {
    session: &'a Session,
    /// Only empty while it is consumed.
    request: Option<KBox<Request>>,
}

impl<'a> Permit<'a> {
    /// The table of the data's segments, to be filled for a read or a write.
    pub fn scatter(&mut self) -> Option<&mut ScatterTable> {
        self.request.as_mut()?.table()
    }

    /// The session.
    #[inline]
    pub(crate) fn session(&self) -> &'a Session {
        self.session
    }

    /// The request itself.
    #[inline]
    pub(crate) fn into_request(mut self) -> Option<KBox<Request>> {
        let request = self.request.take();
        // There is nothing left to be given back.
        mem::forget(self);
        request
    }

    /// Sends a request on connection `connection` of some path.
    pub(crate) fn submit_on(
        self,
        kind: Kind,
        connection: u32,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let session = self.session;
        let Some(mut request) = self.into_request() else {
            return Err(SubmitError::Failed(EINVAL));
        };
        let sent = match request.prepare(kind, connection, header) {
            Ok(()) => session.dispatch(request),
            Err(error) => Err(Refused { request, error }),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(refused) => Err(session.refused(refused)),
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.session.give_back(request);
        }
    }
}

impl Session {
    /// Takes the permit of `tag`; nothing if it is taken, or if there is no such tag. Any context.
    #[inline]
    pub fn permit(&self, tag: u32) -> Option<Permit<'_>> {
        Some(Permit {
            session: self,
            request: Some(self.user_slot(tag)?.take()?),
        })
    }

    /// As [`Session::permit`], also for the tag of service requests.
    pub(crate) fn any_permit(&self, tag: u32) -> Option<Permit<'_>> {
        Some(Permit {
            session: self,
            request: Some(self.tag_slot(tag)?.take()?),
        })
    }

    /// Lets the tag of `request` be used again.
    #[inline(always)]
    fn give_back(&self, mut request: KBox<Request>) {
        if let Some(table) = request.table() {
            // The user's block request may end from here on.
            table.release_request();
        }
        if let Some(slot) = self.tag_slot(request.tag()) {
            // The slot is empty: there is one request for each tag.
            drop(slot.put(request));
        }
    }

    /// Gives back the permit of a request that was not sent; says why that was.
    #[cold]
    pub(crate) fn refused(&self, refused: Refused) -> SubmitError {
        self.give_back(refused.request);
        SubmitError::new(refused.error)
    }

    /// Sends `request` on a path. Never sleeps.
    #[inline(always)]
    fn dispatch(&self, request: KBox<Request>) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        let paths = self.paths.load(&guard);
        if let Some([path]) = paths.as_ref().map(|paths| paths.as_slice()) {
            // The usual case.
            if path.is_connected() {
                return path.submit(&guard, request);
            }
        }
        self.dispatch_except(request, None)
    }

    /// Sends `request` on a path other than `except`, which has failed. Never sleeps.
    #[inline(never)]
    pub(crate) fn dispatch_except(
        &self,
        mut request: KBox<Request>,
        except: Option<&Path>,
    ) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        let mut error = ECONNABORTED;
        let Some(paths) = self.paths.load(&guard) else {
            return Err(Refused { request, error });
        };
        for path in self
            .policy
            .order(&paths, &guard, request.connection as usize)
        {
            if !path.is_connected() || except.is_some_and(|except| core::ptr::eq(except, &**path)) {
                continue;
            }
            match path.submit(&guard, request) {
                Ok(()) => {
                    if except.is_some() {
                        path.stats.failed_over();
                    }
                    return Ok(());
                }
                Err(refused) => {
                    request = refused.request;
                    // Of a path that is up, if any of them is.
                    if refused.error != ECONNABORTED {
                        error = refused.error;
                    }
                }
            }
        }
        Err(Refused { request, error })
    }

    /// The server has answered `request`, or it cannot be sent any more. Any context.
    #[inline(always)]
    pub(crate) fn finish(&self, request: KBox<Request>) {
        let tag = request.tag();
        let answer = request.answer;
        let is_service = request.connection == u32::from(SERVICE_CID);
        // First, since the user may use the tag again at once.
        self.give_back(request);
        if is_service {
            self.service.finished(answer);
        } else {
            self.events().complete(tag, answer);
        }
    }

    /// Sends a request of a failed path on another one, or tells the user that there is none.
    /// Sleeps.
    ///
    /// A path that is up and short of memory is asked again until it takes the request, or is lost
    /// itself: giving the request up instead would cost every path that is up, see
    /// [`Self::fail_paths`].
    pub(crate) fn fail_over(&self, failed: &Path, request: KBox<Request>) {
        let mut result = self.dispatch_except(request, Some(failed));
        let refused = loop {
            match result {
                Ok(()) => return,
                Err(refused) if SubmitError::new(refused.error) == SubmitError::Busy => {
                    fsleep(Delta::from_millis(FAIL_OVER_PAUSE_MS));
                    result = self.dispatch_except(refused.request, Some(failed));
                }
                Err(refused) => break refused,
            }
        };
        self.give_up_for(refused);
    }

    /// Tells the user of a request that was in flight on a lost path and goes by no other one.
    /// Sleeps.
    pub(crate) fn give_up(&self, request: KBox<Request>) {
        let error = ECONNABORTED;
        self.give_up_for(Refused { request, error });
    }

    /// As [`Self::give_up`], for the reason given.
    fn give_up_for(&self, refused: Refused) {
        // In this order: a path that came up before is taken down, one that comes up later tells.
        self.giving_up();
        self.fail_paths();
        let error = match self.service_tag() {
            Some(tag) if tag == refused.request.tag() => ECONNABORTED,
            _ => refused.error,
        };
        self.unposted(Refused { error, ..refused });
    }

    /// Takes all paths down before a request is given up that the server may be at work on: it only
    /// learns of that by a path that connects. Sleeps.
    fn fail_paths(&self) {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return;
        };
        let mut any = false;
        for path in paths.iter().filter(|path| path.is_connected()) {
            // It cannot carry this request at all: its limits are lower than the lost path's.
            any |= path.connection_failed();
        }
        drop(guard);
        if any {
            // Who found such a path connected has sent by then.
            rcu::synchronize_rcu();
        }
    }

    /// Tells the user of a request that was submitted and could not be sent. Any context.
    #[cold]
    pub(crate) fn unposted(&self, refused: Refused) {
        let tag = refused.request.tag();
        self.give_back(refused.request);
        if self.service_tag() == Some(tag) {
            self.service.finished(Err(refused.error));
        } else {
            self.events()
                .unanswered(tag, SubmitError::new(refused.error));
        }
    }

    /// Processes completions of polled queue `queue`, counted from the first polled one; returns
    /// how many. Any context that may poll.
    pub fn poll(&self, queue: u32) -> u32 {
        let cid = (queue as usize)
            .saturating_add(usize::from(self.num_irq_queues()))
            .saturating_add(1);
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return 0;
        };
        let mut found = 0u32;
        for path in paths.iter() {
            if let Some(set) = path.connections(&guard) {
                if let Some(connection) = set.get(cid) {
                    found = found.saturating_add(
                        connection
                            .queue_pair()
                            .completion_queue()
                            .process_direct(POLL_BUDGET),
                    );
                }
            }
        }
        found
    }
}
