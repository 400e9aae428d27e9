// SPDX-License-Identifier: GPL-2.0

//! The objects of a module by their handles, from loading to unloading.

use super::handle::{
    Handle,
    Handles, //
};
use crate::{
    prelude::*,
    sync::rcu::RcuArc, //
};
use kernel::sync::{
    rcu,
    Arc, //
};

/// A table of a module's objects by their handles, for a static of the module.
pub struct HandleTable<T: Send + Sync + 'static>(RcuArc<Handles<T>>);

impl<T: Send + Sync + 'static> HandleTable<T> {
    /// Makes a table without room.
    pub const fn new() -> Self {
        Self(RcuArc::empty())
    }

    /// Makes room for `count` objects. Sleeps.
    pub fn begin(&self, count: u16) -> Result {
        drop(self.0.replace(Some(Handles::new(count)?)));
        Ok(())
    }

    /// Takes the room away, and drops the objects that are left. Sleeps.
    pub fn end(&self) {
        drop(self.0.replace(None));
    }

    /// Makes a handle of `thing`. Sleeps. `ENODEV` while the module is being loaded or unloaded,
    /// `ENFILE` if there is no room.
    pub fn insert(&self, thing: Arc<T>) -> Result<Handle> {
        self.0.get().ok_or(ENODEV)?.insert(thing)
    }

    /// The object of a handle. Any context.
    pub fn find(&self, handle: Handle) -> Option<Arc<T>> {
        let guard = rcu::read_lock();
        let found = self.0.load_ref(&guard)?.get(handle, &guard)?;
        Some(found.into())
    }

    /// Calls `use_it` with the object of a handle. `ENODEV` if there is none. Any context; `use_it`
    /// must not sleep.
    #[inline]
    pub fn with<R>(&self, handle: Handle, use_it: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let guard = rcu::read_lock();
        let found = self
            .0
            .load_ref(&guard)
            .and_then(|things| things.get(handle, &guard));
        use_it(&*found.ok_or(ENODEV)?)
    }

    /// Takes out the object of a handle. Only one of several callers gets the object. Sleeps.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.0.get()?.remove(handle)
    }
}
