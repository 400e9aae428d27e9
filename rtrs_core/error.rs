// SPDX-License-Identifier: GPL-2.0

//! Error numbers of the protocol crate and of the kernel crate, made of each other. All functions
//! may be called in any context.

use kernel_ext::prelude::*;
use proto::Errno;

/// The kernel crate's error for `errno`.
pub fn from_errno(errno: Errno) -> Error {
    Error::from_errno(errno.to_kernel())
}

/// The protocol crate's number for `error`.
pub fn to_errno(error: Error) -> Errno {
    Errno::from_kernel(error.to_errno()).unwrap_or(Errno::EIO)
}
