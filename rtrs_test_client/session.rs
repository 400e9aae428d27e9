// SPDX-License-Identifier: GPL-2.0

//! The transport part: a session, for a task that has several requests in flight.

use core::num::NonZeroU32;
use kernel::{
    sync::Arc, //
};
use kernel_ext::prelude::*;
use proto::fabric::options::Options;
use rtrs_client::{
    Kind,
    ModuleReference,
    OpenParams,
    Outcome,
    OwnedSession,
    PageBuffer,
    SessionEvents,
    SubmitError, //
};

use crate::report::Report;

/// The most requests in flight.
pub(crate) const MAX_IN_FLIGHT: u32 = 16;

/// The events of the session: they keep the results of the requests.
struct Events {
    /// One for each tag that is used.
    outcomes: KVVec<Pin<KBox<Outcome>>>,
    module: fn() -> Result<ModuleReference>,
}

/// A session with the server. Dropping it closes the session, and sleeps.
pub(crate) struct Connected {
    session: OwnedSession,
    events: Arc<Events>,
}

impl Connected {
    /// Opens the session, and reports its limits. Sleeps. Errors are those of `Session::open`.
    pub(crate) fn open(
        report: &Report,
        options: &Options,
        module: fn() -> Result<ModuleReference>,
    ) -> Result<Self> {
        let mut outcomes = KVVec::with_capacity(MAX_IN_FLIGHT as usize, GFP_KERNEL)?;
        for _ in 0..MAX_IN_FLIGHT {
            outcomes.push(KBox::pin_init(Outcome::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let events = Arc::new(Events { outcomes, module }, GFP_KERNEL)?;
        let paths = [options.path];
        let params = OpenParams::new(c"fabric-test", &paths, options.port);
        let session =
            OwnedSession::open(&params, events.clone()).inspect_err(|error| {
                pr_err!(
                "no session with the test's server: {:?}; see whether rtrs_test_server is loaded \
                 there\n", error)
            })?;
        let (size, queues) = (session.max_io_size(), session.num_irq_queues());
        let depth = session.queue_depth();
        report.line(fmt!("session {size} {queues} {depth}\n"))?;
        Ok(Self { session, events })
    }

    /// The most bytes of a request.
    pub(crate) fn max_size(&self) -> u32 {
        self.session.max_io_size()
    }

    /// The number of queues. Each has a connection, and a CPU that its responses interrupt.
    pub(crate) fn queues(&self) -> NonZeroU32 {
        let queues = u32::from(self.session.num_irq_queues());
        NonZeroU32::new(queues).unwrap_or(NonZeroU32::MIN)
    }

    /// The most requests in flight. Their tags are smaller.
    pub(crate) fn in_flight(&self) -> NonZeroU32 {
        let depth = self.session.queue_depth().min(MAX_IN_FLIGHT);
        NonZeroU32::new(depth).unwrap_or(NonZeroU32::MIN)
    }

    /// Sends a request under a tag that is not in flight, with `len` bytes of `buffer`. Never
    /// sleeps.
    ///
    /// `ECONNABORTED`, `EAGAIN` and `EMSGSIZE` as of `Session::send`. After an error there is no
    /// end to wait for.
    pub(crate) fn send(
        &self,
        tag: u32,
        kind: Kind,
        queue: u32,
        header: &[u8],
        data: Option<(PageBuffer, u32)>,
    ) -> Result {
        let mut permit = self.session.permit(tag).ok_or(EBUSY)?;
        let kind = match (kind, &data) {
            (Kind::Write, None) => Kind::HeaderOnly,
            (kind, _) => kind,
        };
        if let Some((buffer, len)) = data {
            permit.scatter().ok_or(EBUSY)?.set_buffer(buffer, len)?;
        }
        let sent = self.session.send(permit, kind, queue, header);
        sent.map_err(SubmitError::to_error)
    }

    /// Waits for the end of a request that was sent, and returns its buffer. Sleeps.
    pub(crate) fn wait(&self, tag: u32) -> Result<Option<PageBuffer>> {
        let outcome = self.events.outcomes.get(tag as usize).ok_or(EINVAL)?;
        let result = outcome.wait();
        let buffer = self.buffer(tag);
        result.map(|()| buffer)
    }

    /// The buffer of a tag whose request has ended, or was not sent.
    pub(crate) fn buffer(&self, tag: u32) -> Option<PageBuffer> {
        let permit = self.session.permit(tag);
        permit.and_then(|mut permit| permit.scatter()?.take_buffer())
    }
}

impl Events {
    /// Notes that a request has ended. Any context.
    fn ended(&self, tag: u32, result: Result) {
        if let Some(outcome) = self.outcomes.get(tag as usize) {
            outcome.ended(result);
        }
    }
}

impl SessionEvents for Events {
    fn complete(&self, tag: u32, result: Result) {
        self.ended(tag, result);
    }

    fn unanswered(&self, tag: u32, error: SubmitError) {
        self.ended(tag, Err(error.to_error()));
    }

    fn module(&self) -> Result<ModuleReference> {
        (self.module)()
    }
}
