// SPDX-License-Identifier: GPL-2.0

//! Work requests and their scatter entries.

use super::Access;
use crate::{
    bindings,
    prelude::*, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};

/// A work request id: an index below the `wr_ids` of its queue pair.
///
/// Several requests with the same id may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WrId(pub u32);

/// A piece of DMA-mapped memory, for a work request on a queue pair of the same protection domain
/// (`ib_sge`).
///
/// Only an owner of mapped memory makes an entry, within the bounds of that memory, and never an
/// empty one. The memory stays mapped as long as the domain; or it is in a region, whose key the
/// device refuses when the region is not registered.
pub struct Sge {
    raw: bindings::ib_sge,
    /// The serial number of the domain.
    domain: u64,
}

impl Sge {
    /// Makes the entry of `length` bytes that are mapped for the device of a domain.
    ///
    /// # Safety
    ///
    /// The bytes are mapped at `addr` under the key `lkey` of the domain, `domain` is the serial
    /// number of the domain, and `length` is not 0. The bytes stay mapped as long as the domain, or
    /// `lkey` is the key of a region, which becomes invalid before the bytes are unmapped.
    #[inline]
    pub(crate) unsafe fn new(addr: u64, length: u32, lkey: u32, domain: u64) -> Self {
        Self {
            raw: bindings::ib_sge { addr, length, lkey },
            domain,
        }
    }

    /// The C structure, and the serial number of the domain.
    #[inline(always)]
    pub(super) fn into_raw(self) -> (bindings::ib_sge, u64) {
        (self.raw, self.domain)
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

/// A work request of a batch. Every variant starts with an `ib_send_wr`.
pub(super) union Request {
    send: ManuallyDrop<bindings::ib_send_wr>,
    rdma: ManuallyDrop<bindings::ib_rdma_wr>,
    reg: ManuallyDrop<bindings::ib_reg_wr>,
}

impl Request {
    /// Changes the work request id.
    #[inline(always)]
    pub(super) fn set_wr_id(&mut self, id: u64) {
        // SAFETY: Every request starts with an `ib_send_wr`.
        let wr = unsafe { &mut self.send };
        wr.__bindgen_anon_1.wr_id = ManuallyDrop::new(id);
    }
}

/// The common part of a request with `count` entries. Linking sets the address of the entries.
/// `extra` is an immediate in network byte order, or the key of a registration that the request
/// ends.
#[inline(always)]
pub(super) fn send_wr(
    opcode: bindings::ib_wr_opcode,
    id: WrId,
    signaled: bool,
    count: usize,
    extra: u32,
) -> bindings::ib_send_wr {
    let flags = match signaled {
        true => bindings::ib_send_flags_IB_SEND_SIGNALED,
        false => 0,
    };
    bindings::ib_send_wr {
        next: ptr::null_mut(),
        __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
            wr_id: ManuallyDrop::new(u64::from(id.0)),
        },
        sg_list: ptr::null_mut(),
        // The entries are on the stack, so their number fits.
        num_sge: count as c_int,
        opcode,
        send_flags: flags as c_int,
        // The key has the same type, and is in the same place of the union.
        ex: bindings::ib_send_wr__bindgen_ty_2 {
            imm_data: ManuallyDrop::new(extra),
        },
    }
}

/// A request of the common part alone.
#[inline(always)]
pub(super) fn plain(send: bindings::ib_send_wr) -> Request {
    Request {
        send: ManuallyDrop::new(send),
    }
}

/// A request that registers the region `mr` under `key`, and gives `access`.
pub(super) fn reg(
    wr: bindings::ib_send_wr,
    mr: *mut bindings::ib_mr,
    key: u32,
    access: Access,
) -> Request {
    Request {
        reg: ManuallyDrop::new(bindings::ib_reg_wr {
            wr,
            mr,
            key,
            access: access.as_raw(),
        }),
    }
}

/// A request that writes to `remote`.
#[inline(always)]
pub(super) fn rdma(wr: bindings::ib_send_wr, remote: RemoteMemory) -> Request {
    Request {
        rdma: ManuallyDrop::new(bindings::ib_rdma_wr {
            wr,
            remote_addr: remote.address,
            rkey: remote.rkey,
        }),
    }
}
