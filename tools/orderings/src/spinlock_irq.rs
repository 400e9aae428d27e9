// SPDX-License-Identifier: GPL-2.0

//! A mutex of loom's, with the interface of the kernel crate's spinlock.

pub use crate::new_spinlock_irq;
use loom::sync::{
    Mutex,
    MutexGuard, //
};

/// A lock.
pub struct SpinLockIrq<T>(Mutex<T>);

impl<T> SpinLockIrq<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .expect("no thread panics while it holds a lock")
    }
}

/// Makes a lock.
#[macro_export]
macro_rules! new_spinlock_irq {
    ($inner:expr, $name:literal) => {
        $crate::sync::spinlock_irq::SpinLockIrq::new($inner)
    };
}
