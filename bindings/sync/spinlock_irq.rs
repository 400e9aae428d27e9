// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is held with interrupts off.
//!
//! Would be: nothing, and would not be sent. Where `rust/kernel/sync/lock/spinlock.rs` has this
//! lock, this module exports it.

#[cfg(SINCE_7_3)]
pub use kernel::{
    new_spinlock_irq,
    sync::SpinLockIrq, //
};

#[cfg(not(SINCE_7_3))]
pub use crate::{
    compat::spinlock_irq::SpinLockIrq,
    new_spinlock_irq, //
};

/// Makes the initialiser of a [`SpinLockIrq`]. Without a name the lock is named after the file and
/// line.
#[cfg(not(SINCE_7_3))]
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::spinlock_irq::SpinLockIrq::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::static_lock_class!())
    };
}
