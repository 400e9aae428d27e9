// SPDX-License-Identifier: GPL-2.0

//! The common part of all objects that are added to sysfs and removed from it.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::ptr::NonNull;
use kernel::{
    static_lock_class,
    str::CStr,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    prelude::*,
    sync::completion::Completion, //
};

// The name of a lock class must have the same address everywhere, as lockdep compares addresses.
// `Registration::new` is generic, so it is compiled into several modules: a static is the same in
// all modules, a literal is not.
static LIVE: &CStr = c"Registration::live";

/// Whether an object is in sysfs, and the data of its attributes.
///
/// The data belong to another module, and are dropped when the object is removed: from then on no
/// attribute of the object is in use. References to the C object may last for any time; code of
/// this crate frees it.
///
/// # Invariants
///
/// - `data` came from `Arc::into_raw`, of the type for which the object's attributes were made. The
///   reference is owned until `gone` is completed.
/// - While `live` is locked and true, the removal of the object has not begun.
#[pin_data]
pub(crate) struct Registration {
    #[pin]
    live: Mutex<bool>,
    #[pin]
    gone: Completion,
    data: NonNull<c_void>,
}

// SAFETY: The data are behind an `Arc` of a type that is `Send` and `Sync`, see `new`.
unsafe impl Send for Registration {}

// SAFETY: As above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Makes the registration of an object, which must be in sysfs before other tasks can reach it.
    pub(crate) fn new<T: Send + Sync + 'static>(data: Arc<T>) -> impl PinInit<Self> {
        // INVARIANT: The reference is owned from when the registration is made.
        pin_init!(Self {
            live <- Mutex::new(true, LIVE, static_lock_class!()),
            gone <- Completion::new(),
            // SAFETY: The pointer of an `Arc` is not null.
            data: unsafe { NonNull::new_unchecked(Arc::into_raw(data).cast_mut().cast()) },
        })
    }

    /// The data. Valid until the object is removed, and while an attribute of the object is in use.
    pub(crate) fn data(&self) -> NonNull<c_void> {
        self.data
    }

    /// Calls `run` while the object is in sysfs and is not removed; `None` if the object has been
    /// removed.
    pub(crate) fn while_live<R>(&self, run: impl FnOnce() -> R) -> Option<R> {
        let live = self.live.lock();
        live.then(run)
    }

    /// Removes the object from sysfs with `remove`, and drops the data.
    ///
    /// A second caller waits for the first.
    ///
    /// # Safety
    ///
    /// `T` must be that of `new`. After `remove` no attribute of the object may be in use.
    pub(crate) unsafe fn remove<T: Send + Sync + 'static>(&self, remove: impl FnOnce()) {
        // The lock is not held while `remove` waits for attributes in use, as these may take it.
        let first = core::mem::replace(&mut *self.live.lock(), false);
        if !first {
            self.gone.wait();
            return;
        }
        remove();
        // SAFETY: `gone` is not completed, so the reference is owned. The data are not used any
        // more, and only one caller gets here.
        let data = unsafe { Arc::from_raw(self.data.as_ptr().cast::<T>()) };
        self.gone.complete_all();
        // Last, as `T` may hold the holder of `self`.
        drop(data);
    }
}
