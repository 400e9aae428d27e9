// SPDX-License-Identifier: GPL-2.0

//! Results of block requests. Would be a new part of `kernel::block`.

use crate::{
    bindings,
    prelude::*, //
};

/// The result of a block request (C: `blk_status_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u8);

impl Status {
    /// Success.
    pub const OK: Self = Self(bindings::RNBD_BLK_STS_OK as u8);
    /// The device cannot do this operation.
    pub const NOT_SUPPORTED: Self = Self(bindings::RNBD_BLK_STS_NOTSUPP as u8);
    /// Input/output error.
    pub const IO_ERROR: Self = Self(bindings::RNBD_BLK_STS_IOERR as u8);
    /// The device took too long (`ETIMEDOUT`).
    pub const TIMEOUT: Self = Self(bindings::RNBD_BLK_STS_TIMEOUT as u8);
    /// A resource for the request is missing at present; the request is to be tried again after a
    /// short delay.
    ///
    /// Only for refusing a request.
    pub const RESOURCE: Self = Self(bindings::RNBD_BLK_STS_RESOURCE as u8);

    /// A request that must not wait would have to wait.
    const AGAIN: Self = Self(bindings::RNBD_BLK_STS_AGAIN as u8);
    /// The device mapper repeats the request.
    const DM_REQUEUE: Self = Self(bindings::RNBD_BLK_STS_DM_REQUEUE as u8);

    /// The status of `EBUSY`. A disk may refuse a request with this status only if it has a request
    /// in flight that will end.
    pub(super) const DEV_RESOURCE: Self = Self(bindings::RNBD_BLK_STS_DEV_RESOURCE as u8);

    /// The status that stands for a result (C: `errno_to_blk_status`).
    pub fn from_result(result: Result) -> Self {
        match result {
            Ok(()) => Self::OK,
            Err(error) => Self::from_error(error),
        }
    }

    /// The status that stands for an error; each status has an error number of its own (C:
    /// `blk_errors`).
    ///
    /// `IO_ERROR` in place of the statuses with which a driver tells the layers above to repeat a
    /// request: an error of a peer must not cause that.
    pub fn from_error(error: Error) -> Self {
        // SAFETY: The function only searches a table, and takes any number.
        match Self(unsafe { bindings::errno_to_blk_status(error.to_errno()) }) {
            Self::AGAIN | Self::DM_REQUEUE => Self::IO_ERROR,
            status => status,
        }
    }

    /// Whether the request is to be tried again later.
    pub const fn is_retry(self) -> bool {
        self.0 == Self::RESOURCE.0
    }

    /// The value of C.
    pub(crate) const fn as_raw(self) -> bindings::blk_status_t {
        self.0
    }

    /// From the value of C.
    pub(crate) const fn from_raw(raw: bindings::blk_status_t) -> Self {
        Self(raw)
    }
}
