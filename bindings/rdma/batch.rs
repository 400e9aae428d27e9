// SPDX-License-Identifier: GPL-2.0

//! Batches: send-side work requests that are collected, and then posted at once.
//!
//! Would be: part of `rust/kernel/rdma/wr.rs`.

use super::{
    mr,
    wr::{
        plain,
        rdma,
        reg,
        send_wr,
        Request, //
    },
    Access,
    Direction,
    MemoryRegion,
    RemoteMemory,
    Sge,
    WrId, //
};
use crate::{
    bindings,
    prelude::*,
    scatterlist::ScatterTable, //
};
use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr, //
};

/// Room for up to `N` send-side work requests, with `S` scatter entries in all. The room is on the
/// stack; the IO path must not move it, as that would copy it.
pub struct SendRoom<const N: usize, const S: usize> {
    requests: [MaybeUninit<Request>; N],
    regions: [MaybeUninit<*const mr::Raw>; N],
    entries: [MaybeUninit<bindings::ib_sge>; S],
}

impl<const N: usize, const S: usize> SendRoom<N, S> {
    /// Room without requests.
    pub const EMPTY: Self = Self {
        requests: [const { MaybeUninit::uninit() }; N],
        regions: [const { MaybeUninit::uninit() }; N],
        entries: [const { MaybeUninit::uninit() }; S],
    };
}

/// Send-side work requests, which are posted at once and carried out in order.
///
/// First the entries of a request are added, then the request. The memory of an entry stays as long
/// as the protection domain, or a [`MemoryRegion`] knows of the request. The methods fail with
/// `ENOSPC` if there is no room, and with `EINVAL` if the requests would name memory of several
/// domains. `signaled` asks for a completion. A request that fails completes in any case.
///
/// The counts are not part of the room, so that they can stay in registers: the driver gets an
/// address in the room, so the compiler has to store all of the room in memory.
///
/// # Invariants
///
/// - The first `len` of the `requests` in `room` are initialised as requests of the type that their
///   opcode names, except for what [`Self::link()`] sets. `next` of each is null. `wr_id` of each
///   holds a [`WrId`], or [`OF_REGION`]; then the element of `regions` with the same index is set.
/// - The first `added` of the `entries` are initialised. Together the requests have the first
///   `taken` of them, in this order.
/// - An entry that names memory of a table is part of a request, and the region that has mapped the
///   table is in use for sending.
/// - `registering` is null, or the region of the only request that registers a region that is not
///   permanent.
/// - The entries, and the regions of the requests, in `regions` and in `registering`, are of the
///   domain with the serial number `domain`. If `domain` is 0, there are neither entries nor
///   regions.
/// - The requests may be posted on the queue pair with the serial number `queue_pair`. If that is
///   0, they may be posted on any queue pair of the domain.
pub struct SendBatch<'a, const N: usize, const S: usize> {
    room: &'a mut SendRoom<N, S>,
    len: usize,
    added: usize,
    taken: usize,
    registering: *const mr::Raw,
    domain: u64,
    queue_pair: u64,
}

/// In place of a [`WrId`]: the completion goes to the region.
const OF_REGION: u64 = u64::MAX;

/// Some requests of a batch were not posted.
#[derive(Clone, Copy, Debug)]
pub struct Unposted {
    /// The first request that was not posted; `None` if the driver does not report it, or not
    /// reliably.
    pub first: Option<usize>,
    /// The cause.
    pub error: Error,
}

impl From<Unposted> for Error {
    #[inline(always)]
    fn from(unposted: Unposted) -> Self {
        unposted.error
    }
}

/// The queue pair that a batch is linked for.
pub(super) struct Target<'a> {
    pub(super) cqes: &'a [bindings::ib_cqe],
    pub(super) domain: u64,
    pub(super) queue_pair: u64,
    pub(super) max_send_sge: u32,
}

impl<'a, const N: usize, const S: usize> SendBatch<'a, N, S> {
    /// Makes an empty batch in `room`.
    #[inline(always)]
    pub fn new(room: &'a mut SendRoom<N, S>) -> Self {
        // INVARIANT: There are no requests and no entries.
        Self {
            room,
            len: 0,
            added: 0,
            taken: 0,
            registering: ptr::null(),
            domain: 0,
            queue_pair: 0,
        }
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

    /// Whether there is room for `requests` more requests with `entries` entries in all.
    #[inline(always)]
    pub fn has_room(&self, requests: usize, entries: usize) -> bool {
        requests <= N - self.len && entries <= S - self.taken
    }

    /// Adds an entry to the next request.
    #[inline(always)]
    pub fn add(&mut self, sge: Sge) -> Result {
        let (entry, domain) = sge.into_raw();
        self.domain = self.common_domain(domain)?;
        self.room
            .entries
            .get_mut(self.added)
            .ok_or(ENOSPC)?
            .write(entry);
        // INVARIANT: The entry is initialised, and it is of the domain.
        self.added = self.added.wrapping_add(1);
        Ok(())
    }

    /// Adds `count` entries of the domain with the serial number `domain` to the next request:
    /// `write` writes them to its argument. False, and no entry is added, if there is no room, or
    /// if the batch names memory of another domain.
    ///
    /// # Safety
    ///
    /// `write` must write `count` entries, of memory that is mapped as [`Sge`] requires.
    #[inline(always)]
    unsafe fn add_from(
        &mut self,
        count: usize,
        domain: u64,
        write: impl FnOnce(*mut bindings::ib_sge),
    ) -> bool {
        if self.common_domain(domain).is_err() {
            return false;
        }
        let rest = self.room.entries.get_mut(self.added..);
        let Some(room) = rest.and_then(|rest| rest.get_mut(..count)) else {
            return false;
        };
        write(room.as_mut_ptr().cast());
        // INVARIANT: By the function's requirement.
        self.domain = domain;
        self.added = self.added.wrapping_add(count);
        true
    }

    /// The number of entries that the next request has so far.
    #[inline(always)]
    pub(crate) fn pending(&self) -> usize {
        self.added.wrapping_sub(self.taken)
    }

    /// Checks that the batch may name memory of the domain with the serial number `domain`, and
    /// returns that number. `EINVAL` if the batch names memory of another domain.
    #[inline(always)]
    pub(super) fn common_domain(&self, domain: u64) -> Result<u64> {
        if self.domain == domain || self.domain == 0 {
            Ok(domain)
        } else {
            Err(EINVAL)
        }
    }

    /// Forgets the entries that were added since the last request.
    #[inline(always)]
    pub fn reset(&mut self) {
        // INVARIANT: The entries of the requests stay.
        self.added = self.taken;
        if self.len == 0 {
            // INVARIANT: There are neither requests nor entries.
            self.domain = 0;
        }
    }

    /// Forgets all requests and entries.
    #[inline(always)]
    pub fn clear(&mut self) {
        // INVARIANT: There are no requests and no entries.
        self.len = 0;
        self.added = 0;
        self.taken = 0;
        self.registering = ptr::null();
        self.domain = 0;
        self.queue_pair = 0;
    }

    /// RDMA write of the entries that were added since the last request to the peer's memory,
    /// without a completion at the peer (`IB_WR_RDMA_WRITE`).
    #[inline]
    pub fn rdma_write(&mut self, id: WrId, signaled: bool, remote: RemoteMemory) -> Result {
        let count = self.pending();
        let wr = send_wr(RDMA_WRITE, id, signaled, count, 0);
        self.push(rdma(wr, remote), count)
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
        let count = self.pending();
        let wr = send_wr(WRITE_WITH_IMM, id, signaled, count, imm.to_be());
        self.push(rdma(wr, remote), count)
    }

    /// As [`Self::write_with_imm()`], of the memory of `table`, which `region` has mapped, and then
    /// of `last`. The table stays mapped until
    /// [`Handler::region_completed()`](super::Handler::region_completed) tells that the write has
    /// completed.
    ///
    /// False, and nothing is added, if the request would have more than `limit` entries or more
    /// than there is room for, if another region has mapped the table, or if its memory must not be
    /// sent. `EBUSY` if a device uses the table already. `EINVAL` if entries were added before, if
    /// there is no room for a request, or if `limit` is 0.
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
        if self.pending() != 0 || self.len >= N {
            return Err(EINVAL);
        }
        // Before the entries are read, as the table cannot be unmapped from here on.
        let direction = region.begin_sending()?;
        let (domain, mapped) = (region.domain(), table.mapped_by(region.serial()));
        let added = match mapped {
            Some((list, count))
                if count as usize <= limit && direction.permits(Direction::ToDevice) =>
            {
                // SAFETY: `count` DMA entries are mapped for the domain, and the region is in use
                // for sending. The added entries are forgotten below, or become part of a request
                // with the region's `cqe`.
                unsafe {
                    self.add_from(count as usize, domain.serial(), |out| {
                        let lkey = domain.local_dma_lkey();
                        bindings::rnbd_helper_sg_to_sges(list, count, lkey, out);
                    })
                }
            }
            _ => false,
        };
        if !added || self.add(last).is_err() {
            self.reset();
            region.cancel_sending();
            return Ok(false);
        }
        let count = self.pending();
        let wr = send_wr(WRITE_WITH_IMM, WrId(0), true, count, imm.to_be());
        self.push_of_region(rdma(wr, remote), count, region)?;
        Ok(true)
    }

    /// RDMA write without data, only to give the peer `imm`.
    #[inline]
    pub fn imm_only(&mut self, id: WrId, signaled: bool, imm: u32) -> Result {
        let wr = send_wr(WRITE_WITH_IMM, id, signaled, 0, imm.to_be());
        self.push(rdma(wr, RemoteMemory::NONE), 0)
    }

    /// Send of the entries that were added since the last request into a receive buffer of the peer
    /// (`IB_WR_SEND`).
    pub fn send(&mut self, id: WrId, signaled: bool) -> Result {
        let count = self.pending();
        self.push(plain(send_wr(SEND, id, signaled, count, 0)), count)
    }

    /// As [`Self::send()`], with `imm` in the peer's completion (`IB_WR_SEND_WITH_IMM`).
    pub fn send_with_imm(&mut self, id: WrId, signaled: bool, imm: u32) -> Result {
        let count = self.pending();
        let wr = send_wr(SEND_WITH_IMM, id, signaled, count, imm.to_be());
        self.push(plain(wr), count)
    }

    /// Send without data that invalidates the registration of the peer with the key `rkey`
    /// (`IB_WR_SEND_WITH_INV`).
    pub fn send_with_invalidate(&mut self, id: WrId, signaled: bool, rkey: u32) -> Result {
        self.push(plain(send_wr(SEND_WITH_INV, id, signaled, 0, rkey)), 0)
    }

    /// Registers `region` (`IB_WR_REG_MR`): then its key gives `access` to its memory. A batch
    /// registers at most one region with a table, and any number of permanent regions, whose memory
    /// stays as long as the domain.
    ///
    /// `EINVAL` if the memory is mapped for a direction that `access` does not suit, `EBUSY` if the
    /// region has no memory, or a table that is registered already, `ENOSPC` for a second table.
    pub fn register(
        &mut self,
        id: WrId,
        signaled: bool,
        region: &MemoryRegion,
        access: Access,
    ) -> Result {
        if self.len >= N {
            return Err(ENOSPC);
        }
        self.domain = self.common_domain(region.domain().serial())?;
        if !region.is_permanent(access)? {
            if !self.registering.is_null() {
                return Err(ENOSPC);
            }
            // INVARIANT: The request may be posted on the queue pair that `begin_registering()`
            // returns, which is 0 or that of the batch.
            self.queue_pair |= region.begin_registering(access, self.queue_pair)?;
            // INVARIANT: The region is of the domain, and is that of the request which is made now.
            self.registering = region.raw();
        }
        let wr = send_wr(REG_MR, id, signaled, 0, 0);
        self.push(reg(wr, region.as_raw(), region.rkey(), access), 0)
    }

    /// Ends the access that [`Self::register()`] gave (`IB_WR_LOCAL_INV`). The batch must be posted
    /// on the queue pair of the registration.
    ///
    /// The table may be unmapped when
    /// [`Handler::region_completed()`](super::Handler::region_completed) has told that the request
    /// completed without an error. `EBUSY` if the region is not registered, or not any more.
    pub fn invalidate(&mut self, region: &MemoryRegion) -> Result {
        if self.len >= N || self.queue_pair != 0 {
            return Err(ENOSPC);
        }
        self.domain = self.common_domain(region.domain().serial())?;
        // INVARIANT: The request may be posted on the queue pair of the registration only.
        self.queue_pair = region.begin_ending()?;
        let wr = send_wr(LOCAL_INV, WrId(0), true, 0, region.rkey());
        self.push_of_region(plain(wr), 0, region)
    }

    /// Ends the access that the key `rkey` of a permanent region gives (`IB_WR_LOCAL_INV`). The
    /// state of the region stays the same. So a region with a table needs [`Self::invalidate()`];
    /// otherwise its table stays mapped until the domain is drained.
    pub fn invalidate_key(&mut self, id: WrId, signaled: bool, rkey: u32) -> Result {
        self.push(plain(send_wr(LOCAL_INV, id, signaled, 0, rkey)), 0)
    }

    /// Adds a request with the next `count` entries. The completion of the request goes to
    /// `region`, which is of the domain of the batch.
    fn push_of_region(
        &mut self,
        mut request: Request,
        count: usize,
        region: &MemoryRegion,
    ) -> Result {
        let place = self.room.regions.get_mut(self.len).ok_or(ENOSPC)?;
        place.write(region.raw());
        request.set_wr_id(OF_REGION);
        self.push(request, count)
    }

    /// Adds a request with the next `count` entries. Its region, if there is one, is of the domain
    /// of the batch.
    #[inline(always)]
    fn push(&mut self, request: Request, count: usize) -> Result {
        // INVARIANT: The callers pass complete requests. If the completion goes to a region, the
        // caller has set the element of `regions`.
        self.room
            .requests
            .get_mut(self.len)
            .ok_or(ENOSPC)?
            .write(request);
        self.len = self.len.wrapping_add(1);
        // INVARIANT: The next `count` entries are those of the request.
        self.taken = self.taken.wrapping_add(count);
        Ok(())
    }

    /// Links the requests, sets their `wr_cqe` and their list of entries, and returns the first
    /// request. To be called once. `EINVAL` if there are no requests, if a work request id is out
    /// of range, if a request has more than `max_send_sge` entries, which drivers do not check, or
    /// if the requests are for another domain or another queue pair.
    #[inline(always)]
    pub(super) fn link(&mut self, target: &Target<'_>) -> Result<*const bindings::ib_send_wr> {
        if (self.domain != target.domain && self.domain != 0)
            || (self.queue_pair != target.queue_pair && self.queue_pair != 0)
        {
            return Err(EINVAL);
        }
        let mut entries: *mut bindings::ib_sge = self.room.entries.as_mut_ptr().cast();
        let Some(requests) = self.room.requests.get_mut(..self.len) else {
            return Err(EINVAL);
        };
        let mut next: *mut bindings::ib_send_wr = ptr::null_mut();
        let mut last: *mut *mut bindings::ib_send_wr = &raw mut next;
        for (request, region) in requests.iter_mut().zip(&self.room.regions) {
            // CAST: Every request begins with an `ib_send_wr`.
            let wr: *mut bindings::ib_send_wr = request.as_mut_ptr().cast();
            // SAFETY: By the type invariant the request is initialised, with its work request id.
            let (id, count) = unsafe { (*(*wr).__bindgen_anon_1.wr_id, (*wr).num_sge) };
            if count as u32 > target.max_send_sge {
                return Err(EINVAL);
            }
            let cqe = if id == OF_REGION {
                // SAFETY: By the type invariant the region is set, and is of the domain of the
                // queue pair, which keeps the region.
                unsafe { &raw const (*region.assume_init()).cqe }
            } else {
                ptr::from_ref(target.cqes.get(id as usize).ok_or(EINVAL)?)
            };
            // SAFETY: By the type invariant the request is initialised, with `next` null, and its
            // entries begin at `entries`. `last` points to the local `next`, or to that field of
            // the request before.
            unsafe {
                (&raw mut (*wr).__bindgen_anon_1).write(bindings::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(cqe.cast_mut()),
                });
                (&raw mut (*wr).sg_list).write(entries);
                entries = entries.add(count as usize);
                last.write(wr);
                last = &raw mut (*wr).next;
            }
        }
        if next.is_null() {
            return Err(EINVAL);
        }
        Ok(next)
    }

    /// The region with a table that a request of the batch registers; null if there is none.
    #[inline(always)]
    pub(super) fn registering(&self) -> *const mr::Raw {
        self.registering
    }

    /// The index of the request `wr`.
    pub(super) fn position(&self, wr: *const bindings::ib_send_wr) -> Option<usize> {
        self.room
            .requests
            .iter()
            .take(self.len)
            .position(|request| ptr::eq(request.as_ptr().cast(), wr))
    }
}

const RDMA_WRITE: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
const WRITE_WITH_IMM: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
const SEND: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_SEND;
const SEND_WITH_IMM: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
const SEND_WITH_INV: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
const REG_MR: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
const LOCAL_INV: bindings::ib_wr_opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/rdma_batch.rs"]
mod tests;
