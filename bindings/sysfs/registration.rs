// SPDX-License-Identifier: GPL-2.0

//! What is common to everything here that sysfs shows and that is removed from it again.
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

// `Registration::new` is generic, so it is compiled into several modules, and lockdep compares the
// names of a lock class by address: a static is the same in all of them, a literal is not.
static LIVE: &CStr = c"Registration::live";

/// That an object is in sysfs, and the data its attributes work on.
///
/// References to the C object may last for any time. It is freed by code of this
/// crate. The data belong to another module, and are dropped when the object is removed: from
/// then on no attribute of it is in use any more.
///
/// # Invariants
///
/// - `data` came from `Arc::into_raw`, of the type that the attributes of the object are for. The
///   reference is owned until `gone` is completed.
/// - While `live` is locked and true nobody has begun to remove the object.
#[pin_data]
pub(crate) struct Registration {
    #[pin]
    live: Mutex<bool>,
    #[pin]
    gone: Completion,
    data: NonNull<c_void>,
}

// SAFETY: The data are behind an `Arc` of something that is `Send` and `Sync`, see `new`.
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

    /// The data. Valid while an attribute of the object is in use, and until it is removed.
    pub(crate) fn data(&self) -> NonNull<c_void> {
        self.data
    }

    /// Does something while the object is in sysfs and stays there; `None` if it has been removed.
    pub(crate) fn while_live<R>(&self, run: impl FnOnce() -> R) -> Option<R> {
        let live = self.live.lock();
        live.then(run)
    }

    /// Removes the object from sysfs with `remove`, and drops the data.
    ///
    /// A second caller waits for the first one.
    ///
    /// # Safety
    ///
    /// `T` must be that of `new`. After `remove` no attribute of the object may be in use.
    pub(crate) unsafe fn remove<T: Send + Sync + 'static>(&self, remove: impl FnOnce()) {
        // The lock is not held while attributes in use are waited for, as they may take it.
        let first = core::mem::replace(&mut *self.live.lock(), false);
        if !first {
            self.gone.wait();
            return;
        }
        remove();
        // SAFETY: `gone` is not completed, so the reference is owned. Nobody uses it any more, and
        // only one caller gets here.
        let data = unsafe { Arc::from_raw(self.data.as_ptr().cast::<T>()) };
        self.gone.complete_all();
        // `T` may hold whatever holds `self`.
        drop(data);
    }
}
