// SPDX-License-Identifier: GPL-2.0

//! How a user sends requests: it takes the permit of a tag, fills in the data, and submits.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use kernel_ext::scatterlist::ScatterTable;

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

    /// Asks for the data that the table describes. Never sleeps.
    ///
    /// `queue` is below the number of queues of the session; the answer interrupts that queue's
    /// CPU. `header` is what the server's user gets.
    pub fn read(self, queue: u32, header: &[u8]) -> Result<(), SubmitError> {
        self.submit(Kind::Read, queue, header)
    }

    /// Sends the data that the table describes; otherwise as [`Permit::read`].
    pub fn write(self, queue: u32, header: &[u8]) -> Result<(), SubmitError> {
        self.submit(Kind::Write, queue, header)
    }

    /// Sends only the header; otherwise as [`Permit::read`].
    pub fn header_only(self, queue: u32, header: &[u8]) -> Result<(), SubmitError> {
        self.submit(Kind::HeaderOnly, queue, header)
    }

    fn submit(self, kind: Kind, queue: u32, header: &[u8]) -> Result<(), SubmitError> {
        // Connection 0 is for service requests.
        let connection = (queue as usize).saturating_add(1);
        self.submit_on(kind, connection, header)
    }

    /// Sends a request on connection `connection` of some path.
    pub(crate) fn submit_on(
        mut self,
        kind: Kind,
        connection: usize,
        header: &[u8],
    ) -> Result<(), SubmitError> {
        let session = self.session;
        let Some(mut request) = self.request.take() else {
            return Err(SubmitError::Failed(EINVAL));
        };
        let sent = match request.prepare(kind, connection, header) {
            Ok(()) => session.dispatch(request, None),
            Err(error) => Err(Refused { request, error }),
        };
        sent.map_err(|refused| {
            // So that the drop gives it back.
            self.request = Some(refused.request);
            SubmitError::new(refused.error)
        })
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
        if tag >= self.queue_depth() {
            return None;
        }
        self.any_permit(tag)
    }

    /// As [`Session::permit`], also for the tag of service requests.
    pub(crate) fn any_permit(&self, tag: u32) -> Option<Permit<'_>> {
        Some(Permit {
            session: self,
            request: Some(self.tag_slot(tag)?.take()?),
        })
    }

    /// Lets the tag of `request` be used again.
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

    /// Sends `request` on a path other than `except`. Never sleeps.
    fn dispatch(&self, mut request: KBox<Request>, except: Option<&Path>) -> Result<(), Refused> {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.load(&guard) else {
            return Err(Refused {
                request,
                error: ECONNABORTED,
            });
        };
        if let ([path], None) = (paths.as_slice(), except) {
            // The usual case.
            if path.is_connected() {
                return path.submit(&guard, request);
            }
            return Err(Refused {
                request,
                error: ECONNABORTED,
            });
        }
        let mut error = ECONNABORTED;
        for path in self.policy.order(&paths, &guard, request.connection) {
            if !path.is_connected() || except.is_some_and(|except| core::ptr::eq(except, &**path)) {
                continue;
            }
            match path.submit(&guard, request) {
                Ok(()) => return Ok(()),
                Err(refused) => {
                    request = refused.request;
                    error = refused.error;
                }
            }
        }
        Err(Refused { request, error })
    }

    /// The server has answered `request`, or it cannot be sent any more. Any context.
    pub(crate) fn finish(&self, request: KBox<Request>) {
        let tag = request.tag();
        let answer = request.answer;
        // First, since the user may use the tag again at once.
        self.give_back(request);
        if self.service_tag() == Some(tag) {
            self.service_finished(answer);
        } else {
            self.events().complete(tag, answer);
        }
    }

    /// Sends a request of a failed path on another one, or tells the user that there is none.
    /// Process context.
    pub(crate) fn fail_over(&self, failed: &Path, request: KBox<Request>) {
        match self.dispatch(request, Some(failed)) {
            Ok(()) => failed.stats.failed_over(),
            Err(refused) => {
                let tag = refused.request.tag();
                self.give_back(refused.request);
                if self.service_tag() == Some(tag) {
                    self.service_finished(Err(ECONNABORTED));
                } else {
                    self.events()
                        .unanswered(tag, SubmitError::new(refused.error));
                }
            }
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
