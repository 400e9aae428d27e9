// SPDX-License-Identifier: GPL-2.0

//! Memory regions that are registered by work requests.

use super::{
    pd::Retained,
    ProtectionDomain,
    Sge, //
};
use crate::{
    atomic::{
        ordering,
        Atomic, //
    },
    bindings,
    scatterlist::ScatterTable, //
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
/// `region` is valid and owned by this type. It is only changed by who set `state` to [`MAPPING`],
/// until that sets it to something else.
struct Raw {
    region: NonNull<bindings::ib_mr>,
    state: Atomic<u32>,
}

/// Nothing is mapped.
const IDLE: u32 = 0;
/// Somebody is mapping.
const MAPPING: u32 = 1;
/// Something is mapped, and may be registered.
const MAPPED: u32 = 2;

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
    /// that the device cannot express, or if it is not mapped for this domain; `EBUSY` from the first success
    /// until [`Self::release()`].
    #[inline]
    pub fn map(&self, scatter: &ScatterTable) -> Result {
        let (list, entries) = scatter.as_raw(self.domain()).ok_or(EINVAL)?;
        // SAFETY: The list has that many mapped entries.
        unsafe { self.map_raw(list, entries) }
    }

    /// # Safety
    ///
    /// `list` must have `entries` entries that are mapped for the device of the region.
    pub(crate) unsafe fn map_raw(&self, list: *mut bindings::scatterlist, entries: u32) -> Result {
        let mr = self.as_raw();
        let count = c_int::try_from(entries).map_err(|_| EINVAL)?;
        let state = &self.0.state;
        if state.cmpxchg(IDLE, MAPPING, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: The region is valid, and ours as we set `state`; the list by the caller's promise.
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
        state.store(MAPPED, ordering::Release);
        Ok(())
    }

    /// Allows the next [`Self::map()`]. Any context.
    ///
    /// To be called when the region has been invalidated, or was not registered after all.
    #[inline]
    pub fn release(&self) {
        // Most requests map nothing. Whoever is mapping just now decides that alone.
        if self.0.state.load(ordering::Relaxed) == MAPPED {
            let _ = self.0.state.cmpxchg(MAPPED, IDLE, ordering::Release);
        }
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

    /// What is mapped as one scatter entry, for a request behind the registration.
    ///
    /// `EINVAL` if nothing is mapped, or 4 GiB or more.
    #[inline]
    pub fn sge(&self) -> Result<Sge> {
        let len = u32::try_from(self.len())?;
        if len == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The region is valid.
        let lkey = unsafe { (*self.as_raw()).lkey };
        Ok(Sge::new(self.iova(), len, lkey, self.domain().serial()))
    }

    /// The address for the peer of the first byte.
    #[inline]
    pub fn iova(&self) -> u64 {
        // SAFETY: The region is valid.
        unsafe { (*self.as_raw()).iova }
    }

    /// The length in bytes of what is mapped.
    #[inline]
    pub fn len(&self) -> u64 {
        // SAFETY: The region is valid.
        unsafe { (*self.as_raw()).length }
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
