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
    ptr, //
};
use kernel::sync::{
    rcu::{
        self,
        Guard, //
    },
    Arc,
    ArcBorrow, //
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
        // INVARIANT: The new pointer is null or from `Arc::into_raw`.
        let old = self.pointer.xchg(Self::into_raw(value), ordering::Full);
        // SAFETY: The pointer was just exchanged for another one.
        unsafe { Self::own_after_grace_period(old) }
    }

    fn into_raw(value: Option<Arc<T>>) -> *mut T {
        value.map_or(ptr::null_mut(), |value| Arc::into_raw(value).cast_mut())
    }

    /// Takes over the reference behind a pointer that was exchanged for another one.
    ///
    /// # Safety
    ///
    /// `old` must have been in `pointer`, and the exchange that took it out must be the caller's.
    unsafe fn own_after_grace_period(old: *mut T) -> Option<Arc<T>> {
        if old.is_null() {
            return None;
        }
        if !preempt::may_sleep() {
            // The caller itself may be a reader, so a grace period might never end.
            preempt::leave_behind(&raw mut bindings::__this_module, "what an RcuArc held");
            return None;
        }
        synchronize_rcu();
        // SAFETY: The pointer came from `Arc::into_raw`, and the caller has taken it out, so that
        // the reference is the caller's. Readers that loaded the pointer before it was exchanged
        // held a guard, and the grace period has waited for them.
        Some(unsafe { Arc::from_raw(old) })
    }
}

impl<T: Send + Sync + 'static> Drop for RcuArc<T> {
    fn drop(&mut self) {
        // A borrow lives as long as the reader's guard, which may be longer than this object.
        drop(self.replace(None));
    }
}
