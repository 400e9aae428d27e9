// SPDX-License-Identifier: GPL-2.0

//! A value that many tasks may use concurrently until its owner takes it back.
//!
//! Would extend: `rust/kernel/revocable.rs`, whose `Revocable` does this for readers under RCU,
//! which must not sleep. The gate is built on `struct percpu_ref`, which the kernel crate does not
//! have.
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

// The name of a lock class must have the same address everywhere, as lockdep compares addresses.
// `Gate::new` is generic, so it is compiled into several modules: a static is the same in all
// modules, a literal is not.
static PHASE: &CStr = c"Gate::phase";

/// Gives users access to a value until the gate is closed, and then gives the value back.
///
/// Entering and leaving count per CPU and share no cache line. So an object of the IO path, such as
/// the connections of a path, can be used from all CPUs, and its owner can still take it down, in
/// process context, when it is not used any more.
///
/// The owner can also [drain](Gate::begin_drain) the gate: no task can enter until each task that
/// is inside has left; then the gate opens again.
///
/// Dropping a gate closes it, which sleeps. Where sleeping is not allowed the value is left behind,
/// see [`preempt`](crate::preempt). A task that has entered must not wait until the gate is closed:
/// that is a deadlock.
pub struct Gate<T: Send + Sync + 'static> {
    inner: ManuallyDrop<Pin<KBox<Inner<T>>>>,
}

/// # Invariants
///
/// - `users` is initialised. It counts one while `is_killed` is not set, as the gate is open, and
///   one for each [`Entered`]. The caller that sets `is_killed` kills `users`. The caller that
///   clears `is_killed` makes `users` live again, after it has come to zero.
/// - `phase` is [`Phase::Draining`] from when `users` is killed for a drain until `users` is live
///   again or the gate is closed. [`Phase::Closed`] is final. The lock of `phase` is not held while
///   a task waits.
/// - `drained` is signalled once for each drain. A caller of [`Gate::finish_drain`] takes the
///   signal with `turn` locked, and opens the gate again. If the gate was closed meanwhile, the
///   caller gives the signal back; then the caller that has closed the gate takes the signal, and
///   completes `empty`.
/// - `is_draining` tells the release function of `users` to signal `drained` once; otherwise that
///   function completes `empty`. `is_draining` changes under the lock of `phase`, and not while
///   `users` may come to zero.
/// - `value` is `Some` until the caller that set `phase` to [`Phase::Closed`] takes it. Only that
///   caller writes `value`, after a signal of the release function has told that `users` has come
///   to zero.
/// - An `Inner` that was ever part of a [`Gate`] is not freed before `empty` is completed.
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

/// The state of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The gate is open.
    Open,
    /// The gate is being drained: it opens again when no task is inside any more.
    Draining,
    /// The gate is closed for good, or is being closed.
    Closed,
}

/// The time in ms for which [`Gate::wait_open`] waits at a time.
const DRAIN_SLICE_MS: Msecs = 1000;

/// The use of a gate's value. Dropping it leaves the gate, in any context.
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
// SAFETY: An `Entered` is like an `Arc`: it may be used and dropped in any task.
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

    /// Makes an [`Entered`] again from one that was given to `mem::forget`. Any context.
    ///
    /// # Safety
    ///
    /// An `Entered` of this gate was given to `mem::forget`, once for each call.
    pub(crate) unsafe fn reclaim(&self) -> Entered<T> {
        // INVARIANT: The count is that of the forgotten object.
        Entered {
            inner: self.inner(),
        }
    }

    fn inner(&self) -> NonNull<Inner<T>> {
        NonNull::from(&**self.inner)
    }

    /// Lets no task enter any more. Any context.
    fn kill(&self) {
        // INVARIANT: Only the caller that sets `is_killed` kills `users`.
        if !self.inner.is_killed.xchg(true, ordering::Full) {
            // SAFETY: `users` is initialised, and live, as `is_killed` was not set.
            unsafe { bindings::percpu_ref_kill_and_confirm(self.inner.users.get(), None) };
        }
    }

    /// Closes the gate, waits until all tasks have left, and gives the value to the first caller.
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
        // SAFETY: No task is inside any more, and none can enter. Among the callers of this
        // function only the first one gets here.
        unsafe { (*self.inner.value.get()).take() }
    }

    /// Begins to drain the gate: no task can enter until each task that is inside has left.
    /// [`Self::finish_drain`] must follow.
    ///
    /// Process context; sleeps, but does not wait for users of the gate. Does nothing where
    /// sleeping is not allowed, or if the gate is being drained or closed already.
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

    /// Waits for at most `timeout` ms until all tasks have left that were inside when draining or
    /// closing began; with a `timeout` of 0 it does not wait. Returns whether all have left. A gate
    /// that was drained is open again then.
    ///
    /// Process context; sleeps. Must not be called by a task that has entered.
    pub fn finish_drain(&self, timeout: Msecs) -> bool {
        if !preempt::may_sleep() {
            return false;
        }
        let deadline = Deadline::after(timeout);
        let mut turn = None;
        loop {
            // The lock is not kept, as callers that must not wait take it.
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
        // and is not exited as long as `self` exists.
        // INVARIANT: `users` counts one again, as the gate is open.
        unsafe { bindings::percpu_ref_reinit(self.inner.users.get()) };
        *phase = Phase::Open;
    }

    /// Waits while the gate is being drained. True if the gate is open then, false if it is closed.
    /// Process context; sleeps. Must not be called by a task that has entered.
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

/// The functions of a [`Gate`] for its owner, independent of the type of its value. All of them
/// sleep: process context.
pub trait GateOwner {
    /// Closes the gate, waits until all tasks have left, and drops the value; see [`Gate::close`].
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
        // SAFETY: This is the only place that drops `inner`. The gate is closed, so no task is
        // inside.
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
        // SAFETY: By the type invariant the `Inner` is not freed before `empty` is completed. It is
        // not freed before the call below is over either: the task that takes the signal takes the
        // lock of the completion, which the call holds to its end. If this function signals
        // `drained`, a later task completes `empty`, after it has taken that signal.
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
        // SAFETY: `users` is initialised. If this was part of a gate, `empty` is completed: `users`
        // was killed, and its count is zero. Otherwise no task has ever entered.
        unsafe { bindings::percpu_ref_exit(self.users.get()) };
    }
}

impl<T: Send + Sync + 'static> Clone for Entered<T> {
    /// Enters once more, even while the gate is being closed. Any context.
    fn clone(&self) -> Self {
        // SAFETY: `users` is initialised. Its count is not zero, as this object holds one.
        unsafe { bindings::rnbd_helper_percpu_ref_get(self.inner.as_ref().users.get()) };
        // INVARIANT: The count was just taken.
        Self { inner: self.inner }
    }
}

impl<T: Send + Sync + 'static> Deref for Entered<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: This object holds a count, so `users` has not come to zero. Until then, by the
        // type invariant, the value is `Some` and is not written.
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
