// SPDX-License-Identifier: GPL-2.0

//! A session of a user in C.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::Handle,
    prelude::*,
    scatterlist::ScatterTable, //
};
use rtrs_client::{
    Kind,
    OpenParams,
    Session, //
};

use crate::{
    callbacks::{
        Confirmation,
        LinkCallback, //
    },
    events::Events,
    permits::Permits, //
};

/// A session of a user in C. Dropping it closes it.
///
/// # Invariants
///
/// Nothing takes a permit of `transport` but [`Self::request()`], for one of `permits` that is out,
/// or the caller that has taken all of them. So the table of a tag is only used by requests, each
/// of which fills or empties it first.
pub(crate) struct Client {
    transport: Arc<Session>,
    permits: Arc<Permits<Confirmation>>,
    events: Arc<Events>,
}

impl Client {
    /// Connects a session. Sleeps. Errors as of [`Session::open()`].
    pub(crate) fn open(params: &OpenParams<'_>, link: LinkCallback) -> Result<Self> {
        let events = Arc::new(Events::new(link), GFP_KERNEL)?;
        let transport = Session::open(params, events.clone())?;
        let permits = Permits::new(transport.queue_depth()).inspect_err(|_| transport.close())?;
        events.permits.populate(permits.clone());
        // INVARIANT: The session has just been made.
        Ok(Self {
            transport,
            permits,
            events,
        })
    }

    /// Confirms all requests, and waits until all permits were given back. Sleeps.
    pub(crate) fn close(&self) {
        self.transport.close();
        self.permits.wait_for_all();
    }

    /// The permits.
    pub(crate) fn permits(&self) -> &Permits<Confirmation> {
        &self.permits
    }

    /// The session, for what is no request.
    pub(crate) fn transport(&self) -> &Arc<Session> {
        &self.transport
    }

    /// What the session tells.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Sends a request under `permit`; `confirmation` follows, unless this fails. Any context.
    ///
    /// `fill` describes its data in the table, which is empty; a request of which nothing is there
    /// then is sent without data. Errors are those of `rtrs_clt_request()`, and of `fill`.
    pub(crate) fn request(
        &self,
        permit: Handle,
        kind: Kind,
        header: &[u8],
        confirmation: Confirmation,
        fill: impl FnOnce(&mut ScatterTable) -> Result,
    ) -> Result {
        let mine = self.permits.use_for_request(permit)?;
        let tag = mine.tag();
        // By the type invariant the tag's last request has ended.
        let mut right = self.transport.permit(tag).ok_or(EBUSY)?;
        let table = right.scatter().ok_or(EBUSY)?;
        table.clear();
        fill(table).inspect_err(|_| table.clear())?;
        if mine.is_by_service_connection() {
            right.use_service_connection();
        }
        let irq_queues = u32::from(self.transport.num_irq_queues());
        // There is one for each CPU, so at least one.
        let queue = mine.cpu().checked_rem(irq_queues).ok_or(EINVAL)?;
        // It may be confirmed before the transport returns.
        mine.begin(confirmation);
        let sent = (self.transport).send_or_return(right, kind, queue, header);
        sent.map_err(|error| error.to_error())
            .inspect_err(|_| self.permits.not_sent(tag))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.transport.close();
    }
}
