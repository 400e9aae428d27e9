// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both of its sides: disks that this machine offers, and disks that it
//! uses.
//!
//! `kernel::block::mq` has no access to a request's data, no private data, no errors after
//! `queue_rq`, no limits and no owner; so the disks we offer do not build on it.

pub mod bdev;
pub mod bio;
pub mod disk;
pub mod major;
pub mod memory;
pub mod mq;
pub mod status;
