// SPDX-License-Identifier: GPL-2.0

//! Service requests: what a user asks of the server outside the IO path.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    page::buffer::PageBuffer,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion, //
    }, //
};
use rtrs_core::connection::SERVICE_CID;

use crate::{
    request::Kind,
    session::Session, //
};

/// The data of a service request; at most a page.
pub enum ServiceData<'a> {
    /// None: the header says everything.
    None,
    /// The server fills it; all of it, or the request fails.
    FromServer(&'a mut [u8]),
    /// The server gets it.
    ToServer(&'a [u8]),
}

/// Who sees to the end of the service request that is under way: [`Service::owner`].
mod owner {
    /// Its sender, who waits.
    pub(super) const SENDER: u32 = 0;
    /// Nobody: its sender was killed.
    pub(super) const NOBODY: u32 = 1;
    /// It has ended.
    pub(super) const ENDED: u32 = 2;
}

/// The one service request that a session may have under way.
#[pin_data]
pub(crate) struct Service {
    /// Lets one sender in at a time, not before the last one's request has ended. No
    /// `KillableMutex`, as another task than the one that took it may give it back.
    #[pin]
    turn: Completion,
    #[pin]
    done: Completion,
    result: Atomic<i32>,
    owner: Atomic<u32>,
}

impl Service {
    /// No request is under way.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            turn <- Completion::new(),
            done <- Completion::new(),
            result: Atomic::new(0),
            owner: Atomic::new(owner::SENDER),
        })
        .pin_chain(|service| {
            service.allow();
            Ok(())
        })
    }

    /// Lets the next sender in. Any context.
    fn allow(&self) {
        self.turn.complete();
    }

    /// The request has ended, and its permit was given back. Any context.
    pub(crate) fn finished(&self, answer: Result) {
        let errno = answer.map_or_else(|error| error.to_errno(), |()| 0);
        self.result.store(errno, ordering::Relaxed);
        if self.owner.xchg(owner::ENDED, ordering::Full) == owner::NOBODY {
            self.allow();
        } else {
            self.done.complete();
        }
    }

    /// Waits for the end of the request that was sent. `EINTR` if the task is killed before:
    /// whoever finishes the request lets the next sender in then.
    fn wait(&self) -> Result {
        if self.done.wait_killable().is_err() {
            if self.owner.xchg(owner::NOBODY, ordering::Full) == owner::SENDER {
                return Err(EINTR);
            }
            // It ended at the same time, and says so any moment.
            self.done.wait();
        }
        Ok(())
    }
}

/// How long a failed request waits before another path is looked for, in ms, and how often.
const PAUSE_MS: i64 = 20;
const MOST_PAUSES: u32 = 250;

impl ServiceData<'_> {
    /// The kind of the request, the length of its data in bytes, and memory for them, which a
    /// request is sent from or answered to.
    fn prepare(&self) -> Result<(Kind, u32, Option<PageBuffer>)> {
        Ok(match self {
            Self::None => (Kind::HeaderOnly, 0, None),
            Self::FromServer(bytes) => (Kind::Read, length(bytes)?, Some(PageBuffer::new()?)),
            Self::ToServer(bytes) => {
                let mut buffer = PageBuffer::new()?;
                buffer.write(0, bytes)?;
                (Kind::Write, length(bytes)?, Some(buffer))
            }
        })
    }
}

impl Session {
    /// Sends `header` and waits for the server's answer. Sleeps.
    ///
    /// One at a time; `ECONNABORTED` if no path is up or the last one failed meanwhile, `EINTR` if
    /// the task is killed, the error of `when_sent`, otherwise the server's error. `when_sent` runs
    /// when the turn has come, and no path comes up or is taken down before the request is sent:
    /// who waited cannot know what became of the session meanwhile. It must not sleep. If the path
    /// fails and another one comes up before the session counts as lost, the request is sent again,
    /// so the server may see it twice. A request whose task was killed still reaches the server,
    /// and before any later one. (C: `rtrs_clt_request` with
    /// `RTRS_ADMIN_CON` and `RTRS_PERMIT_WAIT`, which no signal interrupts.)
    pub fn service_request(
        &self,
        header: &[u8],
        data: ServiceData<'_>,
        mut when_sent: impl FnMut() -> Result,
    ) -> Result {
        // Before the turn: memory may wait for requests of this very session, and those for whoever
        // has to ask the server for something first.
        let (kind, len, mut buffer) = data.prepare()?;
        let service = &self.service;
        service.turn.wait_killable().map_err(|_| EINTR)?;
        let mut pauses = 0..MOST_PAUSES;
        let result = loop {
            // No new session of the server can get what was meant for the old one.
            let sent = self.without_change(|| {
                when_sent()?;
                Ok(self.send_service_request(kind, header, buffer.take(), len))
            });
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => break Err(error),
            };
            if sent.is_ok() {
                // It ends: with an answer, or when its path is taken down, which heartbeats see to.
                service.wait()?;
            }
            let answer = || kernel::error::to_result(service.result.load(ordering::Relaxed));
            let result = sent.and_then(|()| answer());
            buffer = self.take_service_buffer();
            // As long as a path counts as up nobody is told of a loss, and if another one comes up
            // before that one is taken down nobody ever is.
            let may_pass = result == Err(ECONNABORTED) && self.has_path_up();
            if !may_pass || pauses.next().is_none() {
                break result;
            }
            fsleep(Delta::from_millis(PAUSE_MS));
        };
        service.allow();
        result?;
        if let (ServiceData::FromServer(bytes), Some(buffer)) = (data, buffer) {
            buffer.read(0, bytes)?;
        }
        Ok(())
    }

    /// Sends a service request, with nobody else's under way.
    fn send_service_request(
        &self,
        kind: Kind,
        header: &[u8],
        buffer: Option<PageBuffer>,
        len: u32,
    ) -> Result {
        let tag = self.service_tag().ok_or(ECONNABORTED)?;
        let mut permit = self.any_permit(tag).ok_or(EBUSY)?;
        let table = permit.scatter().ok_or(EBUSY)?;
        // A request whose task was killed leaves its buffer behind.
        drop(table.take_buffer());
        if let Some(buffer) = buffer {
            table.set_buffer(buffer, len)?;
        }
        // Nothing is in flight, so nobody signals now. A signal that is there is of a request whose
        // task was killed.
        self.service.done.try_wait();
        self.service.owner.store(owner::SENDER, ordering::Release);
        permit
            .submit_on(kind, u32::from(SERVICE_CID), header)
            .map_err(|error| error.to_error())
    }

    /// The buffer of a service request that has ended.
    fn take_service_buffer(&self) -> Option<PageBuffer> {
        // The tag is idle again, so its permit is there.
        let mut permit = self.any_permit(self.service_tag()?)?;
        permit.scatter()?.take_buffer()
    }
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| EINVAL)
}
