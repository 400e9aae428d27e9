// SPDX-License-Identifier: GPL-2.0

//! Memory regions that are registered by work requests, and the memory that devices use through
//! them.
//!
//! Would be: `rust/kernel/rdma/mr.rs`.
//!
//! # Memory that its owner wants back
//!
//! A [`ScatterTable`] names memory of a user: pages of a block request. A device reaches the pages
//! in two ways: by a send-side work request that has their DMA addresses, or by a registration,
//! which gives the peer a key. The owner must not get the pages back while a device may reach them.
//! So a table is mapped by a [`MemoryRegion`], and only the state of the region says when the table
//! may be unmapped:
//!
//! ```text
//!          map            write_table                success
//!  Idle --------> Mapped -------------> Sending -----------------+
//!   ^              |  ^                                          |
//!   |     unmap    |  +------------------------------------------+
//!   +--------------+  |                                          |
//!                load |            register        post          | success, or
//!                     +--> Loaded ---------> Registering --> Exposed --> Ending
//!                                                          invalidate
//! ```
//!
//! The peer can end `Exposed` as well, see
//! [`QueuePairRef::peer_ended()`](super::QueuePairRef::peer_ended). Only a completion without an
//! error ends a use: a request that failed or was flushed says nothing of the peer's key, which is
//! good on every queue pair of the domain. A use that no completion ends, ends when all queue pairs
//! of the domain are drained ([`ProtectionDomain::is_drained()`]).

mod in_place;
mod place;

use super::{
    access::Access,
    pd::Retained,
    Direction,
    ProtectionDomain,
    Sge, //
};
use crate::{
    bindings,
    prelude::*,
    scatterlist::ScatterTable,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    container_of,
    error::from_err_ptr,
    sync::Arc, //
};

/// The page size of registrations.
///
/// The same as in the C client. Every device supports this size. In a block request each segment
/// but the first starts, and each segment but the last ends, on a boundary of this size.
pub(crate) const REGION_PAGE_SIZE: usize = 4096;

/// The use of a region.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Use {
    /// The region is free.
    Idle,
    /// A caller changes the region.
    Busy,
    /// A table is mapped.
    Mapped,
    /// A table is mapped, and its pages are in the region under a key that is not valid.
    Loaded,
    /// As `Loaded`, but under the key of the last registration, and only for the queue pair of that
    /// registration.
    Replaced,
    /// A work request has the addresses of the mapped table.
    Sending,
    /// A batch has a work request that registers the region.
    Registering,
    /// The work request that registers the region was posted.
    Exposed,
    /// A work request invalidates the key.
    Ending,
    /// The region has memory that stays as long as the domain.
    Permanent,
}

/// Tells a queue pair that a work request of a region has completed. The context of each queue pair
/// begins with such a function, and is its first argument.
pub(super) type RegionCompleted = unsafe fn(*mut c_void, &Raw, &bindings::ib_wc);

/// The state of a region: its use, and the direction for which its memory is mapped.
const fn state(usage: Use, direction: Direction) -> u32 {
    usage as u32 | (direction as u32) << 8
}

/// All directions.
const DIRECTIONS: [Direction; 3] = [
    Direction::Bidirectional,
    Direction::ToDevice,
    Direction::FromDevice,
];

/// A fast-registration memory region (`ib_mr`), which maps one [`ScatterTable`] at a time.
///
/// May be dropped in any context, as long as something else holds the domain.
pub struct MemoryRegion(Retained<Raw>);

/// # Invariants
///
/// - `region` is valid and owned by this type. Only the caller that changed `state` to
///   [`Use::Busy`] changes `region`, until that caller changes `state` again. The keys are also
///   changed by [`bump_key()`].
/// - A table that names `serial` was mapped by this region, for the direction in `state`. There is
///   at most one such table, and none while the state is [`Use::Idle`] or [`Use::Permanent`].
/// - In [`Use::Mapped`], [`Use::Loaded`] and [`Use::Replaced`] no device uses that table's memory:
///   no work request has its addresses, and either no key of the region is valid and no posted
///   request will make a key valid, or the domain is drained.
/// - In [`Use::Sending`] and [`Use::Ending`] at most one work request with `cqe` is in a batch or
///   in flight.
/// - In [`Use::Registering`] a work request that registers the region is in a batch or being
///   posted, or was dropped with its batch.
/// - In [`Use::Exposed`] the region was registered on the queue pair with the serial number in
///   `queue_pair`, or posting the registration failed.
///   [`SendBatch::invalidate()`](super::SendBatch::invalidate) has made no request since.
pub(super) struct Raw {
    pub(super) cqe: bindings::ib_cqe,
    region: NonNull<bindings::ib_mr>,
    state: Atomic<u32>,
    queue_pair: Atomic<u64>,
    serial: u64,
    /// The owner's name for the region.
    key: u32,
}

/// The number of regions that were made.
static MADE: Atomic<u64> = Atomic::new(0);

// SAFETY: The C functions that are called on a region may be called from any task.
unsafe impl Send for Raw {}

// SAFETY: As above. A change through a shared reference needs a change of `state` first.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the region is ours. `Retained` drops it when no work
        // request that names it is in flight any more.
        unsafe { bindings::ib_dereg_mr_user(self.region.as_ptr(), ptr::null_mut()) };
    }
}

impl Raw {
    /// The owner's name for the region.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Changes the use of the region from `from` to `to`, and returns the direction, which stays
    /// the same. `EBUSY` if the use is not `from`.
    #[inline]
    fn change(&self, from: Use, to: Use) -> Result<Direction> {
        let current = self.state.load(ordering::Relaxed);
        let mut directions = DIRECTIONS.into_iter();
        let direction = directions.find(|direction| current == state(from, *direction));
        let direction = direction.ok_or(EBUSY)?;
        match self
            .state
            .cmpxchg(current, state(to, direction), ordering::Full)
        {
            Ok(_) => Ok(direction),
            Err(_) => Err(EBUSY),
        }
    }

    /// To be called when the work request with `cqe` has completed without an error.
    pub(super) fn work_request_done(&self) {
        // INVARIANT: In `Sending`, the request that had the addresses is done. In `Ending`, the
        // request that invalidated the key was posted on the queue pair of the registration, behind
        // it, so the key is not valid any more; or the registration was never posted, so the key
        // never became valid.
        if self.change(Use::Sending, Use::Mapped).is_err() {
            let _ = self.change(Use::Ending, Use::Mapped);
        }
    }

    /// To be called before the registration is posted on the queue pair with this serial number.
    /// Returns the key.
    pub(super) fn registering(&self, queue_pair: u64) -> u32 {
        self.queue_pair.store(queue_pair, ordering::Relaxed);
        self.rkey()
    }

    /// To be called after the registration was posted, also if posting failed.
    pub(super) fn registered(&self) {
        // INVARIANT: The queue pair is the one that `registering()` noted.
        let _ = self.change(Use::Registering, Use::Exposed);
    }

    #[inline]
    fn rkey(&self) -> u32 {
        // SAFETY: By the type invariant the region is valid; the access is volatile, as in
        // `bump_key()`.
        unsafe { (&raw const (*self.region.as_ptr()).rkey).read_volatile() }
    }
}

impl MemoryRegion {
    /// Allocates a region for up to `max_segments` pages. Sleeps.
    ///
    /// Completions of requests that use its table go to
    /// [`Handler::region_completed()`](super::Handler::region_completed), with `key`.
    pub fn new(domain: &Arc<ProtectionDomain>, max_segments: u32, key: u32) -> Result<Self> {
        let kind = if domain.device().has_gap_registration() {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: The domain is valid.
        let raw = unsafe { bindings::ib_alloc_mr(domain.as_raw(), kind, max_segments) };
        let raw = from_err_ptr(raw)?;
        let region = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: `region` was just allocated, and the serial number is new, so no table names
        // it. If `Retained::new()` fails, `raw` is dropped.
        let raw = Raw {
            cqe: bindings::ib_cqe {
                done: Some(complete_region),
            },
            region,
            state: Atomic::new(Use::Idle as u32),
            queue_pair: Atomic::new(0),
            serial: MADE.fetch_add(1u64, ordering::Relaxed) + 1,
            key,
        };
        Ok(Self(Retained::new(domain, raw)?))
    }

    /// The C structure.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.0.region.as_ptr()
    }

    /// The part of the region that stays as long as the domain.
    #[inline]
    pub(super) fn raw(&self) -> &Raw {
        &self.0
    }

    /// The serial number, which no other region has or had. Not 0.
    #[inline]
    pub(crate) fn serial(&self) -> u64 {
        self.0.serial
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        self.0.domain()
    }

    /// Maps the memory of `table` for the device of the domain. Any context.
    ///
    /// Until [`Self::unmap()`] the table cannot be changed, and keeps the memory. `EBUSY` if the
    /// region or the table is in use. `EINVAL` if the table is empty, for a read request with
    /// another direction than [`Direction::FromDevice`], and for a write request with another one
    /// than [`Direction::ToDevice`]. `ENOMEM` if the device cannot reach the memory, mostly for
    /// lack of bounce buffers or addresses: a later call may succeed.
    pub fn map(&self, table: &mut ScatterTable, direction: Direction) -> Result {
        let (idle, busy) = (Use::Idle as u32, Use::Busy as u32);
        if self.0.state.cmpxchg(idle, busy, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        let mapped = table.map(self.domain().device(), self.0.serial, direction);
        // INVARIANT: If the table was mapped, it names this region. No request has its addresses
        // yet, and since the last unmapping no key of the region is valid.
        let next = match mapped {
            Ok(()) => state(Use::Mapped, direction),
            Err(_) => idle,
        };
        self.0.state.store(next, ordering::Release);
        mapped
    }

    /// Puts the memory of `table`, which this region has mapped, into the region under a new key.
    ///
    /// `EINVAL` if there are more pages than the region was made for, if the segments leave gaps
    /// that the device cannot express, or if another region has mapped the table; `EBUSY` if a
    /// device may use the memory.
    pub fn load(&self, table: &ScatterTable) -> Result {
        let (list, entries) = table.mapped_by(self.0.serial).ok_or(EINVAL)?;
        let direction = self.0.change(Use::Mapped, Use::Busy)?;
        // SAFETY: The list has `entries` mapped entries, and the state was just changed to `Busy`.
        let taken = unsafe { self.take_in(list, entries) };
        // INVARIANT: The key is new, so nothing that was posted makes it valid.
        let next = match taken {
            Ok(()) => Use::Loaded,
            Err(_) => Use::Mapped,
        };
        self.0
            .state
            .store(state(next, direction), ordering::Release);
        taken
    }

    /// Unmaps `table`, if it is mapped. The table stays filled. Any context.
    ///
    /// `EBUSY` as long as a device may use the memory, `EINVAL` if another region has mapped the
    /// table. After an error the table is still mapped.
    pub fn unmap(&self, table: &mut ScatterTable) -> Result {
        if !table.is_mapped() {
            return Ok(());
        }
        table.mapped_by(self.0.serial).ok_or(EINVAL)?;
        let is_free = self.0.change(Use::Mapped, Use::Busy).is_ok()
            || self.0.change(Use::Loaded, Use::Busy).is_ok()
            || self.0.change(Use::Replaced, Use::Busy).is_ok();
        if !is_free && !self.domain().is_drained() {
            return Err(EBUSY);
        }
        // SAFETY: The table names this region, which has mapped it for the domain's device. By the
        // type invariant no device uses the memory in the three states above. In every other state
        // a device might use it for a request of the domain. Once the domain is drained, such a
        // request is flushed, not carried out, and no key of the domain is good on any queue pair.
        unsafe { table.unmap(self.domain().device()) };
        // INVARIANT: No table names the region any more.
        self.0.state.store(Use::Idle as u32, ordering::Release);
        Ok(())
    }

    /// Puts memory into the region that stays as long as the domain. The region can be used for
    /// nothing else then. `EBUSY` if the region is in use.
    ///
    /// # Safety
    ///
    /// `list` must have `entries` entries that are mapped for the device of the region, and for
    /// `direction`, as long as the domain exists.
    pub(crate) unsafe fn map_permanently(
        &self,
        list: *mut bindings::scatterlist,
        entries: u32,
        direction: Direction,
    ) -> Result {
        let (idle, busy) = (Use::Idle as u32, Use::Busy as u32);
        if self.0.state.cmpxchg(idle, busy, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: By the function's requirement, and the state was just changed to `Busy`.
        let taken = unsafe { self.take_in(list, entries) };
        let next = match taken {
            Ok(()) => state(Use::Permanent, direction),
            Err(_) => idle,
        };
        self.0.state.store(next, ordering::Release);
        taken
    }

    /// Puts all entries into the region and chooses a new key.
    ///
    /// # Safety
    ///
    /// `list` must have `entries` entries that are mapped for the device of the region, and the
    /// caller must have changed the state to [`Use::Busy`].
    unsafe fn take_in(&self, list: *mut bindings::scatterlist, entries: u32) -> Result {
        // SAFETY: By the function's requirement.
        unsafe { self.map_in(list, entries) }?;
        // SAFETY: The region is valid.
        unsafe { bump_key(self.as_raw()) };
        Ok(())
    }

    /// Puts all entries into the region under the current key.
    ///
    /// # Safety
    ///
    /// As of [`Self::take_in()`].
    unsafe fn map_in(&self, list: *mut bindings::scatterlist, entries: u32) -> Result {
        let count = c_int::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: The region is valid, and ours to change; the list by the caller's promise.
        let mapped = unsafe {
            let page_size = REGION_PAGE_SIZE as c_uint;
            bindings::ib_map_mr_sg(self.as_raw(), list, count, ptr::null_mut(), page_size)
        };
        if mapped < 0 {
            return Err(Error::from_errno(mapped));
        }
        if mapped < count {
            return Err(EINVAL);
        }
        // The peer must not learn an address of this machine. A device takes any address with the
        // same offset in its page; NFS over RDMA relies on this, too.
        // SAFETY: The region is valid, and ours to change.
        unsafe { (*self.as_raw()).iova %= REGION_PAGE_SIZE as u64 };
        Ok(())
    }

    /// To be called before a work request with the addresses of the mapped table is made. Returns
    /// the direction for which the table is mapped.
    pub(super) fn begin_sending(&self) -> Result<Direction> {
        self.0.change(Use::Mapped, Use::Sending)
    }

    /// To be called if the work request of [`Self::begin_sending()`] was not made.
    pub(super) fn cancel_sending(&self) {
        // INVARIANT: No request has the addresses.
        let _ = self.0.change(Use::Sending, Use::Mapped);
    }

    /// Whether the region is permanent: its memory stays as long as the domain, so no state of its
    /// use is kept. `EINVAL` if the region is permanent and the direction of its memory does not
    /// suit `access`.
    pub(super) fn is_permanent(&self, access: Access) -> Result<bool> {
        if !self.is(Use::Permanent) {
            return Ok(false);
        }
        // A permanent region keeps its memory, and so its direction.
        let direction = self.direction();
        let suits = direction.is_some_and(|direction| access.suits(direction));
        suits.then_some(true).ok_or(EINVAL)
    }

    /// To be called before a work request that registers the region is made. `EINVAL` if the table
    /// in the region is mapped for a direction that `access` does not suit, `EBUSY` if the region
    /// has no table.
    ///
    /// Returns the serial number of the queue pair on which the request must be posted; 0 for any.
    /// `queue_pair` is the serial number of the batch's queue pair, or 0. `EBUSY` if the request
    /// must be posted on another queue pair than that.
    pub(super) fn begin_registering(&self, access: Access, queue_pair: u64) -> Result<u64> {
        let Ok(direction) = self.0.change(Use::Loaded, Use::Registering) else {
            return self.begin_registering_again(access, queue_pair);
        };
        if access.suits(direction) {
            return Ok(0);
        }
        // INVARIANT: The caller does not make the request.
        let _ = self.0.change(Use::Registering, Use::Loaded);
        Err(EINVAL)
    }

    /// To be called before a work request that invalidates the key is made. Returns the serial
    /// number of the queue pair on which the request must be posted. `EBUSY` if the registration
    /// was not posted.
    pub(super) fn begin_ending(&self) -> Result<u64> {
        self.0.change(Use::Exposed, Use::Ending)?;
        Ok(self.0.queue_pair.load(ordering::Relaxed))
    }

    /// Whether the peer has ended the access to the region: the region was registered on the queue
    /// pair with the serial number `queue_pair`, and its key is `invalidated`. That is the key that
    /// the device reported last on that queue pair as invalidated by the peer; 0 if none. If true,
    /// the memory is free.
    ///
    /// A region has 256 keys, one after the other, so keys come again. Registering a key on a queue
    /// pair makes that queue pair forget that the peer invalidated the same key before. No
    /// completion which reports the earlier invalidation can be outstanding then, as the earlier
    /// registration was ended by a completion that is behind it in the same queue. A mix-up takes
    /// all of the following: the region goes through all its keys on another queue pair of the
    /// domain, the peer of that queue pair invalidates a key by a message on this queue pair, and
    /// the completion of that message waits here all the time. [`Self::load_in_place()`] uses the
    /// same key again at once, and therefore only on the same queue pair.
    pub(super) fn ended_by_peer(&self, queue_pair: u64, invalidated: &Atomic<u32>) -> bool {
        // The state is changed first, so that queue pair and key do not change any more.
        if self.0.change(Use::Exposed, Use::Busy).is_err() {
            return false;
        }
        let registered_on = self.0.queue_pair.load(ordering::Relaxed);
        let key = invalidated.load(ordering::Acquire);
        let ended = registered_on == queue_pair && key != 0 && key == self.rkey();
        // INVARIANT: If `ended`, the device has reported that the key is not valid any more; else
        // the use is the same as before.
        let next = if ended { Use::Mapped } else { Use::Exposed };
        self.0.change(Use::Busy, next).is_ok() && ended
    }

    /// Whether the use of the region is `usage`.
    #[inline]
    fn is(&self, usage: Use) -> bool {
        let current = self.0.state.load(ordering::Acquire);
        current & 0xff == usage as u32
    }

    /// The direction of the memory in the region; `None` if the region has none.
    #[inline]
    fn direction(&self) -> Option<Direction> {
        let current = self.0.state.load(ordering::Acquire);
        let is_in = [
            Use::Loaded,
            Use::Registering,
            Use::Exposed,
            Use::Ending,
            Use::Permanent,
            // Last, as it is rare.
            Use::Replaced,
        ];
        let is_in = |direction| {
            is_in
                .iter()
                .any(|usage| current == state(*usage, direction))
        };
        DIRECTIONS.into_iter().find(|direction| is_in(*direction))
    }

    /// Chooses a new key for the same memory, to register the region again. Does nothing if the
    /// region is not permanent.
    ///
    /// The old key must have been invalidated before; otherwise the device goes on accepting it.
    #[inline]
    pub fn renew_key(&self) {
        if self.is(Use::Permanent) {
            // SAFETY: The region is valid.
            unsafe { bump_key(self.as_raw()) };
        }
    }

    /// The key for the peer, and for invalidation.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.0.rkey()
    }

    /// The memory in the region as one scatter entry, for a request that is posted behind the
    /// registration and sends the memory.
    ///
    /// `EINVAL` if the region has no memory, memory that the device may not read, or 4 GiB or more.
    #[inline]
    pub fn sge(&self) -> Result<Sge> {
        let direction = self.direction().ok_or(EINVAL)?;
        let len = u32::try_from(self.len())?;
        if len == 0 || !direction.permits(Direction::ToDevice) {
            return Err(EINVAL);
        }
        // SAFETY: The region is valid; the access is volatile, as in `bump_key()`.
        let lkey = unsafe { (&raw const (*self.as_raw()).lkey).read_volatile() };
        let (iova, domain) = (self.iova(), self.domain().serial());
        // SAFETY: The region has `len` bytes, and `lkey` is its key: the device refuses a request
        // with this key unless the region is registered.
        Ok(unsafe { Sge::new(iova, len, lkey, domain) })
    }
}

/// Called for each completion of a request that has the `cqe` of a region.
///
/// # Safety
///
/// Only to be called by the RDMA core, or a poller, for requests posted by a
/// [`QueuePair`](super::QueuePair).
unsafe extern "C" fn complete_region(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The core passes a valid completion; the queue pair is set in all, failed ones too.
    let wc = unsafe { &*wc };
    // SAFETY: `wr_cqe` is the `cqe` that was posted: that of a region, which stays as long as the
    // domain.
    let region = unsafe {
        let cqe = *wc.__bindgen_anon_1.wr_cqe;
        &*container_of!(cqe, Raw, cqe)
    };
    // SAFETY: The queue pair is not destroyed before it is drained. Its context begins with the
    // function, which takes that context.
    unsafe {
        let context = (*wc.qp).qp_context;
        (*context.cast::<RegionCompleted>())(context, region, wc);
    }
}

/// Changes the low byte of the keys, which belongs to the consumer, so that the old keys become
/// invalid.
///
/// Two concurrent calls may have the effect of one. The accesses are volatile, as the driver's are.
///
/// # Safety
///
/// The region must be valid.
#[inline]
unsafe fn bump_key(mr: *mut bindings::ib_mr) {
    // SAFETY: By the function's requirement.
    let (lkey, rkey) = unsafe { (&raw mut (*mr).lkey, &raw mut (*mr).rkey) };
    // SAFETY: As above.
    unsafe {
        let key = rkey.read_volatile().wrapping_add(1) & 0xff;
        lkey.write_volatile(lkey.read_volatile() & !0xff | key);
        rkey.write_volatile(rkey.read_volatile() & !0xff | key);
    }
}
