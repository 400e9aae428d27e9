// SPDX-License-Identifier: GPL-2.0

//! The kernel crate's prelude, and the errors that it lacks before 7.3.
//!
//! Would be: nothing, and would not be sent: the newest kernel has these errors.

pub use kernel::prelude::*;

#[cfg(not(SINCE_7_3))]
pub use crate::compat::errno::*;
