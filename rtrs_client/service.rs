// SPDX-License-Identifier: GPL-2.0

//! Service requests: what a user asks of the server outside the IO path.

use kernel::prelude::*;
use kernel_ext::{
    atomic::ordering,
    page_buffer::PageBuffer, //
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

impl Session {
    /// Sends `header` and waits for the server's answer. Sleeps.
    ///
    /// One at a time; `ECONNABORTED` if no path is up or the last one failed meanwhile, otherwise
    /// the server's error. (C: `rtrs_clt_request` with `RTRS_ADMIN_CON` and `RTRS_PERMIT_WAIT`.)
    pub fn service_request(&self, header: &[u8], data: ServiceData<'_>) -> Result {
        let _one = self.service.lock();
        let tag = self.service_tag().ok_or(ECONNABORTED)?;
        let mut permit = self.any_permit(tag).ok_or(EBUSY)?;
        let table = permit.scatter().ok_or(EBUSY)?;
        let kind = match &data {
            ServiceData::None => Kind::HeaderOnly,
            ServiceData::FromServer(bytes) => {
                table.set_buffer(PageBuffer::new()?, length(bytes)?)?;
                Kind::Read
            }
            ServiceData::ToServer(bytes) => {
                let mut buffer = PageBuffer::new()?;
                buffer.write(0, bytes)?;
                table.set_buffer(buffer, length(bytes)?)?;
                Kind::Write
            }
        };
        self.service_done.reinit();
        let sent = permit
            .submit_on(kind, u32::from(SERVICE_CID), header)
            .map_err(|error| error.to_error());
        if sent.is_ok() {
            // It ends: with an answer, or when its path is taken down, which heartbeats see to.
            self.service_done.wait();
        }
        // The tag is idle again, so its permit is there.
        let mut permit = self.any_permit(tag).ok_or(EBUSY)?;
        let buffer = permit.scatter().and_then(|table| table.take_buffer());
        sent?;
        kernel::error::to_result(self.service_result.load(ordering::Relaxed))?;
        if let (ServiceData::FromServer(bytes), Some(buffer)) = (data, buffer) {
            buffer.read(0, bytes)?;
        }
        Ok(())
    }

    /// The service request is finished. Any context.
    pub(crate) fn service_finished(&self, answer: Result) {
        let errno = match answer {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        };
        self.service_result.store(errno, ordering::Relaxed);
        self.service_done.complete();
    }
}

fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| EINVAL)
}
