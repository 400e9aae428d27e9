// SPDX-License-Identifier: GPL-2.0

//! The list of sessions.

use core::ptr;
use kernel::sync::Arc;
use kernel_ext::{
    mm::without_io,
    prelude::*, //
};

/// A session whose paths may wait for their next attempt to connect.
pub(crate) trait RetryPaths: Send + Sync {
    /// Has the paths that wait try at once. Sleeps.
    fn retry_paths(&self);
}

/// All sessions.
#[pin_data]
pub(crate) struct Sessions {
    #[pin]
    list: kernel::sync::Mutex<KVec<Arc<dyn RetryPaths>>>,
}

impl Sessions {
    /// Makes an empty list. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { list <- kernel::new_mutex!(KVec::new(), "Sessions::list") }),
            GFP_KERNEL,
        )
    }

    /// Adds a session. Sleeps.
    pub(crate) fn add(&self, session: Arc<dyn RetryPaths>) -> Result {
        // Work that requests may wait for calls `retry`, which waits for this lock.
        without_io(|| Ok(self.list.lock().push(session, GFP_KERNEL)?))
    }

    /// Removes `session`, if it is in the list. Sleeps.
    pub(crate) fn remove<S: RetryPaths>(&self, session: &S) {
        let removed = {
            let mut list = self.list.lock();
            let index = list
                .iter()
                .position(|other| ptr::addr_eq(&**other, session));
            index.and_then(|index| list.remove(index).ok())
        };
        drop(removed);
    }

    /// Has all paths that wait for their next attempt try at once. Sleeps.
    ///
    /// The list is locked meanwhile. So when a session is removed, this function does not use it
    /// any more, and its user may be unloaded.
    pub(crate) fn retry(&self) {
        for session in self.list.lock().iter() {
            session.retry_paths();
        }
    }
}
