// SPDX-License-Identifier: GPL-2.0

//! Send-side work requests that are collected, and then posted at once.
//!
//! Would be: part of `rust/kernel/rdma/wr.rs`.

use super::{
    mr,
    wr::{
        plain,
        rdma,
        reg,
        send_wr,
        RawList,
        Request, //
    },
    Access,
    MemoryRegion,
    RemoteMemory,
    Sge,
    SgeList,
    WrId, //
};
use crate::{
    bindings,
    scatterlist::ScatterTable, //
};
use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr, //
};
use kernel::prelude::*;

/// Up to `N` send-side work requests, with `S` scatter entries in all, on the stack.
///
/// First the entries of a request are added, then the request. What the entries name stays as long
/// as the protection domain, or a [`MemoryRegion`] knows of the request. The methods fail with
/// `ENOSPC` if there is no room, and with `EINVAL` if the requests would name memory of several
/// domains. `signaled` asks for a completion; a request that fails completes in any case.
///
/// # Invariants
///
/// - The first `len` of `requests` are initialised as requests of the type that their opcode names,
///   except for what [`Self::link()`] sets. `wr_id` of each holds a [`WrId`], or [`OF_REGION`] and
///   then its place in `regions` is set.
/// - Together the requests have the first `taken` of `entries`, in this order.
/// - Entries that name memory of a table are part of a request in `requests`, and the region that
///   has mapped the table is in use for sending.
/// - `regions` and `registering` are null or those of regions in the domain with the serial number
///   `domain`, which is also that of the entries; if it is 0 there are neither.
/// - The requests may be posted on the queue pair with the serial number `queue_pair`, or on any of
///   the domain if that is 0.
pub struct SendBatch<const N: usize, const S: usize> {
    requests: [MaybeUninit<Request>; N],
    regions: [MaybeUninit<*const mr::Raw>; N],
    len: usize,
    entries: SgeList<S>,
    taken: usize,
    registering: *const mr::Raw,
    domain: u64,
    queue_pair: u64,
}

/// In place of a [`WrId`]: the completion is the region's.
const OF_REGION: u64 = u64::MAX;

/// Some requests of a batch were not posted.
#[derive(Clone, Copy, Debug)]
pub struct Unposted {
    /// The first of them; nothing if the driver does not say, or not for certain.
    pub first: Option<usize>,
    /// Why.
    pub error: Error,
}

/// The queue pair that a batch is linked for.
pub(super) struct Target<'a> {
    pub(super) cqes: &'a [bindings::ib_cqe],
    pub(super) domain: u64,
    pub(super) queue_pair: u64,
    pub(super) max_send_sge: u32,
}

impl<const N: usize, const S: usize> SendBatch<N, S> {
    /// Makes an empty batch at `place`, from where it is not to be moved in the IO path.
    #[inline(always)]
    pub fn init(place: &mut MaybeUninit<Self>) -> &mut Self {
        let this = place.as_mut_ptr();
        // SAFETY: The place is valid for writes.
        unsafe {
            // INVARIANT: There are no requests and no entries.
            (&raw mut (*this).len).write(0);
            (&raw mut (*this).taken).write(0);
            (&raw mut (*this).registering).write(ptr::null());
            (&raw mut (*this).domain).write(0);
            (&raw mut (*this).queue_pair).write(0);
            (&raw mut (*this).entries.len).write(0);
            (&raw mut (*this).entries.domain).write(0);
        }
        // SAFETY: The requests and their regions need no initialisation; everything else was just
        // initialised.
        unsafe { place.assume_init_mut() }
    }

    /// The number of requests.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no requests.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is room for so many more requests with so many entries in all.
    #[inline(always)]
    pub fn has_room(&self, requests: usize, entries: usize) -> bool {
        requests <= N - self.len && entries <= S - self.taken
    }

    /// Adds an entry to the next request.
    #[inline(always)]
    pub fn add(&mut self, sge: Sge) -> Result {
        self.entries.push(sge)
    }

    /// Forgets the entries that were added since the last request.
    #[inline(always)]
    pub fn reset(&mut self) {
        // INVARIANT: Those of the requests are not touched.
        self.entries.truncate(self.taken);
    }

    /// Forgets all.
    #[inline(always)]
    pub fn clear(&mut self) {
        // INVARIANT: There are no requests and no entries.
        self.len = 0;
        self.taken = 0;
        self.registering = ptr::null();
        self.domain = 0;
        self.queue_pair = 0;
        self.entries.clear();
    }

    /// RDMA write of the entries that were added since the last request, which also completes a
    /// receive of the peer, with `imm` (`IB_WR_RDMA_WRITE_WITH_IMM`).
    #[inline(always)]
    pub fn write_with_imm(
        &mut self,
        id: WrId,
        signaled: bool,
        remote: RemoteMemory,
        imm: u32,
    ) -> Result {
        let mut wr = send_wr(WRITE_WITH_IMM, id, signaled, &self.pending());
        wr.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(rdma(wr, remote), self.pending_domain())?;
        // INVARIANT: The entries are this request's.
        self.taken = self.entries.len();
        Ok(())
    }

    /// As [`Self::write_with_imm()`], of the memory of `table`, which `region` has mapped, and of
    /// `last` behind it. The table stays mapped until the write has completed, of which
    /// [`Handler::region_completed()`](super::cm::Handler::region_completed) tells.
    ///
    /// False, and nothing is added, if the request would have more than `limit` entries or more
    /// than there is room for, if another region has mapped the table, or if its memory is not to
    /// be sent. `EBUSY` if a device uses the table already, `EINVAL` if entries were added before.
    pub fn write_table(
        &mut self,
        table: &ScatterTable,
        region: &MemoryRegion,
        last: Sge,
        limit: usize,
        remote: RemoteMemory,
        imm: u32,
    ) -> Result<bool> {
        let limit = limit.checked_sub(1).ok_or(EINVAL)?;
        if self.entries.len() != self.taken || self.len >= N {
            return Err(EINVAL);
        }
        // Before the entries are read: from here on the table cannot be unmapped.
        region.begin_sending()?;
        let limit = self.taken.wrapping_add(limit);
        // SAFETY: The region is in use for sending, if it is the one that has mapped the table.
        // What is added is taken away below, or becomes part of a request with the region's `cqe`.
        let added = unsafe { table.add_sges(region, &mut self.entries, limit) };
        if !added || self.entries.push(last).is_err() {
            self.reset();
            region.cancel_sending();
            return Ok(false);
        }
        let mut wr = send_wr(WRITE_WITH_IMM, WrId(0), true, &self.pending());
        wr.ex.imm_data = ManuallyDrop::new(imm.to_be());
        wr.__bindgen_anon_1.wr_id = ManuallyDrop::new(OF_REGION);
        self.push_of_region(rdma(wr, remote), region)?;
        // INVARIANT: The entries are this request's.
        self.taken = self.entries.len();
        Ok(true)
    }

    /// RDMA write without data, only to give the peer `imm`.
    #[inline]
    pub fn imm_only(&mut self, id: WrId, signaled: bool, imm: u32) -> Result {
        let mut wr = send_wr(WRITE_WITH_IMM, id, signaled, &RawList::EMPTY);
        wr.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(rdma(wr, RemoteMemory::NONE), 0)
    }

    /// Send of the entries that were added since the last request (`IB_WR_SEND`).
    pub fn send(&mut self, id: WrId, signaled: bool) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        let wr = send_wr(opcode, id, signaled, &self.pending());
        self.push(plain(wr), self.pending_domain())?;
        // INVARIANT: The entries are this request's.
        self.taken = self.entries.len();
        Ok(())
    }

    /// Makes what is in `region` accessible under its key (`IB_WR_REG_MR`); one in each batch.
    ///
    /// `EINVAL` if what is in the region is mapped for a direction that `access` does not suit,
    /// `EBUSY` if nothing is, or if the region is registered already.
    pub fn register(
        &mut self,
        id: WrId,
        signaled: bool,
        region: &MemoryRegion,
        access: Access,
    ) -> Result {
        let domain = region.domain().serial();
        if self.len >= N || !self.registering.is_null() {
            return Err(ENOSPC);
        }
        if self.domain != domain && self.domain != 0 {
            return Err(EINVAL);
        }
        region.begin_registering(access)?;
        // INVARIANT: Of the domain that the request names now.
        self.registering = region.raw();
        let wr = send_wr(REG_MR, id, signaled, &RawList::EMPTY);
        self.push(reg(wr, region, access), domain)
    }

    /// Takes away the access that [`Self::register()`] gave (`IB_WR_LOCAL_INV`). The batch has to
    /// be posted on the queue pair of the registration.
    ///
    /// The table may be unmapped when this has completed without an error, of which
    /// [`Handler::region_completed()`](super::cm::Handler::region_completed) tells. `EBUSY` if the
    /// region is not registered, or not any more.
    pub fn invalidate(&mut self, region: &MemoryRegion) -> Result {
        if self.len >= N || self.queue_pair != 0 {
            return Err(ENOSPC);
        }
        // INVARIANT: Until the queue pair has it no other one gets the request.
        self.queue_pair = region.begin_ending()?;
        let opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        let mut wr = send_wr(opcode, WrId(0), true, &RawList::EMPTY);
        wr.ex.invalidate_rkey = ManuallyDrop::new(region.rkey());
        wr.__bindgen_anon_1.wr_id = ManuallyDrop::new(OF_REGION);
        self.push_of_region(plain(wr), region)
    }

    /// The entries that were added since the last request; [`Self::link()`] says where they are.
    #[inline(always)]
    fn pending(&self) -> RawList {
        RawList::of_length(self.entries.len().wrapping_sub(self.taken))
    }

    /// The serial number of the domain of the entries that were added since the last request; 0 if
    /// there are none.
    #[inline(always)]
    fn pending_domain(&self) -> u64 {
        if self.entries.len() == self.taken {
            0
        } else {
            self.entries.domain()
        }
    }

    /// Adds a request whose completion is that of `region`.
    fn push_of_region(&mut self, request: Request, region: &MemoryRegion) -> Result {
        let place = self.regions.get_mut(self.len).ok_or(ENOSPC)?;
        place.write(region.raw());
        self.push(request, region.domain().serial())
    }

    /// Adds a request that names memory of the domain with this serial number; 0 if it names none.
    #[inline(always)]
    fn push(&mut self, request: Request, domain: u64) -> Result {
        let slot = self.requests.get_mut(self.len).ok_or(ENOSPC)?;
        if domain != 0 {
            if self.domain != domain && self.domain != 0 {
                return Err(EINVAL);
            }
            self.domain = domain;
        }
        // INVARIANT: The callers pass complete requests, which name what is of the domain, and have
        // set the region if the request has its completion.
        slot.write(request);
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// Links the requests, looks their completions up, and shows them where their entries are;
    /// returns the first. To be called once. `EINVAL` if there are none, if there is no such name,
    /// if a request has more than `max_send_sge` entries, for which drivers trust that there is
    /// room, or if the requests are for another domain or another queue pair.
    #[inline(always)]
    pub(super) fn link(&mut self, target: &Target<'_>) -> Result<*const bindings::ib_send_wr> {
        if (self.domain != target.domain && self.domain != 0)
            || (self.queue_pair != target.queue_pair && self.queue_pair != 0)
        {
            return Err(EINVAL);
        }
        let mut entries = self.entries.as_raw().entries;
        let Some(requests) = self.requests.get_mut(..self.len) else {
            return Err(EINVAL);
        };
        let mut next: *mut bindings::ib_send_wr = ptr::null_mut();
        let mut last: *mut *mut bindings::ib_send_wr = &raw mut next;
        for (request, region) in requests.iter_mut().zip(&self.regions) {
            // CAST: Every request begins with an `ib_send_wr`.
            let wr: *mut bindings::ib_send_wr = request.as_mut_ptr().cast();
            // SAFETY: By the type invariant the request is initialised, with its name.
            let (id, count) = unsafe { (*(*wr).__bindgen_anon_1.wr_id, (*wr).num_sge) };
            if count as u32 > target.max_send_sge {
                return Err(EINVAL);
            }
            let cqe = if id == OF_REGION {
                // SAFETY: By the type invariant the region is set, and of the domain of the queue
                // pair, which keeps it.
                unsafe { &raw const (*region.assume_init()).cqe }
            } else {
                ptr::from_ref(target.cqes.get(id as usize).ok_or(EINVAL)?)
            };
            // SAFETY: By the type invariant the request is initialised, and its entries are the
            // next; `last` points to `next` or to the field of the request before.
            unsafe {
                (&raw mut (*wr).__bindgen_anon_1).write(bindings::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(cqe.cast_mut()),
                });
                (&raw mut (*wr).sg_list).write(entries);
                entries = entries.add(count as usize);
                last.write(wr);
                last = &raw mut (*wr).next;
                last.write(ptr::null_mut());
            }
        }
        if next.is_null() {
            return Err(EINVAL);
        }
        Ok(next)
    }

    /// The region that one of the requests registers.
    ///
    /// # Safety
    ///
    /// The domain with the serial number of the batch is there as long as the result is used.
    #[inline(always)]
    pub(super) unsafe fn registering<'a>(&self) -> Option<&'a mr::Raw> {
        // SAFETY: By the type invariant it is null or a region of that domain, which keeps it.
        unsafe { self.registering.as_ref() }
    }

    /// Which request `wr` is.
    pub(super) fn position(&self, wr: *const bindings::ib_send_wr) -> Option<usize> {
        self.requests
            .iter()
            .take(self.len)
            .position(|request| ptr::eq(request.as_ptr().cast(), wr))
    }
}

const WRITE_WITH_IMM: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
const REG_MR: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
