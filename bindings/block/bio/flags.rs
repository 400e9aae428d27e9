// SPDX-License-Identifier: GPL-2.0

//! Flags of bios and of their memory. Belongs to [`bio`](super).

use crate::{
    bindings,
    block::disk::Wait, //
};

/// The operation and flags of a write, as of direct IO; see [`bio`](super).
pub(super) const WRITE: u32 = bindings::req_op_REQ_OP_WRITE
    | flag(bindings::req_flag_bits___REQ_SYNC)
    | flag(bindings::req_flag_bits___REQ_IDLE);

/// The bio must not sleep.
pub(super) const NOWAIT: u32 = flag(bindings::req_flag_bits___REQ_NOWAIT);

/// The flag for `wait`: [`NOWAIT`], or none.
#[inline(always)]
pub(super) const fn nowait(wait: Wait) -> u32 {
    match wait {
        Wait::Never => NOWAIT,
        Wait::Allowed => 0,
    }
}

/// The flag of a bit number.
#[inline(always)]
pub(super) const fn flag(bit: bindings::req_flag_bits) -> u32 {
    1 << bit
}
