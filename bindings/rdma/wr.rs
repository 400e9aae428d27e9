// SPDX-License-Identifier: GPL-2.0

//! Work requests and their scatter entries.

use super::{
    Access,
    MemoryRegion, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr, //
};
use kernel::prelude::*;

/// The name of a work request: an index below the `wr_ids` of its queue pair.
///
/// Several requests may be in flight under one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WrId(pub u32);

/// A piece of DMA-mapped memory, for a work request on a queue pair of the same protection domain
/// (`ib_sge`).
///
/// Only made by an owner of mapped memory, within its bounds, and never empty. That memory stays
/// mapped as long as the domain; or it is in a region, whose key the device refuses when the region
/// is not registered.
pub struct Sge {
    raw: bindings::ib_sge,
    /// The serial number of the domain.
    domain: u64,
}

impl Sge {
    /// For `length` bytes that are mapped for the device of a domain.
    ///
    /// # Safety
    ///
    /// As the type says: the bytes are mapped at `addr` under the key `lkey` of that domain,
    /// `domain` is its serial number, and `length` is not 0. They stay mapped as long as the
    /// domain, or `lkey` is the key of a region, which ends before they are unmapped.
    #[inline]
    pub(crate) unsafe fn new(addr: u64, length: u32, lkey: u32, domain: u64) -> Self {
        Self {
            raw: bindings::ib_sge { addr, length, lkey },
            domain,
        }
    }
}

/// Up to `N` scatter entries of one protection domain, on the stack.
///
/// # Invariants
///
/// The first `len` of `entries` are initialised, and of the domain with the serial number `domain`.
pub struct SgeList<const N: usize> {
    entries: [MaybeUninit<bindings::ib_sge>; N],
    pub(super) len: usize,
    pub(super) domain: u64,
}

impl<const N: usize> SgeList<N> {
    /// Makes an empty list.
    #[inline]
    pub fn new() -> Self {
        // INVARIANT: There are none.
        Self {
            entries: [const { MaybeUninit::uninit() }; N],
            len: 0,
            domain: 0,
        }
    }

    /// The serial number of the domain of the entries; any if there are none.
    #[inline(always)]
    pub(super) fn domain(&self) -> u64 {
        self.domain
    }

    /// Whether the entries, if there are any, are of the domain with this serial number.
    #[inline(always)]
    pub(crate) fn is_of(&self, domain: u64) -> bool {
        self.domain == domain || self.len == 0
    }

    /// Adds an entry. `ENOSPC` if the list is full, `EINVAL` if the entry is of another domain than
    /// those that are there.
    #[inline(always)]
    pub fn push(&mut self, sge: Sge) -> Result {
        if self.domain != sge.domain {
            if self.len != 0 {
                return Err(EINVAL);
            }
            // INVARIANT: There are no entries yet.
            self.domain = sge.domain;
        }
        self.entries.get_mut(self.len).ok_or(ENOSPC)?.write(sge.raw);
        // INVARIANT: One more is initialised, and it is of that domain.
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// For C, which does not write to it.
    #[inline(always)]
    pub(super) fn as_raw(&self) -> RawList {
        RawList {
            entries: self.entries.as_ptr().cast_mut().cast(),
            // It is on the stack, so it is not that long.
            count: self.len as c_int,
            domain: if self.len == 0 { 0 } else { self.domain },
        }
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties the list.
    #[inline]
    pub fn clear(&mut self) {
        // INVARIANT: Needs nothing.
        self.len = 0;
    }

    /// Forgets all entries but the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        // INVARIANT: Fewer are.
        self.len = self.len.min(len);
    }

    /// Where `count` more entries go; `None` if there is no room.
    #[inline]
    pub(crate) fn spare(&mut self, count: usize) -> Option<*mut bindings::ib_sge> {
        let rest = self.entries.get_mut(self.len..)?;
        Some(rest.get_mut(..count)?.as_mut_ptr().cast())
    }

    /// Counts entries that were written.
    ///
    /// # Safety
    ///
    /// `count` entries were written where [`Self::spare()`] said, of the domain with that serial
    /// number, which the list [is of](Self::is_of).
    #[inline]
    pub(crate) unsafe fn added(&mut self, count: usize, domain: u64) {
        // INVARIANT: By the function's requirement.
        self.domain = domain;
        self.len = self.len.wrapping_add(count);
    }
}

impl<const N: usize> Default for SgeList<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Sge> for SgeList<1> {
    #[inline(always)]
    fn from(sge: Sge) -> Self {
        // INVARIANT: There is one.
        Self {
            entries: [MaybeUninit::new(sge.raw)],
            len: 1,
            domain: sge.domain,
        }
    }
}

/// What a work request has of a list.
pub(super) struct RawList {
    pub(super) entries: *mut bindings::ib_sge,
    pub(super) count: c_int,
    /// The serial number of their domain; 0 if there are none.
    domain: u64,
}

impl RawList {
    pub(super) const EMPTY: Self = Self::of_length(0);

    /// So many entries, whose place is not known yet; they are on the stack, so not that many.
    #[inline(always)]
    pub(super) const fn of_length(count: usize) -> Self {
        Self {
            entries: ptr::null_mut(),
            count: count as c_int,
            domain: 0,
        }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// The address in terms of the peer's registration.
    pub address: u64,
    /// The key of the peer's registration.
    pub rkey: u32,
}

impl RemoteMemory {
    /// For a write without data.
    pub const NONE: Self = Self {
        address: 0,
        rkey: 0,
    };
}

/// Any of the work requests that a chain may hold; all start with an `ib_send_wr`.
pub(super) union Request {
    send: ManuallyDrop<bindings::ib_send_wr>,
    rdma: ManuallyDrop<bindings::ib_rdma_wr>,
    reg: ManuallyDrop<bindings::ib_reg_wr>,
}

/// Up to `N` send-side work requests that are posted at once and executed in order.
///
/// Built on the stack; the scatter lists are borrowed until it is posted. The methods fail with
/// `ENOSPC` if there are `N` requests already, and with `EINVAL` if what the requests name would be
/// of several protection domains. `signaled` asks for a completion; a request that fails completes
/// in any case.
///
/// # Invariants
///
/// - The first `len` of `requests` are initialised as requests of the type that their opcode names,
///   with `wr_id` holding a [`WrId`], and the lists they point to are borrowed for `'a`.
/// - The scatter entries and the regions that they name are of the domain with the serial number
///   `domain`; if that is 0 there are none.
pub struct SendChain<'a, const N: usize> {
    requests: [MaybeUninit<Request>; N],
    len: usize,
    domain: u64,
    _borrowed: PhantomData<&'a bindings::ib_sge>,
}

impl<'a, const N: usize> SendChain<'a, N> {
    /// Makes an empty chain.
    #[inline]
    pub fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; N],
            len: 0,
            domain: 0,
            _borrowed: PhantomData,
        }
    }

    /// The number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no requests.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a request that names memory of the domain with this serial number; 0 if it names none.
    #[inline]
    fn push(&mut self, request: Request, domain: u64) -> Result {
        let slot = self.requests.get_mut(self.len).ok_or(ENOSPC)?;
        if domain != 0 {
            if self.domain != 0 && self.domain != domain {
                return Err(EINVAL);
            }
            self.domain = domain;
        }
        // INVARIANT: The callers pass complete requests, which name what is of the domain.
        slot.write(request);
        self.len += 1;
        Ok(())
    }

    /// RDMA write of `sges` to the peer's memory, which does not notice (`IB_WR_RDMA_WRITE`).
    #[inline]
    pub fn rdma_write<const S: usize>(
        &mut self,
        id: WrId,
        signaled: bool,
        sges: &'a SgeList<S>,
        remote: RemoteMemory,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        let list = sges.as_raw();
        self.push(
            rdma(send_wr(opcode, id, signaled, &list), remote),
            list.domain,
        )
    }

    /// RDMA write that also completes a receive of the peer, with `imm`
    /// (`IB_WR_RDMA_WRITE_WITH_IMM`). `sges` may be empty.
    #[inline]
    pub fn rdma_write_with_imm<const S: usize>(
        &mut self,
        id: WrId,
        signaled: bool,
        sges: &'a SgeList<S>,
        remote: RemoteMemory,
        imm: u32,
    ) -> Result {
        self.write_with_imm(id, signaled, &sges.as_raw(), remote, imm)
    }

    /// RDMA write without data, only to give the peer `imm`.
    #[inline]
    pub fn imm_only(&mut self, id: WrId, signaled: bool, imm: u32) -> Result {
        self.write_with_imm(id, signaled, &RawList::EMPTY, RemoteMemory::NONE, imm)
    }

    #[inline]
    fn write_with_imm(
        &mut self,
        id: WrId,
        signaled: bool,
        list: &RawList,
        remote: RemoteMemory,
        imm: u32,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        let mut wr = send_wr(opcode, id, signaled, list);
        wr.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(rdma(wr, remote), list.domain)
    }

    /// Send of `sges` into a receive buffer of the peer (`IB_WR_SEND`).
    #[inline]
    pub fn send<const S: usize>(
        &mut self,
        id: WrId,
        signaled: bool,
        sges: &'a SgeList<S>,
    ) -> Result {
        let list = sges.as_raw();
        let send = send_wr(bindings::ib_wr_opcode_IB_WR_SEND, id, signaled, &list);
        self.push(plain(send), list.domain)
    }

    /// Send with `imm` in the peer's completion (`IB_WR_SEND_WITH_IMM`).
    #[inline]
    pub fn send_with_imm<const S: usize>(
        &mut self,
        id: WrId,
        signaled: bool,
        sges: &'a SgeList<S>,
        imm: u32,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
        let list = sges.as_raw();
        let mut send = send_wr(opcode, id, signaled, &list);
        send.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(plain(send), list.domain)
    }

    /// Send without data that invalidates a registration of the peer, named by its `rkey`
    /// (`IB_WR_SEND_WITH_INV`).
    #[inline]
    pub fn send_with_invalidate(&mut self, id: WrId, signaled: bool, rkey: u32) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        let mut send = send_wr(opcode, id, signaled, &RawList::EMPTY);
        send.ex.invalidate_rkey = ManuallyDrop::new(rkey);
        self.push(plain(send), 0)
    }

    /// Makes what is mapped into `region` accessible under its key (`IB_WR_REG_MR`).
    ///
    /// `EINVAL` if nothing is, or if it is mapped for a direction that `access` does not suit. For
    /// memory that stays as long as the domain: another region stays in use until the domain is
    /// drained, see [`SendBatch::register()`](super::SendBatch::register).
    #[inline]
    pub fn reg_mr(
        &mut self,
        id: WrId,
        signaled: bool,
        region: &MemoryRegion,
        access: Access,
    ) -> Result {
        let serial = region.domain().serial();
        if self.domain != serial && self.domain != 0 {
            return Err(EINVAL);
        }
        region.begin_registering(access)?;
        let wr = send_wr(
            bindings::ib_wr_opcode_IB_WR_REG_MR,
            id,
            signaled,
            &RawList::EMPTY,
        );
        self.push(reg(wr, region, access), serial)
    }

    /// Takes away the access that [`Self::reg_mr()`] gave (`IB_WR_LOCAL_INV`).
    #[inline]
    pub fn local_invalidate(&mut self, id: WrId, signaled: bool, rkey: u32) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        let mut send = send_wr(opcode, id, signaled, &RawList::EMPTY);
        send.ex.invalidate_rkey = ManuallyDrop::new(rkey);
        self.push(plain(send), 0)
    }

    /// Links the requests and names their completions; returns the first.
    ///
    /// `EINVAL` for an empty chain, for a [`WrId`] out of range, for a request of more than
    /// `max_send_sge` scatter entries, and if what is named is of another
    /// domain than that with the serial number `domain`, which would not keep it for as long as the
    /// queue pair needs it.
    #[inline]
    pub(super) fn link(
        &mut self,
        cqes: &[bindings::ib_cqe],
        domain: u64,
        max_send_sge: u32,
    ) -> Result<*const bindings::ib_send_wr> {
        if self.domain != domain && self.domain != 0 {
            return Err(EINVAL);
        }
        self.link_to(cqes, max_send_sge)
    }

    /// See [`Self::link()`].
    #[inline]
    fn link_to(
        &mut self,
        cqes: &[bindings::ib_cqe],
        max_send_sge: u32,
    ) -> Result<*const bindings::ib_send_wr> {
        let mut next: *mut bindings::ib_send_wr = ptr::null_mut();
        // What is linked is not to be linked again.
        let len = core::mem::take(&mut self.len);
        self.domain = 0;
        if len == 1 {
            // The usual case, for which the compiler knows where the request is.
            // SAFETY: By the type invariant there is one.
            return unsafe {
                link_one(self.requests.as_mut_ptr().cast(), next, cqes, max_send_sge)
            };
        }
        for request in self.requests.iter_mut().take(len).rev() {
            // CAST: Every request starts with an `ib_send_wr`.
            let wr: *mut bindings::ib_send_wr = request.as_mut_ptr().cast();
            // SAFETY: By the type invariant it is.
            unsafe { link_one(wr, next, cqes, max_send_sge) }?;
            next = wr;
        }
        if next.is_null() {
            return Err(EINVAL);
        }
        Ok(next)
    }
}

/// Names the completion of a request and what follows it; returns the request. `EINVAL` if it has
/// more than `max_send_sge` scatter entries: drivers trust that there is room for them.
///
/// # Safety
///
/// `wr` is initialised and holds a [`WrId`].
#[inline(always)]
unsafe fn link_one(
    wr: *mut bindings::ib_send_wr,
    next: *mut bindings::ib_send_wr,
    cqes: &[bindings::ib_cqe],
    max_send_sge: u32,
) -> Result<*const bindings::ib_send_wr> {
    // SAFETY: By the function's requirement.
    if unsafe { (*wr).num_sge } as u32 > max_send_sge {
        return Err(EINVAL);
    }
    // SAFETY: By the function's requirement.
    let id = unsafe { *(*wr).__bindgen_anon_1.wr_id };
    let cqe = usize::try_from(id).ok().and_then(|id| cqes.get(id));
    let cqe: *const bindings::ib_cqe = cqe.ok_or(EINVAL)?;
    // SAFETY: As above.
    unsafe {
        (*wr).__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe.cast_mut());
        (*wr).next = next;
    }
    Ok(wr)
}

impl<const N: usize> Default for SendChain<'_, N> {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
pub(super) fn send_wr(
    opcode: bindings::ib_wr_opcode,
    id: WrId,
    signaled: bool,
    list: &RawList,
) -> bindings::ib_send_wr {
    bindings::ib_send_wr {
        next: ptr::null_mut(),
        __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
            wr_id: ManuallyDrop::new(u64::from(id.0)),
        },
        sg_list: list.entries,
        num_sge: list.count,
        opcode,
        send_flags: send_flags(signaled),
        ex: bindings::ib_send_wr__bindgen_ty_2 {
            imm_data: ManuallyDrop::new(0),
        },
    }
}

/// The flags of a request that may ask for a completion.
#[inline]
pub(super) const fn send_flags(signaled: bool) -> c_int {
    if signaled {
        bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
    } else {
        0
    }
}

#[inline]
pub(super) fn plain(send: bindings::ib_send_wr) -> Request {
    Request {
        send: ManuallyDrop::new(send),
    }
}

/// A registration of `region`, which gives `access`.
pub(super) fn reg(wr: bindings::ib_send_wr, region: &MemoryRegion, access: Access) -> Request {
    Request {
        reg: ManuallyDrop::new(bindings::ib_reg_wr {
            wr,
            mr: region.as_raw(),
            key: region.rkey(),
            access: access.as_raw(),
        }),
    }
}

#[inline]
pub(super) fn rdma(wr: bindings::ib_send_wr, remote: RemoteMemory) -> Request {
    Request {
        rdma: ManuallyDrop::new(bindings::ib_rdma_wr {
            wr,
            remote_addr: remote.address,
            rkey: remote.rkey,
        }),
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/rdma_wr.rs"]
mod tests;
