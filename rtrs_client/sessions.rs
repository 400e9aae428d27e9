// SPDX-License-Identifier: GPL-2.0

//! The sessions that exist.

use core::ptr;
use kernel::sync::Arc;
use kernel_ext::{
    mm::without_io,
    prelude::*, //
};

/// A session whose paths may wait for the time to connect again.
pub(crate) trait RetryPaths: Send + Sync {
    /// Has them do it now. Sleeps.
    fn retry_paths(&self);
}

/// All sessions.
#[pin_data]
pub(crate) struct Sessions {
    #[pin]
    list: kernel::sync::Mutex<KVec<Arc<dyn RetryPaths>>>,
}

impl Sessions {
    /// None.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { list <- kernel::new_mutex!(KVec::new(), "Sessions::list") }),
            GFP_KERNEL,
        )
    }

    /// Adds one. Sleeps.
    pub(crate) fn add(&self, session: Arc<dyn RetryPaths>) -> Result {
        // `retry` waits for the lock, in the place of work that requests may wait for.
        without_io(|| Ok(self.list.lock().push(session, GFP_KERNEL)?))
    }

    /// Forgets one, if it is there. Sleeps.
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

    /// Has all paths that wait to connect again do it now. Sleeps.
    ///
    /// Locked meanwhile: once a session is removed nobody here has it any more, and its user may
    /// be unloaded.
    pub(crate) fn retry(&self) {
        for session in self.list.lock().iter() {
            session.retry_paths();
        }
    }
}
