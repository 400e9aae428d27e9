// SPDX-License-Identifier: GPL-2.0

//! The modules' own synchronisation under the model checker loom.
//!
//! An x86 processor, real or emulated, never shows most of the orders in which another CPU may see
//! memory on arm64. loom does: it runs a test in the orders of its threads' steps, up to three
//! changes between threads, with each value that a load may return by C11's memory model. The files
//! below are those of the modules, compiled against atomic variables of loom's (`atomic.rs`) that
//! have the kernel crate's interface.
//!
//! Each test in `tests/` also runs with weaker orderings than the code asks for, and has to fail
//! then.

#![cfg(test)]
#![allow(dead_code, unused_imports)]

// The files name their own crate, and those that they use, by these names.
extern crate self as kernel_ext;
extern crate self as rtrs_core;

mod chunk;
#[path = "../../../rtrs_server/claims.rs"]
mod claims;
mod connection;
#[path = "../../../rtrs_server/fifo.rs"]
mod fifo;
#[path = "../../../rtrs_server/in_place.rs"]
mod in_place;
mod prelude;
#[path = "../../../rtrs_server/send_queue.rs"]
mod send_queue;
mod sync;
mod tests;
