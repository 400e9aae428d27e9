// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both sides: disks that this machine offers, and disks that this machine
//! uses.
//!
//! The disks that this machine offers do not build on `kernel::block::mq`, as that has no access to
//! a request's data, no private data, no errors after `queue_rq`, no limits and no owner.

pub mod bdev;
pub mod bio;
pub mod disk;
pub mod major;
pub mod memory;
pub mod mq;
pub mod status;
