// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions that the `kernel` crate does not offer yet.
//!
//! All unsafe code of the project is in this crate.
//!
//! The first lines of a file say with `Would be:` which file of the kernel's `rust/` the file would
//! extend or become (Documentation/upstream.md). A file that would be nothing is needed only
//! outside of the kernel's tree, or for older kernels, and would not be sent.

// A type whose `new()` takes no arguments has no `Default`: statics need a constant `new()`, and a
// second name for it would have no user.
#![allow(clippy::new_without_default)]

mod bindings;
#[cfg(RNBD_KUNIT)]
mod kunit;

pub mod block;
pub mod c_caller;
mod compat;
pub mod cpu;
pub mod crypto;
pub mod device;
pub mod dma;
pub mod fs;
pub mod ida;
pub mod keyring;
pub mod kobject;
pub mod mm;
pub mod module;
pub mod module_param;
pub mod net;
pub mod page;
pub mod preempt;
pub mod prelude;
pub mod print;
pub mod random;
pub mod rdma;
pub mod scatterlist;
pub mod static_key;
pub mod sync;
pub mod sysfs;
pub mod time;
pub mod tracepoint;
pub mod workqueue;

/// The prefix of this crate's log lines.
const __LOG_PREFIX: &[u8] = b"rtrs_core\0";
