// SPDX-License-Identifier: GPL-2.0

//! The requests that the transport has, and how they end: by the server's response, without one
//! when the paths are lost, or because they take too long.
//!
//! A request that takes too long is ended here while the server is still at work on it: it *is
//! unanswered*. Its number stays in use until the server has answered, and until then its device
//! sends nothing: no later request can be on the disk before it. The tag is given back to the block
//! layer, though, and may go to a request of another disk of the session. So the session keeps a
//! few numbers that are no tags.

use kernel::sync::Arc;
use kernel_ext::{
    block::{
        mq::{
            expired::ExpiredRequest,
            request::OwnedRequest,
            request_table::RequestTable, //
        },
        status::Status, //
    },
    mm::without_io,
    page::buffer::PageBuffer,
    prelude::*,
    sync::{
        box_slot::BoxSlot,
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    }, //
};
use rtrs_client::{
    Permit,
    Session,
    SubmitError, //
};

use crate::remote_device::RemoteDevice;

/// A request that has taken as long as its device allows.
type Expired<'a, S> = ExpiredRequest<'a, RemoteDevice, S>;

/// The most spare numbers of a session.
const MAX_SPARES: u32 = 16;
/// Of so many numbers one is spare.
const NUMBERS_PER_SPARE: u32 = 16;

/// The requests of a session that the transport has, by their numbers.
#[pin_data]
pub(crate) struct InFlight {
    table: RequestTable<RemoteDevice>,
    /// The devices of unanswered requests, by the numbers of the requests.
    unanswered: KVVec<BoxSlot<Arc<RemoteDevice>>>,
    /// The number of tags, which come first.
    tags: u32,
    /// Held while a spare number is taken, and while a request is abandoned: a number is not taken
    /// for another request meanwhile.
    #[pin]
    spares: SpinLockIrq<()>,
}

impl InFlight {
    /// An empty table for numbers below `queue_depth`. Sleeps.
    pub(crate) fn new(queue_depth: u32) -> Result<Arc<Self>> {
        let spares = MAX_SPARES.min(queue_depth.div_euclid(NUMBERS_PER_SPARE));
        // Less than it is.
        let tags = queue_depth.wrapping_sub(spares);
        let mut unanswered = KVVec::with_capacity(usize::try_from(queue_depth)?, GFP_KERNEL)?;
        for _ in 0..queue_depth {
            unanswered.push(BoxSlot::empty(), GFP_KERNEL)?;
        }
        Arc::pin_init(
            try_pin_init!(Self {
                table: RequestTable::new(tags, spares)?,
                unanswered,
                tags,
                spares <- new_spinlock_irq!((), "InFlight::spares"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The number of tags, which is that of requests.
    pub(crate) fn tags(&self) -> u32 {
        self.tags
    }

    /// Puts a request in the place of its tag. Any context. The handle comes back if there is none.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        request: OwnedRequest<RemoteDevice>,
    ) -> Result<(), OwnedRequest<RemoteDevice>> {
        self.table.insert(request)
    }

    /// Takes a spare number for a request, with its permit, to which `set_data` gives the data. Any
    /// context. The handle comes back if no number is free.
    pub(crate) fn insert_spare<'a>(
        &self,
        transport: &'a Session,
        mut request: OwnedRequest<RemoteDevice>,
        set_data: impl Fn(&mut Permit<'a>, &mut OwnedRequest<RemoteDevice>) -> Result,
    ) -> Result<(u32, Permit<'a>), OwnedRequest<RemoteDevice>> {
        let _spares = self.spares.lock();
        for number in self.tags..transport.queue_depth() {
            let Some(mut permit) = transport.permit(number) else {
                continue;
            };
            if set_data(&mut permit, &mut request).is_err() {
                continue;
            }
            match self.table.insert_spare(number, request) {
                Ok(()) => return Ok((number, permit)),
                Err(refused) => request = refused,
            }
        }
        Err(request)
    }

    /// Takes the request of this number out. Any context.
    #[inline]
    pub(crate) fn take(&self, number: u32) -> Option<OwnedRequest<RemoteDevice>> {
        self.table.take(number)
    }

    /// The server has responded to a request; see [`rtrs_client::SessionEvents::complete`].
    #[inline]
    pub(crate) fn complete(&self, number: u32, result: Result) {
        let Some(request) = self.table.take(number) else {
            return;
        };
        if let Err(error) = result {
            request.disk().io_failed(request.op(), error);
        }
        request.complete(Status::from_result(result));
    }

    /// The server has not responded; see [`rtrs_client::SessionEvents::unanswered`].
    pub(crate) fn unanswered(&self, number: u32, error: SubmitError) {
        let Some(request) = self.table.take(number) else {
            return;
        };
        let result = if request.disk().waits_after(error) {
            // It comes back through `queue_rq`, where it gets a new message: the server may know
            // the device by another number by then.
            request.requeue()
        } else {
            Err(request)
        };
        if let Err(request) = result {
            let error = error.to_error();
            request.disk().io_failed(request.op(), error);
            request.complete(Status::from_error(error));
        }
    }

    /// A request has been in flight for as long as its device allows; returns whether it was ended.
    /// Sleeps, and does not wait for IO.
    pub(crate) fn expired<S>(&self, transport: &Session, request: &Expired<'_, S>) -> bool {
        let device = request.disk();
        let timeout = device.io_timeout_ms();
        if timeout == 0 {
            return false;
        }
        let kept = without_io(|| -> Result<_> {
            let sink = PageBuffer::new()?;
            Ok((sink, KBox::new(Arc::from(device), GFP_KERNEL)?))
        });
        let Ok((sink, kept)) = kept else {
            return false;
        };
        let (op, sector, bytes) = (request.op(), request.sector(), request.bytes());
        let Some(number) = self.abandon(transport, request, sink, kept) else {
            return false;
        };
        device.log_timeout(op, sector, bytes, timeout);
        if let Some(request) = self.table.take_expired(number, request) {
            request.end(Status::TIMEOUT);
        }
        true
    }

    /// Has the transport abandon a request, whose device is `kept`; returns its number if it has.
    fn abandon<S>(
        &self,
        transport: &Session,
        request: &Expired<'_, S>,
        sink: PageBuffer,
        kept: KBox<Arc<RemoteDevice>>,
    ) -> Option<u32> {
        let _spares = self.spares.lock();
        // The number is that of this request until the lock is dropped: a tag is not used again as
        // long as `request` is there, and no spare number is taken.
        let number = self.table.number_of(request)?;
        let place = self.unanswered.get(number as usize)?;
        let committed = || {
            kept.timed_out();
            // The number was free, so nothing was there.
            let _ = place.put(kept);
        };
        transport.abandon(number, sink, committed).then_some(number)
    }

    /// The session is closed, so that nothing is answered any more. Any context.
    pub(crate) fn close(&self) {
        for place in &self.unanswered {
            drop(place.take());
        }
    }

    /// The server is not at work any more on an unanswered request; see
    /// [`rtrs_client::SessionEvents::abandoned_ended`].
    pub(crate) fn abandoned_ended(&self, number: u32) {
        let place = self.unanswered.get(number as usize);
        if let Some(device) = place.and_then(BoxSlot::take) {
            device.answered();
        }
    }
}
