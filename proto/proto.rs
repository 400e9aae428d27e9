// SPDX-License-Identifier: GPL-2.0

//! Wire formats and pure logic of RTRS and RNBD.

#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

/// The port an RTRS server listens on by default.
pub const RTRS_PORT: u16 = 1234;
