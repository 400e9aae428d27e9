// SPDX-License-Identifier: GPL-2.0

//! Names of lock classes.
//!
//! Would extend `rust/kernel/sync.rs`.

/// The name of a lock class, as a `&'static CStr` at one address for all modules.
///
/// lockdep takes a class that it meets under a second name for an error, and compares the addresses
/// of names. The class of a generic function ([`kernel::static_lock_class!`]) is in the module that
/// has the function, and each module that uses the function finds it there; a literal is copied to
/// each of these modules. So a generic function names its classes by this macro.
#[macro_export]
macro_rules! lock_class_name {
    ($name:expr) => {{
        static NAME: &::kernel::prelude::CStr = ::kernel::c_str!($name);
        NAME
    }};
}
