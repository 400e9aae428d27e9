// SPDX-License-Identifier: GPL-2.0

//! Networking: namespaces.
//!
//! Would extend: `rust/kernel/net/mod.rs`.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

pub mod socket_address;

use crate::bindings;
use kernel::types::Opaque;

/// A network namespace (`struct net`), borrowed from a holder of the namespace.
#[repr(transparent)]
pub struct Namespace(Opaque<bindings::net>);

// SAFETY: The C functions that take a namespace synchronise among themselves.
unsafe impl Sync for Namespace {}

impl Namespace {
    /// The initial namespace, which always exists.
    pub fn init() -> &'static Self {
        // SAFETY: `init_net` is a static of the kernel, and the type is transparent.
        unsafe { &*(&raw const bindings::init_net).cast() }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }
}
