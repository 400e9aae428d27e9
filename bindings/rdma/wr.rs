// SPDX-License-Identifier: GPL-2.0

//! Work requests and their scatter entries.

use super::{
    Access,
    MemoryRegion,
    ProtectionDomain, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::{
        offset_of,
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The name of a work request: an index below the `work_ids` of its queue pair.
///
/// Several requests may be in flight under one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WorkId(pub u32);

/// A piece of DMA-mapped memory, in a work request (`ib_sge`).
///
/// Only made by what owns mapped memory, within the bounds of it, and never empty. Whoever posts
/// it keeps the owner until the request has completed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Sge {
    addr: u64,
    length: u32,
    lkey: u32,
}

// What is handed to C as `ib_sge`.
static_assert!(size_of::<Sge>() == size_of::<bindings::ib_sge>());
static_assert!(align_of::<Sge>() == align_of::<bindings::ib_sge>());
static_assert!(offset_of!(Sge, addr) == offset_of!(bindings::ib_sge, addr));
static_assert!(offset_of!(Sge, length) == offset_of!(bindings::ib_sge, length));
static_assert!(offset_of!(Sge, lkey) == offset_of!(bindings::ib_sge, lkey));

impl Sge {
    /// An entry to be overwritten, for arrays that are filled by `sges()`; posting it fails.
    pub const EMPTY: Self = Self {
        addr: 0,
        length: 0,
        lkey: 0,
    };

    #[inline]
    pub(crate) fn new(addr: u64, length: u32, lkey: u32) -> Self {
        Self { addr, length, lkey }
    }

    /// The length in bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether this is [`Self::EMPTY`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Up to `N` scatter entries, on the stack.
///
/// # Invariants
///
/// The first `len` of `entries` are initialised.
pub struct SgeList<const N: usize> {
    entries: [MaybeUninit<Sge>; N],
    len: usize,
}

impl<const N: usize> SgeList<N> {
    /// Makes an empty list.
    #[inline]
    pub fn new() -> Self {
        // INVARIANT: There are none.
        Self {
            entries: [const { MaybeUninit::uninit() }; N],
            len: 0,
        }
    }

    /// Makes an empty list at `place`.
    ///
    /// # Safety
    ///
    /// The place must be valid for writes.
    #[inline(always)]
    pub(super) unsafe fn init(place: *mut Self) {
        // INVARIANT: There are none.
        // SAFETY: By the function's requirement; the entries need no initialisation.
        unsafe { (&raw mut (*place).len).write(0) };
    }

    /// Adds an entry. `ENOSPC` if the list is full.
    #[inline]
    pub fn push(&mut self, sge: Sge) -> Result {
        self.entries.get_mut(self.len).ok_or(ENOSPC)?.write(sge);
        // INVARIANT: One more is initialised.
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    /// The entries.
    #[inline]
    pub fn as_slice(&self) -> &[Sge] {
        // SAFETY: By the type invariant; `MaybeUninit` has the layout of what it holds.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr().cast(), self.len) }
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
    pub(crate) fn spare(&mut self, count: usize) -> Option<*mut Sge> {
        let rest = self.entries.get_mut(self.len..)?;
        Some(rest.get_mut(..count)?.as_mut_ptr().cast())
    }

    /// Counts entries that were written.
    ///
    /// # Safety
    ///
    /// `count` entries were written where [`Self::spare()`] said.
    #[inline]
    pub(crate) unsafe fn added(&mut self, count: usize) {
        // INVARIANT: By the function's requirement.
        self.len = self.len.wrapping_add(count);
    }
}

impl<const N: usize> Default for SgeList<N> {
    fn default() -> Self {
        Self::new()
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

/// Any of the work requests that a chain may hold; all start with an `ib_send_wr`.
union Request {
    send: ManuallyDrop<bindings::ib_send_wr>,
    rdma: ManuallyDrop<bindings::ib_rdma_wr>,
    reg: ManuallyDrop<bindings::ib_reg_wr>,
}

/// Up to `N` send-side work requests that are posted at once and executed in order.
///
/// Built on the stack; the scatter lists and memory regions are borrowed until it is posted.
/// The methods fail with `ENOSPC` if there are `N` requests already, and with `EINVAL` if a
/// scatter entry is empty. `signaled` asks for a completion; a request that fails completes in
/// any case.
///
/// # Invariants
///
/// The first `len` of `requests` are initialised as requests of the type that their opcode names,
/// with `wr_id` holding a [`WorkId`], and everything they point to is borrowed for `'a`.
pub struct SendChain<'a, const N: usize> {
    requests: [MaybeUninit<Request>; N],
    len: usize,
    /// The domain of the regions that are registered.
    domain: Option<&'a Arc<ProtectionDomain>>,
    _borrowed: PhantomData<&'a [Sge]>,
}

impl<'a, const N: usize> SendChain<'a, N> {
    /// Makes an empty chain.
    #[inline]
    pub fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; N],
            len: 0,
            domain: None,
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

    #[inline]
    fn push(&mut self, request: Request) -> Result {
        let slot = self.requests.get_mut(self.len).ok_or(ENOSPC)?;
        // INVARIANT: The callers pass complete requests.
        slot.write(request);
        self.len += 1;
        Ok(())
    }

    /// RDMA write of `sges` to the peer's memory, which does not notice (`IB_WR_RDMA_WRITE`).
    #[inline]
    pub fn rdma_write(
        &mut self,
        id: WorkId,
        signaled: bool,
        sges: &'a [Sge],
        remote: RemoteMemory,
    ) -> Result {
        let wr = send_wr(bindings::ib_wr_opcode_IB_WR_RDMA_WRITE, id, signaled, sges)?;
        self.push(rdma(wr, remote))
    }

    /// RDMA write that also completes a receive of the peer, with `imm`
    /// (`IB_WR_RDMA_WRITE_WITH_IMM`). `sges` may be empty.
    #[inline]
    pub fn rdma_write_with_imm(
        &mut self,
        id: WorkId,
        signaled: bool,
        sges: &'a [Sge],
        remote: RemoteMemory,
        imm: u32,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        let mut wr = send_wr(opcode, id, signaled, sges)?;
        wr.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(rdma(wr, remote))
    }

    /// RDMA write without data, only to give the peer `imm`.
    #[inline]
    pub fn imm_only(&mut self, id: WorkId, signaled: bool, imm: u32) -> Result {
        let nowhere = RemoteMemory {
            address: 0,
            rkey: 0,
        };
        self.rdma_write_with_imm(id, signaled, &[], nowhere, imm)
    }

    /// Send of `sges` into a receive buffer of the peer (`IB_WR_SEND`).
    #[inline]
    pub fn send(&mut self, id: WorkId, signaled: bool, sges: &'a [Sge]) -> Result {
        let send = send_wr(bindings::ib_wr_opcode_IB_WR_SEND, id, signaled, sges)?;
        self.push(plain(send))
    }

    /// Send with `imm` in the peer's completion (`IB_WR_SEND_WITH_IMM`).
    #[inline]
    pub fn send_with_imm(
        &mut self,
        id: WorkId,
        signaled: bool,
        sges: &'a [Sge],
        imm: u32,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
        let mut send = send_wr(opcode, id, signaled, sges)?;
        send.ex.imm_data = ManuallyDrop::new(imm.to_be());
        self.push(plain(send))
    }

    /// Send that invalidates a registration of the peer, named by its `rkey`
    /// (`IB_WR_SEND_WITH_INV`). `sges` may be empty.
    #[inline]
    pub fn send_with_invalidate(
        &mut self,
        id: WorkId,
        signaled: bool,
        sges: &'a [Sge],
        rkey: u32,
    ) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        let mut send = send_wr(opcode, id, signaled, sges)?;
        send.ex.invalidate_rkey = ManuallyDrop::new(rkey);
        self.push(plain(send))
    }

    /// Makes what was mapped into `region` accessible under its key (`IB_WR_REG_MR`).
    ///
    /// The region must have been invalidated since it was last registered, and its mapping must
    /// not be changed before it is invalidated. It is not borrowed, since a request that is posted
    /// may be finished at any moment; what is borrowed is its domain, which keeps it even if it is
    /// dropped. `EINVAL` if it is of another domain, or the chain registers one of another.
    #[inline]
    pub fn reg_mr(
        &mut self,
        id: WorkId,
        signaled: bool,
        domain: &'a Arc<ProtectionDomain>,
        region: &MemoryRegion,
        access: Access,
    ) -> Result {
        if !Arc::ptr_eq(domain, region.domain())
            || !self.domain.is_none_or(|other| Arc::ptr_eq(domain, other))
        {
            return Err(EINVAL);
        }
        let wr = send_wr(bindings::ib_wr_opcode_IB_WR_REG_MR, id, signaled, &[])?;
        let reg = bindings::ib_reg_wr {
            wr,
            mr: region.as_raw(),
            key: region.rkey(),
            access: access.as_raw(),
        };
        self.push(Request {
            reg: ManuallyDrop::new(reg),
        })?;
        self.domain = Some(domain);
        Ok(())
    }

    /// Takes away the access that [`Self::reg_mr()`] gave (`IB_WR_LOCAL_INV`).
    #[inline]
    pub fn local_invalidate(&mut self, id: WorkId, signaled: bool, rkey: u32) -> Result {
        let opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        let mut send = send_wr(opcode, id, signaled, &[])?;
        send.ex.invalidate_rkey = ManuallyDrop::new(rkey);
        self.push(plain(send))
    }

    /// Links the requests and names their completions; returns the first.
    ///
    /// `EINVAL` for an empty chain, for a [`WorkId`] out of range, and if the memory region is of
    /// another protection domain, which would not keep it for as long as the queue pair needs it.
    #[inline]
    pub(super) fn link(
        &mut self,
        cqes: &[bindings::ib_cqe],
        domain: &Arc<ProtectionDomain>,
    ) -> Result<*const bindings::ib_send_wr> {
        if !self.domain.is_none_or(|own| Arc::ptr_eq(own, domain)) {
            return Err(EINVAL);
        }
        self.link_to(cqes)
    }

    /// See [`Self::link()`].
    #[inline]
    fn link_to(&mut self, cqes: &[bindings::ib_cqe]) -> Result<*const bindings::ib_send_wr> {
        let mut next: *mut bindings::ib_send_wr = ptr::null_mut();
        // What is linked is not to be linked again.
        let len = core::mem::take(&mut self.len);
        if len == 1 {
            // The usual case, for which the compiler knows where the request is.
            // SAFETY: By the type invariant there is one.
            return unsafe { link_one(self.requests.as_mut_ptr().cast(), next, cqes) };
        }
        for request in self.requests.iter_mut().take(len).rev() {
            // CAST: Every request starts with an `ib_send_wr`.
            let wr: *mut bindings::ib_send_wr = request.as_mut_ptr().cast();
            // SAFETY: By the type invariant it is.
            unsafe { link_one(wr, next, cqes) }?;
            next = wr;
        }
        if next.is_null() {
            return Err(EINVAL);
        }
        Ok(next)
    }
}

/// Names the completion of a request and what follows it; returns the request.
///
/// # Safety
///
/// `wr` is initialised and holds a [`WorkId`].
#[inline(always)]
unsafe fn link_one(
    wr: *mut bindings::ib_send_wr,
    next: *mut bindings::ib_send_wr,
    cqes: &[bindings::ib_cqe],
) -> Result<*const bindings::ib_send_wr> {
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
fn send_wr(
    opcode: bindings::ib_wr_opcode,
    id: WorkId,
    signaled: bool,
    sges: &[Sge],
) -> Result<bindings::ib_send_wr> {
    Ok(bindings::ib_send_wr {
        next: ptr::null_mut(),
        __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
            wr_id: ManuallyDrop::new(u64::from(id.0)),
        },
        sg_list: sge_list(sges)?,
        num_sge: c_int::try_from(sges.len()).map_err(|_| EINVAL)?,
        opcode,
        send_flags: send_flags(signaled),
        ex: bindings::ib_send_wr__bindgen_ty_2 {
            imm_data: ManuallyDrop::new(0),
        },
    })
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

/// The list for C, which does not write to it. `EINVAL` if an entry is empty.
#[inline]
pub(super) fn sge_list(sges: &[Sge]) -> Result<*mut bindings::ib_sge> {
    if sges.iter().any(Sge::is_empty) {
        return Err(EINVAL);
    }
    if sges.is_empty() {
        return Ok(ptr::null_mut());
    }
    // CAST: `Sge` has the layout of `ib_sge`, as asserted above.
    Ok(sges.as_ptr().cast_mut().cast())
}

#[inline]
fn plain(send: bindings::ib_send_wr) -> Request {
    Request {
        send: ManuallyDrop::new(send),
    }
}

#[inline]
fn rdma(wr: bindings::ib_send_wr, remote: RemoteMemory) -> Request {
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
