// SPDX-License-Identifier: GPL-2.0

//! A value that many may use at once until its owner wants it back.
//!
//! Would extend: `rust/kernel/revocable.rs`, whose `Revocable` does this for readers of RCU, which
//! may not sleep. The kernel crate has no `struct percpu_ref`, on which this rests.
//!
//! C header: [`include/linux/percpu-refcount.h`](srctree/include/linux/percpu-refcount.h)

use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    error::to_result,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Completion, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    preempt,
    prelude::*, //
};

/// Lets users at a value until it is closed, and then gives the value back.
///
/// Entering and leaving count per CPU and share no cache line, so that an object of the IO path
/// (the connections of a path, say) can be used from all CPUs and still be taken down by one
/// owner, in process context, when nobody uses it any more.
///
/// Dropping a gate that is not closed closes it, which sleeps. Where sleeping is not allowed the
/// value is left behind, see [`preempt`](crate::preempt). A task that has entered must not wait for
/// the gate to be closed: that is a deadlock.
pub struct Gate<T: Send + Sync + 'static> {
    inner: ManuallyDrop<Pin<KBox<Inner<T>>>>,
}

/// # Invariants
///
/// - `users` is initialised with a release function that completes `empty`; it counts one for the
///   gate being open, until `closing` is set, and one for each [`Entered`].
/// - `value` is only written by the one caller that set `closing`, after `empty` was completed. It
///   is there until then.
/// - An `Inner` is not freed before `empty` is completed, if it was ever part of a [`Gate`].
#[pin_data(PinnedDrop)]
struct Inner<T> {
    #[pin]
    users: Opaque<bindings::percpu_ref>,
    #[pin]
    empty: Completion,
    closing: Atomic<bool>,
    value: UnsafeCell<Option<T>>,
}

/// The use of a gate's value; leaves when dropped, in any context.
///
/// # Invariants
///
/// This object holds one count of `inner.users`. Therefore `inner` is valid and has its value.
#[must_use = "the gate is left again otherwise"]
pub struct Entered<T: Send + Sync + 'static> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: A gate only hands out `&T` and, when it is closed, the `T`.
unsafe impl<T: Send + Sync + 'static> Send for Gate<T> {}
// SAFETY: As above; entering and closing are atomic.
unsafe impl<T: Send + Sync + 'static> Sync for Gate<T> {}
// SAFETY: An `Entered` is like an `Arc` that can outlive its maker's thread.
unsafe impl<T: Send + Sync + 'static> Send for Entered<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync + 'static> Sync for Entered<T> {}

impl<T: Send + Sync + 'static> Gate<T> {
    /// Makes an open gate to `value`. May sleep.
    pub fn new(value: T) -> Result<Self> {
        // INVARIANT: `users` starts with one count, for the open gate.
        let inner = KBox::try_pin_init(
            try_pin_init!(Inner::<T> {
                users <- Opaque::try_ffi_init(|slot: *mut bindings::percpu_ref| {
                    // SAFETY: `slot` is valid for writes, and pinned as part of the box.
                    to_result(unsafe {
                        bindings::percpu_ref_init(
                            slot,
                            Some(Inner::<T>::release),
                            0,
                            bindings::GFP_KERNEL,
                        )
                    })
                }),
                empty <- Completion::new(),
                closing: Atomic::new(false),
                value: UnsafeCell::new(Some(value)),
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self {
            inner: ManuallyDrop::new(inner),
        })
    }

    /// Enters, unless the gate is being closed. Any context.
    pub fn enter(&self) -> Option<Entered<T>> {
        // SAFETY: `users` is initialised since the `Inner` was made.
        if !unsafe { bindings::rnbd_helper_percpu_ref_tryget_live(self.inner.users.get()) } {
            return None;
        }
        // INVARIANT: The count was just taken.
        Some(Entered {
            inner: self.inner(),
        })
    }

    /// Makes an [`Entered`] again of one that was forgotten. Any context.
    ///
    /// # Safety
    ///
    /// An `Entered` of this gate was given to `mem::forget`, once for each call.
    pub(crate) unsafe fn reclaim(&self) -> Entered<T> {
        // INVARIANT: The count is that of the forgotten object, for which the gate is waiting.
        Entered {
            inner: self.inner(),
        }
    }

    fn inner(&self) -> NonNull<Inner<T>> {
        NonNull::from(&**self.inner)
    }

    /// Lets nobody in any more; true for the first caller. Any context.
    fn shut(&self) -> bool {
        let first = !self.inner.closing.xchg(true, ordering::Full);
        if first {
            // SAFETY: `users` is initialised, and killed only once.
            unsafe { bindings::percpu_ref_kill_and_confirm(self.inner.users.get(), None) };
        }
        first
    }

    /// Closes the gate, waits until everybody has left, and gives the value to the first caller.
    ///
    /// Process context; sleeps. Does nothing where sleeping is not allowed. Must not be called by a
    /// task that has entered.
    pub fn close(&self) -> Option<T> {
        if !preempt::may_sleep() {
            return None;
        }
        let first = self.shut();
        self.inner.empty.wait_for_completion();
        if !first {
            return None;
        }
        // SAFETY: Nobody is inside any more and nobody can enter; among the callers of this
        // function only the first one gets here.
        unsafe { (*self.inner.value.get()).take() }
    }
}

impl<T: Send + Sync + 'static> Drop for Gate<T> {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            self.shut();
            preempt::leave_behind(&raw mut bindings::__this_module, "a gate");
            return;
        }
        drop(self.close());
        // SAFETY: This is the only place that drops it. It is closed: nobody is inside.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

impl<T> Inner<T> {
    /// Called when the last count of `users` is given back.
    ///
    /// # Safety
    ///
    /// `users` points to the field of a valid `Inner<T>`.
    unsafe extern "C" fn release(users: *mut bindings::percpu_ref) {
        let users: *mut Opaque<bindings::percpu_ref> = users.cast();
        // SAFETY: By the safety requirement.
        let inner = unsafe { container_of!(users, Inner<T>, users) };
        // SAFETY: The `Inner` is not freed before `empty` is completed, which this call does. Who
        // waits for that takes the completion's lock, and so waits for this call, too.
        unsafe { (*inner).empty.complete_all() };
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Inner<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `users` is initialised. Its count is zero and it was killed: `empty` is
        // completed, unless this was never part of a gate, and then nobody has entered.
        unsafe { bindings::percpu_ref_exit(self.users.get()) };
    }
}

impl<T: Send + Sync + 'static> Clone for Entered<T> {
    /// Enters once more, even while the gate is being closed. Any context.
    fn clone(&self) -> Self {
        // SAFETY: `users` is initialised. It is not down to zero, as this object holds a count.
        unsafe { bindings::rnbd_helper_percpu_ref_get(self.inner.as_ref().users.get()) };
        // INVARIANT: The count was just taken.
        Self { inner: self.inner }
    }
}

impl<T: Send + Sync + 'static> Deref for Entered<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: This object holds a count, so `empty` is not completed. Until then the value is
        // there and nobody writes it.
        unsafe {
            (*self.inner.as_ref().value.get())
                .as_ref()
                .unwrap_unchecked()
        }
    }
}

impl<T: Send + Sync + 'static> Drop for Entered<T> {
    fn drop(&mut self) {
        // SAFETY: This object holds a count, which ends here.
        unsafe { bindings::rnbd_helper_percpu_ref_put(self.inner.as_ref().users.get()) };
    }
}
