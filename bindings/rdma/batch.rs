// SPDX-License-Identifier: GPL-2.0

//! RDMA writes that are collected, and then posted at once.

use super::{
    ProtectionDomain,
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

/// Up to `N` RDMA writes with immediate, of `S` scatter entries in all, on the stack.
///
/// First the entries of a write are added, then the write. What they name must stay until the
/// write has completed. Each write has a key, by which whoever posts it knows it.
///
/// # Invariants
///
/// The first `len` of `requests` are initialised, except for what [`Self::link()`] sets, and so are
/// the first `len` of `keys`; together the writes have the first `taken` of `entries`, in this
/// order.
pub struct WriteBatch<const N: usize, const S: usize> {
    requests: [MaybeUninit<bindings::ib_rdma_wr>; N],
    keys: [MaybeUninit<u32>; N],
    len: usize,
    entries: SgeList<S>,
    taken: usize,
}

/// Some writes of a batch were not posted.
#[derive(Clone, Copy, Debug)]
pub struct Unposted {
    /// The first of them; nothing if the driver does not say, or not for certain.
    pub first: Option<usize>,
    /// Why.
    pub error: Error,
}

impl<const N: usize, const S: usize> WriteBatch<N, S> {
    /// Makes an empty batch at `place`, from where it is not to be moved in the IO path.
    #[inline(always)]
    pub fn init(place: &mut MaybeUninit<Self>) -> &mut Self {
        let this = place.as_mut_ptr();
        // SAFETY: The place is valid for writes.
        unsafe {
            // INVARIANT: There are none.
            (&raw mut (*this).len).write(0);
            (&raw mut (*this).taken).write(0);
            SgeList::init(&raw mut (*this).entries);
        }
        // SAFETY: The arrays need no initialisation; everything else was just initialised.
        unsafe { place.assume_init_mut() }
    }

    /// The number of writes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no writes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is room for a write of so many entries.
    #[inline(always)]
    pub fn has_room(&self, entries: usize) -> bool {
        self.len < N && entries <= S - self.taken
    }

    /// Adds an entry to the next write. `ENOSPC` if there is no room, `EINVAL` if it is of another
    /// protection domain than those that are there.
    #[inline(always)]
    pub fn add(&mut self, sge: Sge) -> Result {
        self.entries.push(sge)
    }

    /// Adds the entries of `table` to the next write; see [`ScatterTable::add_sges()`]. The limit
    /// is that of the write.
    #[inline(always)]
    pub fn add_mapped(
        &mut self,
        table: &ScatterTable,
        domain: &ProtectionDomain,
        limit: usize,
    ) -> bool {
        table.add_sges(domain, &mut self.entries, self.taken.wrapping_add(limit))
    }

    /// Forgets the entries that were added since the last write.
    #[inline(always)]
    pub fn reset(&mut self) {
        // INVARIANT: Those of the writes are not touched.
        self.entries.truncate(self.taken);
    }

    /// Forgets all.
    #[inline(always)]
    pub fn clear(&mut self) {
        // INVARIANT: There are none.
        self.len = 0;
        self.taken = 0;
        self.entries.clear();
    }

    /// The keys of the writes.
    #[inline(always)]
    pub fn keys(&self) -> &[u32] {
        let keys = self.keys.get(..self.len).unwrap_or(&[]);
        // SAFETY: By the type invariant; `MaybeUninit` has the layout of what it holds.
        unsafe { core::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
    }

    /// Adds a write of the entries that were added since the last one
    /// (`IB_WR_RDMA_WRITE_WITH_IMM`), named `id`. `signaled` asks for a completion. `ENOSPC` if the
    /// batch is full.
    #[inline(always)]
    pub fn write_with_imm(
        &mut self,
        key: u32,
        id: WrId,
        signaled: bool,
        remote: RemoteMemory,
        imm: u32,
    ) -> Result {
        let (Some(slot), Some(place)) =
            (self.requests.get_mut(self.len), self.keys.get_mut(self.len))
        else {
            return Err(ENOSPC);
        };
        place.write(key);
        let count = self.entries.len().wrapping_sub(self.taken);
        let write = slot.as_mut_ptr();
        // SAFETY: The place is valid for writes. These are all fields but those that `link()` sets.
        unsafe {
            let wr = &raw mut (*write).wr;
            (&raw mut (*wr).__bindgen_anon_1).write(bindings::ib_send_wr__bindgen_ty_1 {
                wr_id: ManuallyDrop::new(u64::from(id.0)),
            });
            // At most `S`.
            (&raw mut (*wr).num_sge).write(count as c_int);
            (&raw mut (*wr).opcode).write(bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM);
            (&raw mut (*wr).send_flags).write(if signaled {
                bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
            } else {
                0
            });
            (&raw mut (*wr).ex).write(bindings::ib_send_wr__bindgen_ty_2 {
                imm_data: ManuallyDrop::new(imm.to_be()),
            });
            (&raw mut (*write).remote_addr).write(remote.address);
            (&raw mut (*write).rkey).write(remote.rkey);
        }
        // INVARIANT: One more, with the next entries.
        self.len = self.len.wrapping_add(1);
        self.taken = self.entries.len();
        Ok(())
    }

    /// Links the writes, looks their names up, and shows them where their entries are; returns the
    /// first. To be called once. `EINVAL` if there are none, if there is no such name, if a write
    /// has more than `max_send_sge` entries, for which drivers trust that there is room, or if
    /// their entries, of which there have to be some, are of another domain than that with the
    /// serial number `domain`.
    #[inline(always)]
    pub(super) fn link(
        &mut self,
        cqes: &[bindings::ib_cqe],
        domain: u64,
        max_send_sge: u32,
    ) -> Result<*const bindings::ib_send_wr> {
        if self.entries.domain() != domain {
            return Err(EINVAL);
        }
        let mut entries = self.entries.as_raw().entries;
        let Some(writes) = self.requests.get_mut(..self.len) else {
            return Err(EINVAL);
        };
        let mut next: *mut bindings::ib_send_wr = ptr::null_mut();
        let mut last: *mut *mut bindings::ib_send_wr = &raw mut next;
        for write in writes {
            // CAST: The write begins with an `ib_send_wr`.
            let wr: *mut bindings::ib_send_wr = write.as_mut_ptr().cast();
            // SAFETY: By the type invariant the write is initialised, with its name.
            let id = unsafe { (*wr).__bindgen_anon_1.wr_id };
            let cqe: *const bindings::ib_cqe = cqes.get(*id as usize).ok_or(EINVAL)?;
            // SAFETY: As above.
            if unsafe { (*wr).num_sge } as u32 > max_send_sge {
                return Err(EINVAL);
            }
            // SAFETY: By the type invariant the write is initialised, and its entries are the next;
            // `last` points to `next` or to the field of the write before.
            unsafe {
                (&raw mut (*wr).__bindgen_anon_1).write(bindings::ib_send_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(cqe.cast_mut()),
                });
                (&raw mut (*wr).sg_list).write(entries);
                entries = entries.add((*wr).num_sge as usize);
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

    /// Which write `wr` is.
    pub(super) fn position(&self, wr: *const bindings::ib_send_wr) -> Option<usize> {
        self.requests
            .iter()
            .take(self.len)
            .position(|write| ptr::eq(write.as_ptr().cast(), wr))
    }
}
