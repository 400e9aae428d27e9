// SPDX-License-Identifier: GPL-2.0

//! The block layer, from both of its sides: disks that this machine offers, and disks that it
//! uses.

pub mod bdev;
pub mod bio;
