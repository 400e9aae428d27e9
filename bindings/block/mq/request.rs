// SPDX-License-Identifier: GPL-2.0

//! Requests of the block layer, while the driver owns them. Would extend
//! `kernel::block::mq::request`.
//!
//! # Ownership
//!
//! 1. The block layer gives a started request to `queue_rq` as an [`OwnedRequest`]. A request has
//!    one such handle at a time. The handle cannot be copied, and only consuming the handle ends
//!    the request.
//! 2. [`OwnedRequest::end`] returns the request to the block layer. Dropping the handle does so
//!    with `IO_ERROR`, and [`OwnedRequest::complete`] on the CPU from which the request came.
//! 3. In `queue_rq`, [`OwnedRequest::refuse`] hands the request back, to be tried again or to fail.
//! 4. A [`DataHold`] means that a device may still be using the request's pages. While there is a
//!    hold, ending only notes the status, and the request is ended when the hold is dropped. So in
//!    no order of calls does a device access pages that were given back.

use crate::{
    bindings,
    block::status::Status,
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::{
        needs_drop,
        ManuallyDrop, //
    },
    ptr::NonNull, //
};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Flush the write cache.
    Flush,
    /// Discard sectors.
    Discard,
    /// Erase sectors for good.
    SecureErase,
    /// Write zeroes.
    WriteZeroes,
    /// Any other operation; its number in C.
    Other(u8),
}

/// No hold, and no status noted.
const IDLE: u32 = 0;
/// There is a hold.
const HELD: u32 = 1;
/// There is a hold, and the request is to be ended with the status in the bits above.
const ENDED: u32 = 2;
/// The position of the status of [`ENDED`].
const STATUS_SHIFT: u32 = 8;

/// The private area behind each request.
#[repr(C)]
pub(super) struct Private {
    /// `IDLE`, `HELD` or `ENDED` with a status.
    hold: Atomic<u32>,
    /// The argument of [`OwnedRequest::complete`].
    completion: Atomic<u32>,
}

/// The private area of a request.
///
/// # Safety
///
/// `raw` must be a request of a tag set of this crate, and must not have been exited.
unsafe fn private<'a>(raw: *mut bindings::request) -> &'a Private {
    // SAFETY: The private area directly follows the request, and is initialised until the request
    // is exited.
    unsafe { &*raw.add(1).cast::<Private>() }
}

/// Prepares the private area of a request.
///
/// # Safety
///
/// The memory behind `raw` must have room for a `Private`, and be unused.
pub(super) unsafe fn init_private(raw: *mut bindings::request) {
    const {
        // The area directly follows the request, and its fields need no drop.
        assert!(align_of::<Private>() <= align_of::<bindings::request>());
        assert!(!needs_drop::<Private>());
    }
    let private = Private {
        hold: Atomic::new(IDLE),
        completion: Atomic::new(0),
    };
    // SAFETY: There is room for a `Private` behind the request, aligned by the first check above.
    // By the safety requirement that memory is unused.
    unsafe { raw.add(1).cast::<Private>().write(private) };
}

/// The times of a request, in the clock of [`monotonic_ns()`](crate::time::monotonic_ns).
#[derive(Clone, Copy)]
pub struct RequestTimes {
    /// The time at which the request began: before it waited for its tag, for an I/O scheduler, or
    /// to be offered to the driver again. The same as `issued_ns` if the block layer has not noted
    /// this time.
    pub begun_ns: u64,
    /// The time at which the driver got the request last; not before `begun_ns`.
    pub issued_ns: u64,
}

/// A request of the block layer that the driver owns.
///
/// Dropping the handle ends the request with [`Status::IO_ERROR`]. Any context.
///
/// # Invariants
///
/// `raw` is a started request of a disk with data of type `D`, its private area is initialised, and
/// this is the only handle that may end it.
#[must_use = "a request that is dropped fails"]
pub struct OwnedRequest<D> {
    raw: NonNull<bindings::request>,
    _disk_data: PhantomData<fn() -> D>,
}

// SAFETY: A request may be ended in any task.
unsafe impl<D> Send for OwnedRequest<D> {}

// SAFETY: Through a shared reference only fields that do not change while the driver owns the
// request are read, and the private area is atomic.
unsafe impl<D> Sync for OwnedRequest<D> {}

/// Reads one field of the C structure of an [`OwnedRequest`]. No reference to the whole structure
/// is made, as the block layer may be writing to other fields.
macro_rules! read {
    ($request:expr, $field:ident) => {
        // SAFETY: By the type invariant the request is live. The block layer does not write to the
        // fields that are read in this file while the driver owns the request.
        unsafe { (*$request.raw.as_ptr()).$field }
    };
}

/// The operation in `cmd_flags`.
#[inline]
pub(super) fn op_of(cmd_flags: u32) -> Op {
    match cmd_flags & bindings::RNBD_REQ_OP_MASK {
        bindings::req_op_REQ_OP_READ => Op::Read,
        bindings::req_op_REQ_OP_WRITE => Op::Write,
        bindings::req_op_REQ_OP_FLUSH => Op::Flush,
        bindings::req_op_REQ_OP_DISCARD => Op::Discard,
        bindings::req_op_REQ_OP_SECURE_ERASE => Op::SecureErase,
        bindings::req_op_REQ_OP_WRITE_ZEROES => Op::WriteZeroes,
        other => Op::Other(other as u8),
    }
}

impl<D> OwnedRequest<D> {
    /// Takes ownership of a request.
    ///
    /// # Safety
    ///
    /// `raw` must not be null and must meet the type invariant, and no other code may end the
    /// request.
    pub(super) unsafe fn from_raw(raw: *mut bindings::request) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            // SAFETY: By the safety requirement the pointer is not null.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _disk_data: PhantomData,
        }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::request {
        self.raw.as_ptr()
    }

    /// Gives up ownership without ending the request.
    pub(super) fn into_raw(self) -> *mut bindings::request {
        ManuallyDrop::new(self).raw.as_ptr()
    }

    fn private(&self) -> &Private {
        // SAFETY: A request of a tag set of this crate has a private area, which `init_request`
        // prepared. The request is not exited while the driver owns it, since freeing the set waits
        // for its disks' requests.
        unsafe { private(self.raw.as_ptr()) }
    }

    /// The operation.
    #[inline]
    pub fn op(&self) -> Op {
        op_of(read!(self, cmd_flags))
    }

    fn has_flag(&self, flag: u32) -> bool {
        read!(self, cmd_flags) & flag != 0
    }

    /// Whether a task waits for the request: a read, or a synchronous write (C: `op_is_sync`).
    #[inline]
    pub fn is_sync(&self) -> bool {
        self.op() == Op::Read
            || self.has_flag(
                bindings::RNBD_REQ_SYNC | bindings::RNBD_REQ_FUA | bindings::RNBD_REQ_PREFLUSH,
            )
    }

    /// Whether the data must be on the medium before the request ends.
    #[inline]
    pub fn is_fua(&self) -> bool {
        self.has_flag(bindings::RNBD_REQ_FUA)
    }

    /// Whether the write cache must be flushed before the request.
    #[inline]
    pub fn is_preflush(&self) -> bool {
        self.has_flag(bindings::RNBD_REQ_PREFLUSH)
    }

    /// Whether zeroed blocks must stay allocated.
    #[inline]
    pub fn is_nounmap(&self) -> bool {
        self.has_flag(bindings::RNBD_REQ_NOUNMAP)
    }

    /// Whether the request must fail rather than wait while the disk is unreachable (C:
    /// `blk_noretry_request`). On such a failure md and dm go on with another disk, and a read
    /// ahead is left out.
    #[inline]
    pub fn is_fail_fast(&self) -> bool {
        self.has_flag(bindings::RNBD_REQ_FAILFAST)
    }

    /// The first sector, of 512 bytes.
    #[inline]
    pub fn sector(&self) -> u64 {
        read!(self, __sector)
    }

    /// The length in bytes; zero for a flush.
    #[inline]
    pub fn bytes(&self) -> u32 {
        read!(self, __data_len)
    }

    /// The IO priority; zero if there is none.
    #[inline]
    pub fn priority(&self) -> u16 {
        let bio = read!(self, bio);
        if bio.is_null() {
            return 0;
        }
        // SAFETY: The bios of a request live until it is ended.
        unsafe { (*bio).bi_ioprio }
    }

    /// The times that the block layer has noted; `None` without
    /// [`TimedRequests`](super::timed_requests::TimedRequests) of the disk. Any context.
    pub fn times(&self) -> Option<RequestTimes> {
        // The time is zero if it was not noted.
        let issued_ns = read!(self, io_start_time_ns);
        if issued_ns == 0 {
            return None;
        }
        // SAFETY: By the type invariant the request is live. The block layer does not write to the
        // fields that the function reads while the driver owns the request.
        let begun_ns = unsafe { bindings::rnbd_helper_request_begun_ns(self.raw.as_ptr()) };
        Some(RequestTimes {
            begun_ns: if begun_ns == 0 {
                issued_ns
            } else {
                begun_ns.min(issued_ns)
            },
            issued_ns,
        })
    }

    /// The most segments that the data can have.
    #[inline]
    pub fn segments(&self) -> u16 {
        read!(self, nr_phys_segments)
    }

    /// The tag: unique among the requests of the tag set that the driver owns, and less than the
    /// queue depth of the set.
    #[inline]
    pub fn tag(&self) -> u32 {
        // A request that was given to `queue_rq` has a tag, which is not negative.
        read!(self, tag) as u32
    }

    /// The tag set.
    #[inline]
    pub(super) fn set(&self) -> *mut bindings::blk_mq_tag_set {
        let queue = read!(self, q);
        // SAFETY: The queue lives as long as its requests, and its tag set does not change.
        unsafe { (*queue).tag_set }
    }

    /// The disk's data.
    pub fn disk(&self) -> &D {
        let queue = read!(self, q);
        // SAFETY: The queue lives as long as its requests. Its data is that of `HwQueue::disk`,
        // which stays until all requests of the disk have ended.
        unsafe { &*(*queue).queuedata.cast::<D>() }
    }

    /// Returns the request to the block layer.
    ///
    /// Any context; in interrupt context [`Self::complete`] is better. If a device may still be
    /// using the request's pages, the request is returned when the device has finished.
    #[inline]
    pub fn end(self, status: Status) {
        let this = ManuallyDrop::new(self);
        let hold = &this.private().hold;
        if hold.load(ordering::Acquire) == HELD {
            let noted = ENDED | u32::from(status.as_raw()) << STATUS_SHIFT;
            if hold.cmpxchg(HELD, noted, ordering::Full).is_ok() {
                // Dropping the hold ends the request.
                return;
            }
        }
        // SAFETY: By the type invariant the request is started and ours to end; the handle has
        // been given up above.
        unsafe { bindings::blk_mq_end_request(this.raw.as_ptr(), status.as_raw()) };
    }

    /// Hands the finished request to [`Operations::complete`], on the CPU from which it came or on
    /// a near one. Any context.
    ///
    /// [`Operations::complete`]: super::operations::Operations::complete
    #[inline]
    pub fn complete(self, status: Status) {
        let status = u32::from(status.as_raw());
        self.private().completion.store(status, ordering::Relaxed);
        // SAFETY: By the type invariant the request is started and ours. The ownership goes to the
        // callback.
        unsafe { bindings::blk_mq_complete_request(self.into_raw()) };
    }

    /// The argument of [`Self::complete`].
    pub(super) fn completion_status(&self) -> Status {
        Status::from_raw(self.private().completion.load(ordering::Relaxed) as u8)
    }

    /// Makes the return value of `queue_rq` for a request that the driver does not take. If
    /// [`Status::is_retry`] is true for `status` the request comes again; otherwise it fails.
    /// [`Status::OK`] is taken as [`Status::IO_ERROR`], as the request was not done. The status of
    /// `EBUSY` is taken as [`Status::RESOURCE`].
    pub fn refuse(self, status: Status) -> Refusal<D> {
        let status = match status {
            Status::OK => Status::IO_ERROR,
            // With `DEV_RESOURCE` the request only comes again when another request ends, and there
            // may be none.
            Status::DEV_RESOURCE => Status::RESOURCE,
            status => status,
        };
        // INVARIANT: `OK` was just replaced.
        Refusal {
            request: self,
            status,
        }
    }

    /// Gives the request back to the block layer, which offers it again later.
    ///
    /// While a device may be using the request's pages this is not possible: then the handle is
    /// returned. Any context.
    pub fn requeue(self) -> Result<(), Self> {
        if self.is_held() {
            return Err(self);
        }
        // SAFETY: By the type invariant the request is started and ours. The ownership goes to the
        // block layer.
        unsafe { bindings::blk_mq_requeue_request(self.into_raw(), true) };
        Ok(())
    }

    fn is_held(&self) -> bool {
        self.private().hold.load(ordering::Acquire) != IDLE
    }
}

impl<D> Drop for OwnedRequest<D> {
    fn drop(&mut self) {
        // SAFETY: The handle is not used after this.
        unsafe { Self::from_raw(self.raw.as_ptr()) }.end(Status::IO_ERROR);
    }
}

/// A request that `queue_rq` does not take; see [`OwnedRequest::refuse`].
///
/// # Invariants
///
/// `status` is not [`Status::OK`].
#[must_use = "to be returned from `queue_rq`"]
pub struct Refusal<D> {
    request: OwnedRequest<D>,
    status: Status,
}

impl<D> Refusal<D> {
    /// Requeues the request or fails it, as the block layer would do. For a request that the block
    /// layer has given up already, as one of `queue_rqs`. Any context.
    #[cold]
    pub fn give_back(self) {
        let Self { request, status } = self;
        if !status.is_retry() {
            return request.end(status);
        }
        if let Err(request) = request.requeue() {
            request.end(Status::IO_ERROR);
        }
    }

    /// The status for the block layer as the result of a `queue_rq` of `expected`.
    pub(super) fn hand_back(self, expected: *mut bindings::request) -> Status {
        let Self { request, status } = self;
        if request.raw.as_ptr() == expected && !request.is_held() {
            let _ = request.into_raw();
            // By the type invariant the status is not a success.
            return status;
        }
        // This is another request than `expected`, or a device is still using its pages. Then it
        // can only be ended. `expected` itself is not refused: it has another owner, or is ended
        // here.
        request.end(if status.is_retry() {
            Status::IO_ERROR
        } else {
            status
        });
        Status::OK
    }
}

/// Keeps a request, and so the pages of its data, from being given back to the block layer while a
/// device may use the pages. Dropping the hold may end the request. Any context.
///
/// # Invariants
///
/// `raw` is a request of a tag set of this crate. Its `hold` is `HELD` or `ENDED`, and this value
/// is its only hold. So the request has not been ended.
pub(crate) struct DataHold {
    raw: NonNull<bindings::request>,
}

// SAFETY: A hold only does atomic operations and ends the request, which is allowed in any task.
unsafe impl Send for DataHold {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl Sync for DataHold {}

impl DataHold {
    /// Holds the request; `None` if there is a hold already.
    pub(crate) fn new<D>(request: &mut OwnedRequest<D>) -> Option<Self> {
        let hold = &request.private().hold;
        if hold.load(ordering::Acquire) != IDLE {
            return None;
        }
        // Only the owner of the request changes `IDLE`, and the owner is borrowed exclusively here.
        hold.store(HELD, ordering::Relaxed);
        // INVARIANT: `hold` was just changed from `IDLE` to `HELD`.
        Some(Self { raw: request.raw })
    }
}

impl Drop for DataHold {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the request is live.
        let hold = unsafe { &private(self.raw.as_ptr()).hold };
        if let Err(noted) = hold.cmpxchg(HELD, IDLE, ordering::Full) {
            hold.store(IDLE, ordering::Relaxed);
            let status = (noted >> STATUS_SHIFT) as bindings::blk_status_t;
            // SAFETY: The owner gave the request up when it noted the status, so the request is to
            // be ended here.
            unsafe { bindings::blk_mq_end_request(self.raw.as_ptr(), status) };
        }
    }
}
