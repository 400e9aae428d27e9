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
    static_lock_class,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Mutex, //
    },
    time::Msecs,
    types::Opaque, //
};

use crate::{
    bindings,
    preempt,
    prelude::*,
    sync::completion::{
        Completion,
        KillableMutex, //
    },
    time::Deadline, //
};

// `Gate::new` is generic, so it is compiled into several modules, and lockdep compares the names of
// a lock class by address: a static is the same in all of them, a literal is not.
static PHASE: &CStr = c"Gate::phase";

/// Lets users at a value until it is closed, and then gives the value back.
///
/// Entering and leaving count per CPU and share no cache line, so that an object of the IO path
/// (the connections of a path, say) can be used from all CPUs and still be taken down by one
/// owner, in process context, when nobody uses it any more.
///
/// The owner can also have the gate [drained](Gate::begin_drain): no task gets in until each task
/// that is inside has left, and then the gate is open again.
///
/// Dropping a gate that is not closed closes it, which sleeps. Where sleeping is not allowed the
/// value is left behind, see [`preempt`](crate::preempt). A task that has entered must not wait for
/// the gate to be closed: that is a deadlock.
pub struct Gate<T: Send + Sync + 'static> {
    inner: ManuallyDrop<Pin<KBox<Inner<T>>>>,
}

/// # Invariants
///
/// - `users` is initialised; it counts one for the gate being open, while `is_killed` is not set,
///   and one for each [`Entered`]. It is killed by the caller that sets `is_killed`, and is made
///   live again, after it has come to zero, by the caller that clears `is_killed`.
/// - `phase` is [`Phase::Draining`] from when the gate is killed to be drained until it is live
///   again or closed. It is [`Phase::Closed`] for good. Its lock is not held while a task waits.
/// - `drained` is signalled once for each drain. A caller of [`Gate::finish_drain`] takes the
///   signal with `turn` locked, and opens the gate again, or gives the signal back if the gate was
///   closed meanwhile. The caller that has closed the gate takes it then, and completes `empty`.
/// - `is_draining` says which of `drained`, once, and `empty` the release function of `users`
///   signals. It changes under the lock of `phase`, and not while `users` may come to zero.
/// - `value` is only written by the one caller that set `phase` to [`Phase::Closed`], after `users`
///   has come to zero, which a signal of the release function has told. It is there until then.
/// - An `Inner` is not freed before `empty` is completed, if it was ever part of a [`Gate`].
#[pin_data(PinnedDrop)]
struct Inner<T> {
    #[pin]
    users: Opaque<bindings::percpu_ref>,
    #[pin]
    empty: Completion,
    #[pin]
    drained: Completion,
    #[pin]
    phase: Mutex<Phase>,
    /// Lets one task at a time wait for `drained`.
    #[pin]
    turn: KillableMutex,
    is_killed: Atomic<bool>,
    is_draining: Atomic<bool>,
    value: UnsafeCell<Option<T>>,
}

/// What becomes of a gate when nobody is inside any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: it is open.
    Open,
    /// It is open again.
    Draining,
    /// It stays closed.
    Closed,
}

/// How long [`Gate::wait_open`] waits at a time, in ms.
const DRAIN_SLICE_MS: Msecs = 1000;

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
                            bindings::RNBD_PERCPU_REF_ALLOW_REINIT,
                            bindings::GFP_KERNEL,
                        )
                    })
                }),
                empty <- Completion::new(),
                drained <- Completion::new(),
                phase <- Mutex::new(Phase::Open, PHASE, static_lock_class!()),
                turn <- KillableMutex::new(),
                is_killed: Atomic::new(false),
                is_draining: Atomic::new(false),
                value: UnsafeCell::new(Some(value)),
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self {
            inner: ManuallyDrop::new(inner),
        })
    }

    /// Enters, unless the gate is being drained or closed. Any context.
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

    /// Lets nobody in any more. Any context.
    fn kill(&self) {
        // INVARIANT: Only the caller that sets `is_killed` gets here.
        if !self.inner.is_killed.xchg(true, ordering::Full) {
            // SAFETY: `users` is initialised, and live, as `is_killed` was not set.
            unsafe { bindings::percpu_ref_kill_and_confirm(self.inner.users.get(), None) };
        }
    }

    /// Closes the gate, waits until everybody has left, and gives the value to the first caller.
    ///
    /// Process context; sleeps. Does nothing where sleeping is not allowed. Must not be called by a
    /// task that has entered.
    pub fn close(&self) -> Option<T> {
        if !preempt::may_sleep() {
            return None;
        }
        let before = {
            let mut phase = self.inner.phase.lock();
            if *phase == Phase::Open {
                self.kill();
            }
            core::mem::replace(&mut *phase, Phase::Closed)
        };
        match before {
            Phase::Open => self.inner.empty.wait(),
            Phase::Draining => {
                self.inner.drained.wait();
                self.inner.empty.complete_all();
            }
            Phase::Closed => {
                self.inner.empty.wait();
                return None;
            }
        }
        // SAFETY: Nobody is inside any more and nobody can enter; among the callers of this
        // function only the first one gets here.
        unsafe { (*self.inner.value.get()).take() }
    }

    /// Lets no task in until each task that is inside has left; [`Self::finish_drain`] is to
    /// follow.
    ///
    /// Process context; sleeps, but does not wait for users of the gate. Does nothing where
    /// sleeping is not allowed, and if the gate is being drained or closed already.
    pub fn begin_drain(&self) {
        if !preempt::may_sleep() {
            return;
        }
        let mut phase = self.inner.phase.lock();
        if *phase == Phase::Open {
            self.inner.is_draining.store(true, ordering::Release);
            self.kill();
            *phase = Phase::Draining;
        }
    }

    /// Waits, for `timeout` ms at most and not at all if it is 0, until all tasks that were inside
    /// when the gate began to be drained or closed have left; whether they have. A gate that was
    /// drained is open again then.
    ///
    /// Process context; sleeps. Must not be called by a task that has entered.
    pub fn finish_drain(&self, timeout: Msecs) -> bool {
        if !preempt::may_sleep() {
            return false;
        }
        let deadline = Deadline::after(timeout);
        let mut turn = None;
        loop {
            // Not kept locked: it is asked for by callers that must not wait.
            let phase = *self.inner.phase.lock();
            let left = deadline.left();
            match (phase, turn.is_some()) {
                (Phase::Open, _) => return true,
                (Phase::Closed, _) => return self.inner.empty.wait_timeout(left).is_ok(),
                (Phase::Draining, false) => match self.inner.turn.lock_timeout(left) {
                    Ok(guard) => turn = Some(guard),
                    Err(_) => return false,
                },
                (Phase::Draining, true) => {
                    if self.inner.drained.wait_timeout(left).is_err() {
                        return false;
                    }
                    self.reopen();
                }
            }
        }
    }

    /// Opens the gate again, unless it was closed meanwhile. Called with `turn` locked by a task
    /// that has taken the signal of `drained`.
    fn reopen(&self) {
        let mut phase = self.inner.phase.lock();
        if *phase == Phase::Closed {
            self.inner.drained.complete();
            return;
        }
        self.inner.is_draining.store(false, ordering::Release);
        self.inner.is_killed.store(false, ordering::Release);
        // SAFETY: `users` was killed and has come to zero, as its release function has signalled,
        // and is not exited while `self` is there.
        // INVARIANT: It counts one for the gate being open again.
        unsafe { bindings::percpu_ref_reinit(self.inner.users.get()) };
        *phase = Phase::Open;
    }

    /// Waits while the gate is being drained; whether it is open then, and not closed. Process
    /// context; sleeps. Must not be called by a task that has entered.
    pub fn wait_open(&self) -> bool {
        while preempt::may_sleep() {
            match *self.inner.phase.lock() {
                Phase::Open => return true,
                Phase::Closed => return false,
                Phase::Draining => {}
            }
            self.finish_drain(DRAIN_SLICE_MS);
        }
        false
    }
}

/// What the owner of a [`Gate`] does with it, whatever the gate leads to. All sleep: process
/// context.
pub trait GateOwner {
    /// Closes the gate, waits until everybody has left, and drops the value; see [`Gate::close`].
    fn close(&self);

    /// See [`Gate::begin_drain`].
    fn begin_drain(&self);

    /// See [`Gate::finish_drain`].
    fn finish_drain(&self, timeout: Msecs) -> bool;

    /// See [`Gate::wait_open`].
    fn wait_open(&self) -> bool;
}

impl<T: Send + Sync + 'static> GateOwner for Gate<T> {
    fn close(&self) {
        drop(self.close());
    }

    fn begin_drain(&self) {
        self.begin_drain();
    }

    fn finish_drain(&self, timeout: Msecs) -> bool {
        self.finish_drain(timeout)
    }

    fn wait_open(&self) -> bool {
        self.wait_open()
    }
}

impl<T: Send + Sync + 'static> Drop for Gate<T> {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            self.kill();
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
        // SAFETY: The `Inner` is not freed before `empty` is completed, and not before the call
        // below is over: the task that takes the signal takes the lock of the completion, which the
        // call holds to its end. If this does not complete `empty`, the task that has taken the
        // signal of `drained` and closes the gate does, by the type's invariant.
        let inner = unsafe { &*inner };
        if inner.is_draining.load(ordering::Acquire) {
            inner.drained.complete();
        } else {
            inner.empty.complete_all();
        }
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
