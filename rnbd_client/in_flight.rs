// SPDX-License-Identifier: GPL-2.0

//! The requests that the transport has, and how they end: by the server's response, without a
//! response when the paths are lost, or because they take too long.
//!
//! A request that takes too long is ended here while the server is still at work on it: the request
//! is *abandoned* (`io_unanswered` counts such requests). Its number stays in use until the server
//! has responded. Until then its device sends nothing, so no later request can be on the disk
//! before it. The tag goes back to the block layer, though, and may go to a request of another disk
//! of the session. That request *moves*: the transport has it under any other number that is free.
//! The table here always names requests by their tags.

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
        atomic::{
            ordering,
            Atomic, //
        },
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

use crate::{
    latency,
    remote_device::RemoteDevice, //
};

/// A request that has taken as long as its device allows.
type Expired<'a, S> = ExpiredRequest<'a, RemoteDevice, S>;

/// At most one in this many numbers of a session is that of an abandoned request.
const ABANDONED_SHARE: u32 = 2;
/// The same for the abandoned requests of one device.
const ABANDONED_SHARE_OF_DEVICE: u32 = 4;

/// No request has moved to a number.
const NO_TAG: u32 = u32::MAX;

/// The state of a number.
struct Number {
    /// The device of the abandoned request of this number.
    abandoned: BoxSlot<Arc<RemoteDevice>>,
    /// The tag of the request that has moved to this number; [`NO_TAG`] if there is none.
    moved: Atomic<u32>,
}

/// The requests of a session that the transport has, by their tags.
#[pin_data]
pub(crate) struct InFlight {
    table: RequestTable<RemoteDevice>,
    numbers: KVVec<Number>,
    /// How many requests are abandoned.
    abandoned: Atomic<u32>,
    /// Where the search for a free number begins: at the number that a moved request has left last,
    /// or behind the number to which a request has moved last.
    first: Atomic<u32>,
    /// Held while a request moves, and while a request is abandoned: no request moves meanwhile.
    #[pin]
    moving: SpinLockIrq<()>,
}

impl InFlight {
    /// Makes an empty table for `queue_depth` requests. Sleeps.
    pub(crate) fn new(queue_depth: u32) -> Result<Arc<Self>> {
        let mut numbers = KVVec::with_capacity(usize::try_from(queue_depth)?, GFP_KERNEL)?;
        for _ in 0..queue_depth {
            let number = Number {
                abandoned: BoxSlot::empty(),
                moved: Atomic::new(NO_TAG),
            };
            numbers.push(number, GFP_KERNEL)?;
        }
        Arc::pin_init(
            try_pin_init!(Self {
                table: RequestTable::new(queue_depth)?,
                numbers,
                abandoned: Atomic::new(0),
                first: Atomic::new(0),
                moving <- new_spinlock_irq!((), "InFlight::moving"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The requests by their tags.
    #[inline(always)]
    pub(crate) fn table(&self) -> &RequestTable<RemoteDevice> {
        &self.table
    }

    /// Returns a permit of another number for the request of `tag`, to be used by
    /// [`Session::send_moved`]. Any context. `None` if no number is free.
    pub(crate) fn other_permit<'a>(&self, transport: &'a Session, tag: u32) -> Option<Permit<'a>> {
        let _moving = self.moving.lock();
        // The constructor was asked for this many.
        let count = self.numbers.len() as u32;
        let first = self.first.load(ordering::Relaxed).min(count);
        for index in Iterator::chain(first..count, 0..first) {
            let Some(permit) = transport.permit_if_free(index) else {
                continue;
            };
            let number = self.numbers.get(index as usize)?;
            number.moved.store(tag, ordering::Relaxed);
            self.first.store(index.wrapping_add(1), ordering::Relaxed);
            return Some(permit);
        }
        None
    }

    /// Returns the tag of the request that has moved to `number`, and is about to end. The next
    /// request that moves goes to this number, if possible: at any other number it would be in the
    /// way of the request of that tag.
    pub(crate) fn tag_of_moved(&self, number: u32) -> u32 {
        let Some(place) = self.numbers.get(number as usize) else {
            return NO_TAG;
        };
        self.first.store(number, ordering::Relaxed);
        place.moved.xchg(NO_TAG, ordering::Relaxed)
    }

    /// Takes the request of this tag out. Any context.
    #[inline]
    pub(crate) fn take(&self, tag: u32) -> Option<OwnedRequest<RemoteDevice>> {
        self.table.take(tag)
    }

    /// Ends a request to which the server has responded; see
    /// [`rtrs_client::SessionEvents::complete`].
    #[inline]
    pub(crate) fn complete(&self, tag: u32, result: Result) {
        let Some(request) = self.table.take(tag) else {
            return;
        };
        if let Err(error) = result {
            request.disk().io_failed(request.op(), error);
        }
        latency::responded(request).complete(Status::from_result(result));
    }

    /// Gives back or fails a request that got no response; see
    /// [`rtrs_client::SessionEvents::unanswered`].
    pub(crate) fn ended_without_response(&self, tag: u32, error: SubmitError) {
        let Some(request) = self.table.take(tag) else {
            return;
        };
        let result = if request.disk().waits_after(error, request.is_fail_fast()) {
            // The request comes back through `queue_rq`, where it gets a new message: by then the
            // server may know the device by another number.
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

    /// Ends a request that has been in flight for as long as its device allows; returns whether it
    /// was ended. Sleeps, and does not wait for IO.
    pub(crate) fn expired<S>(&self, transport: &Session, request: &Expired<'_, S>) -> bool {
        let device = request.disk();
        let (timeout, elapsed) = (device.io_timeout_ms(), request.elapsed_ms());
        if timeout == 0 {
            return false;
        }
        if elapsed < timeout {
            // The request began when another time was set.
            request.begin_anew(timeout);
            return false;
        }
        if !self.may_abandon(&device) {
            device.log_too_many();
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
        let Some((request, is_abandoned)) = self.abandon(transport, request, sink, kept) else {
            return false;
        };
        if is_abandoned {
            request.disk().log_timeout(op, sector, bytes, elapsed);
        }
        request.end(Status::TIMEOUT);
        true
    }

    /// Takes out a request that is to be ended. The second result is true if the transport has
    /// abandoned the request; then the request's number keeps the device, `kept`. Otherwise the
    /// event that tells of the request's end has just come, and has not found the request.
    fn abandon<S>(
        &self,
        transport: &Session,
        request: &Expired<'_, S>,
        sink: PageBuffer,
        kept: KBox<Arc<RemoteDevice>>,
    ) -> Option<(OwnedRequest<RemoteDevice>, bool)> {
        // No request moves until this is dropped. So the number that has the request keeps it, or
        // is free, or gets a request that did not move.
        let _moving = self.moving.lock();
        let tag = request.tag();
        if tag == NO_TAG {
            // The request was just given back to the block layer.
            return None;
        }
        // Without a number the request cannot be abandoned now, or the event of its end comes.
        self.number_of(transport, tag)?;
        if !self.may_abandon(&kept) {
            kept.log_too_many();
            return None;
        }
        // Taken out first: otherwise its tag could go to another request.
        let taken = self.table.take_expired(tag, request)?;
        if let Some((number, moved)) = self.number_of(transport, tag) {
            let committed = || self.add_abandoned(number, kept);
            if transport.abandon(number, moved, sink, committed) {
                return Some((taken, true));
            }
        }
        // The transport has told of the request's end, or is about to. If it has told, the event
        // has found nothing in the table, and the request does not go back there.
        let refused = self.table.put_back(taken).err()?;
        Some((refused, false))
    }

    /// The number under which the transport has the request of `tag`, which it can abandon, and
    /// whether the request has moved there. Under the lock.
    fn number_of(&self, transport: &Session, tag: u32) -> Option<(u32, bool)> {
        if transport.can_abandon(tag, false) {
            return Some((tag, false));
        }
        let mut moved = self.numbers_moved_to(tag);
        let number = moved.find(|number| transport.can_abandon(*number, true))?;
        Some((number, true))
    }

    /// The numbers to which a request of `tag` has moved, also if it was not sent after all.
    fn numbers_moved_to(&self, tag: u32) -> impl Iterator<Item = u32> + '_ {
        let numbers = (0..).zip(&self.numbers);
        numbers
            .filter(move |(_, number)| number.moved.load(ordering::Relaxed) == tag)
            .map(|(index, _)| index)
    }

    /// Whether one more request of `device` may be abandoned. Without the lock that may change at
    /// any moment.
    fn may_abandon(&self, device: &RemoteDevice) -> bool {
        let depth = self.numbers.len() as u32;
        let limit = |share| depth.div_euclid(share).max(1);
        self.abandoned.load(ordering::Relaxed) < limit(ABANDONED_SHARE)
            && device.unanswered() < limit(ABANDONED_SHARE_OF_DEVICE)
    }

    /// Counts the request of `number`, which is about to be abandoned, for `device`. Under the
    /// lock.
    fn add_abandoned(&self, number: u32, device: KBox<Arc<RemoteDevice>>) {
        let Some(number) = self.numbers.get(number as usize) else {
            return;
        };
        self.abandoned.add(1, ordering::Relaxed);
        device.timed_out();
        // The slot was empty: the number had no abandoned request.
        let _ = number.abandoned.put(device);
    }

    /// Lets go of the devices: the session is closed, so no response comes any more. Any context.
    pub(crate) fn close(&self) {
        for number in &self.numbers {
            drop(number.abandoned.take());
        }
    }

    /// Uncounts an abandoned request, at which the server is not at work any more; see
    /// [`rtrs_client::SessionEvents::abandoned_ended`].
    pub(crate) fn abandoned_ended(&self, number: u32) {
        let Some(number) = self.numbers.get(number as usize) else {
            return;
        };
        number.moved.store(NO_TAG, ordering::Relaxed);
        if let Some(device) = number.abandoned.take() {
            self.abandoned.add(u32::MAX, ordering::Relaxed);
            device.answered();
        }
    }
}
