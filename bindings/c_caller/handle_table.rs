// SPDX-License-Identifier: GPL-2.0

//! A module's things by their handles, from its loading to its unloading.

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

/// A static of a module: its things by their handles.
pub struct HandleTable<T: Send + Sync + 'static>(RcuArc<Handles<T>>);

impl<T: Send + Sync + 'static> HandleTable<T> {
    /// A table without room.
    pub const fn new() -> Self {
        Self(RcuArc::empty())
    }

    /// Makes room for `count` things. Sleeps.
    pub fn begin(&self, count: u16) -> Result {
        drop(self.0.replace(Some(Handles::new(count)?)));
        Ok(())
    }

    /// Takes the room away, and drops the things that are left. Sleeps.
    pub fn end(&self) {
        drop(self.0.replace(None));
    }

    /// Makes a handle of `thing`. Sleeps. `ENODEV` while the module is being loaded or unloaded,
    /// `ENFILE` if there are too many.
    pub fn insert(&self, thing: Arc<T>) -> Result<Handle> {
        self.0.get().ok_or(ENODEV)?.insert(thing)
    }

    /// The thing of a handle. Any context.
    pub fn find(&self, handle: Handle) -> Option<Arc<T>> {
        let guard = rcu::read_lock();
        let found = self.0.load_ref(&guard)?.get(handle, &guard)?;
        Some(found.into())
    }

    /// Calls `use_it` with the thing of a handle. `ENODEV` if there is none. Any context; `use_it`
    /// does not sleep.
    #[inline]
    pub fn with<R>(&self, handle: Handle, use_it: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let guard = rcu::read_lock();
        let found = self
            .0
            .load_ref(&guard)
            .and_then(|things| things.get(handle, &guard));
        use_it(&*found.ok_or(ENODEV)?)
    }

    /// Takes the thing of a handle out; of several callers one gets it. Sleeps.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        self.0.get()?.remove(handle)
    }
}
