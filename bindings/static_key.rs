// SPDX-License-Identifier: GPL-2.0

//! Static keys: conditions that are almost always false. While a key is off, a check of the key is
//! one instruction that does nothing.
//!
//! Would extend: `rust/kernel/jump_label.rs`, which checks keys that C has defined, and has no
//! function that switches a key on.
//!
//! A key counts its users: the key is on while there is a value of its type. When a key changes,
//! the kernel patches the code of all modules that check the key.
//!
//! C header: [`include/linux/jump_label.h`](srctree/include/linux/jump_label.h)

use crate::{
    bindings,
    preempt::may_sleep, //
};

/// Declares a type for each key that `bindings/helpers_static_key.c` defines. A value of the type
/// keeps the key on.
macro_rules! static_keys {
    ($($(#[$meta:meta])* $name:ident = $key:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// # Invariants
        ///
        /// Each value is one user of the key.
        #[must_use = "the key is off again when this is dropped"]
        pub struct $name(());

        impl $name {
            /// Switches the key on, until the value is dropped. Sleeps.
            pub fn new() -> Self {
                // SAFETY: The key is static. If sleeping is not allowed here, the kernel reports
                // that.
                unsafe { bindings::rnbd_helper_static_key_inc(&raw mut bindings::$key) };
                // INVARIANT: The value was just counted.
                Self(())
            }

            /// Whether the key is on. The jump is patched out while the key is off. Any context.
            #[inline(always)]
            pub fn is_on() -> bool {
                // SAFETY: The key is static, and C has defined it.
                unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        bindings::$key,
                        bindings::rnbd_static_key,
                        key
                    )
                }
            }
        }

        impl Drop for $name {
            /// Sleeps. Where sleeping is not allowed the key stays on for ever.
            fn drop(&mut self) {
                if may_sleep() {
                    // SAFETY: The key is static, and by the type invariant this value is one of its
                    // users.
                    unsafe { bindings::rnbd_helper_static_key_dec(&raw mut bindings::$key) };
                }
            }
        }
    )*};
}

static_keys! {
    /// A client times the requests of a disk.
    ClientTimes = rnbd_client_times_key;
    /// A server times the requests of a device.
    ServerTimes = rnbd_server_times_key;
}
