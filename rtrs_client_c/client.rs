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
/// - Permits of `transport` are taken only by [`Self::request()`], for a permit of `permits` that
///   is out, and by a group that has taken all permits of `permits`.
/// - So the table of a tag is only used by requests, each of which fills or empties the table
///   first.
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

    /// The session. Not for requests.
    pub(crate) fn transport(&self) -> &Arc<Session> {
        &self.transport
    }

    /// The receiver of the session's events.
    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Sends a request under `permit`. `confirmation` is called later, unless this fails. Any
    /// context.
    ///
    /// `fill` describes the data of the request in the table, which is empty before. If `fill`
    /// leaves the table empty, the request is sent without data. Errors are those of
    /// `rtrs_clt_request()`, and of `fill`.
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
        // A session has queues.
        let queue = mine.cpu().checked_rem(irq_queues).ok_or(EINVAL)?;
        // The request may be confirmed before the transport returns.
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
