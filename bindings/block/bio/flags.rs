// SPDX-License-Identifier: GPL-2.0

//! Flags of bios and of their memory. Belongs to [`bio`](super).

use crate::{
    bindings,
    block::disk::Wait, //
};

/// A write as direct IO marks it; see [`bio`](super).
pub(super) const WRITE: u32 = bindings::req_op_REQ_OP_WRITE
    | flag(bindings::req_flag_bits___REQ_SYNC)
    | flag(bindings::req_flag_bits___REQ_IDLE);

/// The bio must not sleep.
pub(super) const NOWAIT: u32 = flag(bindings::req_flag_bits___REQ_NOWAIT);

/// The flag of a bio that may, or may not, sleep.
#[inline(always)]
pub(super) const fn nowait(wait: Wait) -> u32 {
    match wait {
        Wait::Never => NOWAIT,
        Wait::Allowed => 0,
    }
}

/// Memory is not waited for.
pub(super) const GFP_NOWAIT: bindings::gfp_t =
    1 << bindings::___GFP_KSWAPD_RECLAIM_BIT | 1 << bindings::___GFP_NOWARN_BIT;

/// Memory may be waited for, but not by submitting IO, since it is IO that waits.
pub(super) const GFP_NOIO: bindings::gfp_t =
    1 << bindings::___GFP_DIRECT_RECLAIM_BIT | 1 << bindings::___GFP_KSWAPD_RECLAIM_BIT;

/// The flag of a bit number.
#[inline(always)]
pub(super) const fn flag(bit: bindings::req_flag_bits) -> u32 {
    1 << bit
}
