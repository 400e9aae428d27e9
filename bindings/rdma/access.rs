// SPDX-License-Identifier: GPL-2.0

//! What a registration gives.
//!
//! Would be: part of `rust/kernel/rdma/mr.rs`.

use super::Direction;
use crate::{
    bindings,
    prelude::*, //
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

    /// Whether it may be given to memory that is mapped for `direction`.
    #[inline]
    pub(super) fn suits(self, direction: Direction) -> bool {
        match self {
            Self::Local => true,
            Self::RemoteRead => direction.permits(Direction::ToDevice),
            Self::RemoteWrite => direction.permits(Direction::FromDevice),
        }
    }
}
