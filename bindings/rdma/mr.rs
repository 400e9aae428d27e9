// SPDX-License-Identifier: GPL-2.0

//! Memory regions that are registered by work requests.

use super::{
    pd::Retained,
    Direction,
    ProtectionDomain,
    Sge, //
};
use crate::{
    bindings,
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
    error::from_err_ptr,
    prelude::*,
    sync::{
        Arc, //
    }, //
};

/// What the peer may do with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: it is only for work requests of this end.
    Local,
    /// Read.
    RemoteRead,
    /// Write.
    RemoteWrite,
}

impl Access {
    #[inline]
    pub(super) fn as_raw(self) -> c_int {
        let flags = match self {
            Self::Local => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
            Self::RemoteRead => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::RemoteWrite => {
                bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            }
        };
        flags as c_int
    }

    /// Whether it may be given to memory that is mapped for `direction`.
    #[inline]
    fn suits(self, direction: Direction) -> bool {
        match self {
            Self::Local => true,
            Self::RemoteRead => direction.permits(Direction::ToDevice),
            Self::RemoteWrite => direction.permits(Direction::FromDevice),
        }
    }
}

/// The page size of registrations.
///
/// As in the C client; every device supports it, and all segments but the first and the last of a
/// block request start and end on such a boundary.
pub(crate) const REGION_PAGE_SIZE: usize = 4096;

/// A fast-registration memory region (`ib_mr`).
///
/// Made once; then any number of times: [`map()`](Self::map), `reg_mr()` in a chain, use by the
/// peer, invalidation by the peer or by `local_invalidate()`. May be dropped in any context, as
/// long as somebody else holds the domain.
pub struct MemoryRegion(Retained<Raw>);

/// # Invariants
///
/// - `region` is valid and owned by this type. It is only changed by who set `state` to
///   [`MAPPING`], until that sets it to something else; its keys also by [`bump_key()`].
/// - If `state` is one of [`mapped_for()`], all that was given to the last map is in the region,
///   and was mapped for that direction.
struct Raw {
    region: NonNull<bindings::ib_mr>,
    state: Atomic<u32>,
}

/// Nothing is mapped.
const IDLE: u32 = 0;
/// Somebody is mapping.
const MAPPING: u32 = 1;
/// Something is mapped, and may be registered: from here on, one for each direction.
const MAPPED: u32 = 2;

/// Something is mapped for `direction`.
#[inline(always)]
const fn mapped_for(direction: Direction) -> u32 {
    MAPPED + direction as u32
}

// SAFETY: The functions called on a region may be called from any thread.
unsafe impl Send for Raw {}

// SAFETY: As above; changes through shared references are claimed by `state`.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the region is ours; no work request that names it is in
        // flight any more, as `Retained` says.
        unsafe { bindings::ib_dereg_mr_user(self.region.as_ptr(), ptr::null_mut()) };
    }
}

impl MemoryRegion {
    /// Allocates a region for up to `max_segments` pages. Sleeps.
    pub fn new(domain: &Arc<ProtectionDomain>, max_segments: u32) -> Result<Self> {
        let kind = if domain.device().has_gap_registration() {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: The domain is valid.
        let raw = unsafe { bindings::ib_alloc_mr(domain.as_raw(), kind, max_segments) };
        let raw = from_err_ptr(raw)?;
        let region = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: `region` was just allocated; if this fails, it is dropped.
        let raw = Raw {
            region,
            state: Atomic::new(IDLE),
        };
        Ok(Self(Retained::new(domain, raw)?))
    }

    /// The C structure.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::ib_mr {
        self.0.region.as_ptr()
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        self.0.domain()
    }

    /// Takes in all of `scatter` and chooses a new key; the next `reg_mr()` makes it accessible.
    ///
    /// `EINVAL` if there are more pages than the region was made for, if the segments leave gaps
    /// that the device cannot express, or if it is not mapped for this domain; `EBUSY` from the
    /// first success until [`Self::release()`].
    #[inline]
    pub fn map(&self, scatter: &ScatterTable) -> Result {
        let (list, entries, direction) = scatter.as_raw(self.domain()).ok_or(EINVAL)?;
        // SAFETY: The list has that many mapped entries.
        unsafe { self.map_raw(list, entries, direction) }
    }

    /// # Safety
    ///
    /// `list` must have `entries` entries that are mapped for the device of the region, and for
    /// `direction`.
    pub(crate) unsafe fn map_raw(
        &self,
        list: *mut bindings::scatterlist,
        entries: u32,
        direction: Direction,
    ) -> Result {
        let mr = self.as_raw();
        let count = c_int::try_from(entries).map_err(|_| EINVAL)?;
        let state = &self.0.state;
        if state.cmpxchg(IDLE, MAPPING, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: The region is valid, and ours as we set `state`; the list by the caller's
        // promise.
        let mapped = unsafe {
            let page_size = REGION_PAGE_SIZE as c_uint;
            bindings::ib_map_mr_sg(mr, list, count, ptr::null_mut(), page_size)
        };
        if mapped < count {
            state.store(IDLE, ordering::Release);
            return Err(if mapped < 0 {
                Error::from_errno(mapped)
            } else {
                EINVAL
            });
        }
        // SAFETY: The region is valid.
        unsafe { bump_key(mr) };
        // INVARIANT: All is in the region.
        state.store(mapped_for(direction), ordering::Release);
        Ok(())
    }

    /// Allows the next [`Self::map()`]. Any context.
    ///
    /// To be called when the region has been invalidated, or was not registered after all.
    #[inline]
    pub fn release(&self) {
        // Most requests map nothing. Whoever is mapping just now decides that alone.
        let state = self.0.state.load(ordering::Relaxed);
        if state >= MAPPED {
            let _ = self.0.state.cmpxchg(state, IDLE, ordering::Release);
        }
    }

    /// For which direction something is mapped, if anything is.
    #[inline]
    fn direction(&self) -> Option<Direction> {
        let state = self.0.state.load(ordering::Acquire);
        [
            Direction::Bidirectional,
            Direction::ToDevice,
            Direction::FromDevice,
        ]
        .into_iter()
        .find(|direction| state == mapped_for(*direction))
    }

    /// Whether something is mapped that `access` may be given to.
    #[inline]
    pub(super) fn may_give(&self, access: Access) -> bool {
        self.direction()
            .is_some_and(|direction| access.suits(direction))
    }

    /// Chooses a new key without changing what is mapped, for registering it again.
    ///
    /// The region must have been invalidated, and only who is going to register it may do this.
    #[inline]
    pub fn renew_key(&self) {
        // SAFETY: The region is valid.
        unsafe { bump_key(self.as_raw()) };
    }

    /// The key for the peer, and for invalidation.
    #[inline]
    pub fn rkey(&self) -> u32 {
        // SAFETY: The region is valid.
        unsafe { (&raw const (*self.as_raw()).rkey).read_volatile() }
    }

    /// What is mapped as one scatter entry, for a request behind the registration that sends it.
    ///
    /// `EINVAL` if nothing is mapped that the device may read, or 4 GiB or more.
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
        // SAFETY: That much is in the region, whose key it is. What was mapped into it stays until
        // it is released, which is not before the request has completed.
        Ok(unsafe { Sge::new(iova, len, lkey, domain) })
    }

    /// The address for the peer of the first byte; 0 if nothing is mapped.
    ///
    /// Only who keeps others from releasing the region can rely on it.
    #[inline]
    pub fn iova(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: The region is valid. Nobody writes to the field while something is mapped, and if
        // it has just been released the volatile access gets either number, of a word at once.
        unsafe { (&raw const (*self.as_raw()).iova).read_volatile() }
    }

    /// The length in bytes of what is mapped; see [`Self::iova()`].
    #[inline]
    pub fn len(&self) -> u64 {
        if self.direction().is_none() {
            return 0;
        }
        // SAFETY: As in `iova()`.
        unsafe { (&raw const (*self.as_raw()).length).read_volatile() }
    }

    /// Whether nothing is mapped.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Changes the low byte of the keys, which is the consumer's, so that the old ones stop working.
///
/// If two tasks do so at once, it may count as one; the accesses are volatile, as the driver's.
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
