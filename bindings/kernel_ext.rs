// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over what the `kernel` crate does not offer yet.
//!
//! All unsafe code of the project is in this crate.

mod bindings;
#[cfg(RNBD_KUNIT)]
mod kunit;

pub mod atomic;
pub mod block;
pub mod chunk;
pub mod class;
pub mod cpu;
pub mod gate;
pub mod ida;
pub mod jiffies;
pub mod kobject;
pub mod log;
pub mod message_buffers;
pub mod module;
pub mod once;
pub mod page_buffer;
mod pages;
pub mod params;
pub mod percpu;
pub mod random;
pub mod rcu;
pub mod rdma;
pub mod reclaim;
pub mod scatterlist;
pub mod slot;
pub mod socket_address;
pub mod sysfs;
pub mod trace;
pub mod wait;
pub mod workqueue;

/// The prefix of this crate's log lines.
const __LOG_PREFIX: &[u8] = b"rtrs_core\0";
