// SPDX-License-Identifier: GPL-2.0

//! KUnit suites that do not need a device; built with `RNBD_KUNIT=y`.

mod crypto;
mod gate;
mod log;
mod params;
mod rcu;
mod socket_address;
mod static_key;
mod sysfs;
mod wait;
mod workqueue;
