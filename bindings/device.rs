// SPDX-License-Identifier: GPL-2.0

//! Device model; would extend `kernel::device`.

pub mod class;
pub mod misc;
