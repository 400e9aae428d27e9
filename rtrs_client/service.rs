// SPDX-License-Identifier: GPL-2.0

//! Service requests: a user's questions to the server outside the IO path.

use kernel::{
    sync::rcu,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    page::buffer::PageBuffer,
    prelude::*, //
};

use crate::{
    requests::{
        request::Kind,
        submit::SubmissionRoom, //
    },
    session::Session,
    submission::Submission, //
};

/// The data of a service request, at most a page.
pub enum ServiceData<'a> {
    /// No data: the header says everything.
    None,
    /// The server fills these bytes. If it does not fill all, the request fails.
    FromServer(&'a mut [u8]),
    /// The server gets these bytes.
    ToServer(&'a [u8]),
}

/// The pause before another path is looked for after a failure, in ms, and the most pauses.
const PAUSE_MS: i64 = 20;
const MOST_PAUSES: u32 = 250;

impl ServiceData<'_> {
    /// The kind of the request, the length of its data in bytes, and a buffer that the data is sent
    /// from or the response goes to.
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
    /// Sends `header` and waits for the server's response. Sleeps. One request is in flight at a
    /// time.
    ///
    /// `ECONNABORTED` if no path is up or the last path failed meanwhile, `EINTR` if the task is
    /// killed, the error of `when_sent`, otherwise the server's error.
    ///
    /// `when_sent` runs when the turn of this request has come; no path comes up or is taken down
    /// before the request is sent. So the caller can check there what happened to the session while
    /// it waited. `when_sent` must not sleep.
    ///
    /// If the path fails and another path comes up before the session counts as lost, the request
    /// is sent again, so the server may see it twice. A request whose task was killed still reaches
    /// the server, and before any later request. (C: `rtrs_clt_request` with `RTRS_ADMIN_CON` and
    /// `RTRS_PERMIT_WAIT`, which no signal interrupts.)
    pub fn service_request(
        &self,
        header: &[u8],
        data: ServiceData<'_>,
        mut when_sent: impl FnMut() -> Result,
    ) -> Result {
        // Allocated before the turn is taken: the allocation may wait for requests of this very
        // session, and these requests for a task that has to ask the server first.
        let (kind, len, mut buffer) = data.prepare()?;
        let service = &self.tags.service;
        service.enter()?;
        let mut pauses = 0..MOST_PAUSES;
        let result = loop {
            // A new session of the server cannot get a request that was meant for the old session.
            let sent = self.availability.without_change(|| {
                when_sent()?;
                Ok(self.send_service_request(kind, header, buffer.take(), len))
            });
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => break Err(error),
            };
            if sent.is_ok() {
                // The request ends: with a response, or when its path is taken down. Heartbeats
                // make sure of that.
                service.wait()?;
            }
            let result = sent.and_then(|()| service.result());
            buffer = self.take_service_buffer();
            // As long as a path counts as up, the user is not told of a loss. If another path comes
            // up before that path is taken down, the user is never told. So the request is sent
            // again.
            let may_pass = result == Err(ECONNABORTED) && self.availability.has_path_up();
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

    /// Sends a service request. No other service request is in flight.
    fn send_service_request(
        &self,
        kind: Kind,
        header: &[u8],
        buffer: Option<PageBuffer>,
        len: u32,
    ) -> Result {
        let mut permit = self.service_permit().ok_or(ECONNABORTED)?;
        let table = permit.scatter().ok_or(EBUSY)?;
        // A request whose task was killed leaves its buffer behind.
        drop(table.take_buffer());
        if let Some(buffer) = buffer {
            table.set_buffer(buffer, len)?;
        }
        self.tags.service.begin();
        let guard = rcu::read_lock();
        let mut room = SubmissionRoom::EMPTY;
        let mut submission = Submission::new(self, &guard, &mut room);
        submission
            .add(permit, kind, 0, header)
            .map_err(|error| error.to_error())
    }

    /// The buffer of a service request that has ended.
    fn take_service_buffer(&self) -> Option<PageBuffer> {
        // The tag is free again, so its permit is there.
        self.service_permit()?.scatter()?.take_buffer()
    }
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| EINVAL)
}
