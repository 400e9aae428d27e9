// SPDX-License-Identifier: GPL-2.0

//! The device model. Would extend `kernel::device`.

pub mod class;
pub mod misc;
