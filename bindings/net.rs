// SPDX-License-Identifier: GPL-2.0

//! Networking; would extend `kernel::net`.

pub mod socket_address;
