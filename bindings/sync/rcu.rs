// SPDX-License-Identifier: GPL-2.0

//! A reference that many tasks read without a lock while another task replaces it.
//!
//! Would extend: `rust/kernel/sync/rcu.rs`, which has the read lock and the grace period, but no
//! pointer that is protected by them.
//!
//! A reader must not sleep. The kernel crate's [`Guard`] has this rule, and the compiler does not
//! check it.

use crate::{
    bindings,
    preempt,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::{
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::{
    ffi::c_ulong,
    sync::{
        rcu::{
            self,
            Guard, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

pub use crate::compat::synchronize_rcu;

/// An `Option<Arc<T>>` that is read under the RCU read lock.
///
/// The IO path reaches paths, connections and devices in this way: readers take no lock, count
/// nothing and share no cache line that is written. A writer gets the old reference back after a
/// grace period, when no reader can hold a borrow of it any more.
///
/// Replacing and dropping sleep: call them in process context, and not under a [`Guard`]. In any
/// other context they do not wait, and the old reference is leaked; see
/// [`preempt`](crate::preempt).
///
/// # Examples
///
/// ```ignore
/// let guard = rcu::read_lock();
/// if let Some(path) = session.current.load(&guard) {
///     path.submit(request);
/// }
/// ```
///
/// # Invariants
///
/// - `pointer` is null or came from `Arc::into_raw`; this object owns that reference.
/// - A reference that was in `pointer` is given back only after a grace period.
pub struct RcuArc<T: Send + Sync + 'static> {
    pointer: Atomic<*mut T>,
    _owned: PhantomData<Arc<T>>,
}

// SAFETY: The object owns an `Arc<T>`, which may be sent as `T` is `Send` and `Sync`.
unsafe impl<T: Send + Sync + 'static> Send for RcuArc<T> {}

// SAFETY: Shared use hands out borrows of the `Arc` and moves `Arc`s in and out by atomic exchange;
// `T` is `Send` and `Sync`.
unsafe impl<T: Send + Sync + 'static> Sync for RcuArc<T> {}

impl<T: Send + Sync + 'static> RcuArc<T> {
    /// Makes an empty reference, also for a static.
    pub const fn empty() -> Self {
        // INVARIANT: The pointer is null.
        Self {
            pointer: Atomic::new(ptr::null_mut()),
            _owned: PhantomData,
        }
    }

    /// Makes a reference that holds `value`.
    pub fn new(value: Option<Arc<T>>) -> Self {
        // INVARIANT: `into_raw` gives null or the pointer of an `Arc` that is owned now.
        Self {
            pointer: Atomic::new(Self::into_raw(value)),
            _owned: PhantomData,
        }
    }

    /// Borrows the present object, for as long as the read lock is held. Any context.
    pub fn load<'guard>(&self, _guard: &'guard Guard) -> Option<ArcBorrow<'guard, T>> {
        let raw = self.pointer.load(ordering::Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: The pointer came from `Arc::into_raw`. Its reference is given back only after a
        // grace period that begins when the pointer is replaced. So the object stays valid at least
        // until the read lock, which is held here, is released.
        Some(unsafe { ArcBorrow::from_raw(raw) })
    }

    /// As [`Self::load()`], for callers that need no `Arc`. Any context.
    pub fn load_ref<'guard>(&self, _guard: &'guard Guard) -> Option<&'guard T> {
        let raw = self.pointer.load(ordering::Acquire);
        // SAFETY: As in `load()`, the pointer is null or stays valid until the read lock is
        // released.
        unsafe { raw.as_ref() }
    }

    /// Takes a reference to the present object. Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        self.load(&rcu::read_lock()).map(Into::into)
    }

    /// Whether the reference is empty at this moment. Any context.
    pub fn is_none(&self) -> bool {
        self.pointer.load(ordering::Relaxed).is_null()
    }

    /// Stores `value`, and returns the old reference when no reader has a borrow of it any more.
    ///
    /// Sleeps for a grace period, unless the reference was empty. Each of several writers gets the
    /// reference that it replaced. `None` where sleeping is not allowed: the old reference is
    /// leaked then.
    pub fn replace(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        self.exchange(value).wait()
    }

    /// Empties the reference. Several references that are emptied before any of them is waited for
    /// take a single grace period. Any context, but the result is dropped in process context.
    pub fn detach(&self) -> Detached<T> {
        self.exchange(None)
    }

    fn exchange(&self, value: Option<Arc<T>>) -> Detached<T> {
        // INVARIANT: The new pointer is null or from `Arc::into_raw`.
        let old = self.pointer.xchg(Self::into_raw(value), ordering::Full);
        // INVARIANT: The exchange comes before the look at the grace periods.
        Detached {
            old,
            // SAFETY: The function has no requirement.
            grace_period: unsafe { bindings::get_state_synchronize_rcu() },
            _owned: PhantomData,
        }
    }

    fn into_raw(value: Option<Arc<T>>) -> *mut T {
        value.map_or(ptr::null_mut(), |value| Arc::into_raw(value).cast_mut())
    }
}

/// A reference that was in an [`RcuArc`], and that readers may still borrow.
///
/// Dropping it waits until no reader does, and drops the reference.
///
/// # Invariants
///
/// - `old` is null, or came from `Arc::into_raw` and was in an `RcuArc`. This object owns that
///   reference, as it was made by the exchange that took the pointer out.
/// - When the grace period that `grace_period` stands for is over, no reader has a borrow of `old`:
///   `grace_period` was read after that exchange.
#[must_use = "the reference is waited for and dropped otherwise"]
pub struct Detached<T: Send + Sync + 'static> {
    old: *mut T,
    grace_period: c_ulong,
    _owned: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + 'static> Detached<T> {
    /// Waits until no reader has a borrow of the reference, and returns it; `None` if the
    /// [`RcuArc`] was empty. Sleeps, but not if a grace period is over that began since.
    ///
    /// `None` where sleeping is not allowed: the reference is leaked then.
    pub fn wait(mut self) -> Option<Arc<T>> {
        self.take()
    }

    fn take(&mut self) -> Option<Arc<T>> {
        // INVARIANT: Null, as the reference is given away.
        let old = mem::replace(&mut self.old, ptr::null_mut());
        if old.is_null() {
            return None;
        }
        if !preempt::may_sleep() {
            // The caller itself may be a reader, so a grace period might never end.
            preempt::leave_behind(&raw mut bindings::__this_module, "what an RcuArc held");
            return None;
        }
        // SAFETY: Sleeping is allowed, and the value is from `get_state_synchronize_rcu()`.
        unsafe { bindings::cond_synchronize_rcu(self.grace_period) };
        // SAFETY: By the type invariants this object owned the reference, and no reader has a
        // borrow of it any more.
        Some(unsafe { Arc::from_raw(old) })
    }
}

impl<T: Send + Sync + 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T: Send + Sync + 'static> Drop for RcuArc<T> {
    fn drop(&mut self) {
        // A borrow lives as long as the reader's guard, which may be longer than this object.
        drop(self.replace(None));
    }
}
