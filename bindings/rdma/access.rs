// SPDX-License-Identifier: GPL-2.0

//! The access that a registration gives.
//!
//! Would be: part of `rust/kernel/rdma/mr.rs`.

use super::Direction;
use crate::{
    bindings,
    prelude::*, //
};

/// The access of the peer to registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// None: only work requests of this end use the memory.
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

    /// Whether memory that is mapped for `direction` may be registered with this access.
    #[inline]
    pub(super) fn suits(self, direction: Direction) -> bool {
        match self {
            Self::Local => true,
            Self::RemoteRead => direction.permits(Direction::ToDevice),
            Self::RemoteWrite => direction.permits(Direction::FromDevice),
        }
    }
}
