// SPDX-License-Identifier: GPL-2.0

//! Work completions.

use super::WrId;
use crate::{
    bindings,
    prelude::*, //
};
use kernel::str::CStr;

/// How a work request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The request was carried out.
    Success,
    /// The request was not carried out, as the queue pair failed or was shut down before.
    Flushed,
    /// The request failed, and the queue pair with it.
    Error(ErrorStatus),
}

/// The cause of a failure (`ib_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorStatus(bindings::ib_wc_status);

impl ErrorStatus {
    /// The peer found no registration under the key, or none that allows the access
    /// (`IB_WC_REM_ACCESS_ERR`).
    pub const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);

    /// The peer could not take the message, for example because it is longer than the receive
    /// (`IB_WC_REM_INV_REQ_ERR`).
    pub const REMOTE_INVALID_REQUEST: Self = Self(bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR);

    /// The peer failed to carry the request out (`IB_WC_REM_OP_ERR`).
    pub const REMOTE_OPERATION: Self = Self(bindings::ib_wc_status_IB_WC_REM_OP_ERR);

    /// The peer had no receive each time that this end tried (`IB_WC_RNR_RETRY_EXC_ERR`).
    pub const NO_RECEIVE: Self = Self(bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR);

    /// The peer did not acknowledge (`IB_WC_RETRY_EXC_ERR`).
    pub const NOT_ACKNOWLEDGED: Self = Self(bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR);

    /// The number of the cause (`ib_wc_status`), for a variable that several tasks use.
    pub fn number(&self) -> u32 {
        self.0
    }

    /// The RDMA core's text for the cause.
    pub fn text(&self) -> &'static CStr {
        // SAFETY: Takes any value and returns a static string.
        unsafe { CStr::from_char_ptr(bindings::ib_wc_status_msg(self.0)) }
    }
}

/// The kind of a completed work request; not known for a failed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// A send of any kind.
    Send,
    /// An RDMA write, with or without immediate.
    RdmaWrite,
    /// A registration.
    RegMr,
    /// A local invalidation.
    LocalInvalidate,
    /// A receive, completed by a send of the peer.
    Receive,
    /// A receive, completed by an RDMA write with immediate of the peer.
    ReceiveRdmaWithImm,
    /// Any other request; this crate posts none.
    Other,
}

/// The completion of a work request, as a handler sees it (`ib_wc`).
pub struct WorkCompletion<'a> {
    id: WrId,
    wc: &'a bindings::ib_wc,
}

impl<'a> WorkCompletion<'a> {
    #[inline]
    pub(super) fn new(id: WrId, wc: &'a bindings::ib_wc) -> Self {
        Self { id, wc }
    }

    /// The queue pair of the request.
    pub(super) fn queue_pair(&self) -> *mut bindings::ib_qp {
        self.wc.qp
    }

    /// The work request id.
    #[inline]
    pub fn wr_id(&self) -> WrId {
        self.id
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> Status {
        match self.wc.status {
            bindings::ib_wc_status_IB_WC_SUCCESS => Status::Success,
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => Status::Flushed,
            other => Status::Error(ErrorStatus(other)),
        }
    }

    /// Whether the request was carried out.
    #[inline]
    pub fn is_success(&self) -> bool {
        self.wc.status == bindings::ib_wc_status_IB_WC_SUCCESS
    }

    /// The kind of the request; `None` unless it was successful.
    #[inline]
    pub fn opcode(&self) -> Option<Opcode> {
        if !self.is_success() {
            return None;
        }
        Some(match self.wc.opcode {
            bindings::ib_wc_opcode_IB_WC_SEND => Opcode::Send,
            bindings::ib_wc_opcode_IB_WC_RDMA_WRITE => Opcode::RdmaWrite,
            bindings::ib_wc_opcode_IB_WC_REG_MR => Opcode::RegMr,
            bindings::ib_wc_opcode_IB_WC_LOCAL_INV => Opcode::LocalInvalidate,
            bindings::ib_wc_opcode_IB_WC_RECV => Opcode::Receive,
            bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => Opcode::ReceiveRdmaWithImm,
            _ => Opcode::Other,
        })
    }

    /// The number of bytes received or written by the peer; 0 unless a successful receive.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        match self.opcode() {
            Some(Opcode::Receive | Opcode::ReceiveRdmaWithImm) => self.wc.byte_len,
            _ => 0,
        }
    }

    fn has_flag(&self, flag: bindings::ib_wc_flags) -> bool {
        self.is_success() && self.wc.wc_flags as bindings::ib_wc_flags & flag != 0
    }

    /// The immediate that came with a message.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        self.has_flag(bindings::ib_wc_flags_IB_WC_WITH_IMM)
            .then(|| {
                // SAFETY: The flag says that the union holds this field; any bits are a number.
                u32::from_be(unsafe { *self.wc.ex.imm_data })
            })
    }

    /// The immediate that came with an RDMA write; `None` for any other completion.
    #[inline]
    pub fn written_imm(&self) -> Option<u32> {
        match self.wc.opcode {
            bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => self.imm(),
            _ => None,
        }
    }

    /// The key of this end that a message of the peer invalidated.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        if !self.has_flag(bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE) {
            return None;
        }
        // SAFETY: The flag says that the union holds this field; any bits are a number anyway.
        Some(unsafe { *self.wc.ex.invalidate_rkey })
    }
}
