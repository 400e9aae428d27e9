// SPDX-License-Identifier: GPL-2.0

//! Names of lock classes.
//!
//! Would extend `rust/kernel/sync.rs`.

/// The name of a lock class, as a `&'static CStr` at one address for all modules.
///
/// A generic function must name its lock classes by this macro. lockdep reports an error if a class
/// has a second name, and compares the addresses of names. The class of a generic function
/// ([`kernel::static_lock_class!`]) exists once, in the module with the function, for all modules
/// that use the function. A literal is copied to each of these modules.
#[macro_export]
macro_rules! lock_class_name {
    ($name:expr) => {{
        static NAME: &::kernel::prelude::CStr = ::kernel::c_str!($name);
        NAME
    }};
}
