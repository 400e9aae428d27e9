// SPDX-License-Identifier: GPL-2.0

//! Static keys: conditions that are almost always false, and cost one instruction that does nothing
//! then.
//!
//! Would extend: `rust/kernel/jump_label.rs`, which looks at keys that C has defined, and has no
//! function that switches one on.
//!
//! A key counts its users: it is on while there is a value of its type. The kernel then patches the
//! code of all modules that looks at it.
//!
//! C header: [`include/linux/jump_label.h`](srctree/include/linux/jump_label.h)

use crate::{
    bindings,
    preempt::may_sleep, //
};

/// Declares types of which each value keeps a key on that `bindings/helpers_static_key.c` defines.
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
                // SAFETY: The key is static. Where sleeping is not allowed the kernel reports it.
                unsafe { bindings::rnbd_helper_static_key_inc(&raw mut bindings::$key) };
                // INVARIANT: It was just counted.
                Self(())
            }

            /// Whether the key is on. A jump that is patched out while it is off; any context.
            #[inline(always)]
            pub fn is_on() -> bool {
                // SAFETY: The key is a static one, which C has defined.
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
