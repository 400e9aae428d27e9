// SPDX-License-Identifier: GPL-2.0

//! What callers in C have of their sessions: pointers that stay valid when the session is closed.
//!
//! So a function that is called for a closed session finds none there, instead of memory that was
//! freed. A handle of a closed session is given to one that is opened later, after all others that
//! are idle; so there are never more of them than sessions at a time.

use kernel::sync::{
    Arc,
    Mutex, //
};
use kernel_ext::{
    prelude::*,
    sync::rcu::RcuArc, //
};

use crate::client::Client;

/// What a caller has of its session.
pub(crate) struct Handle {
    /// Nothing if the session is closed.
    pub(crate) client: RcuArc<Client>,
}

impl Handle {
    /// Closes the session, if it is open. Sleeps.
    ///
    /// Until all permits were given back functions find the session, which is what confirmations
    /// and those that hold permits need.
    pub(crate) fn close(self: &Arc<Self>) {
        if let Some(client) = self.client.get() {
            client.close();
        }
        // Of several callers one gets it.
        if let Some(client) = self.client.replace(None) {
            drop(client);
            if let Some(handles) = HANDLES.get() {
                handles.give_back(self.clone());
            }
        }
    }
}

/// All handles.
#[pin_data]
pub(crate) struct Handles {
    #[pin]
    lists: Mutex<Lists>,
}

/// # Invariants
///
/// `idle` has room for as many handles as there are in `all`.
struct Lists {
    all: KVec<Arc<Handle>>,
    /// Those of closed sessions, which was closed first in front.
    idle: KVec<Arc<Handle>>,
}

static HANDLES: RcuArc<Handles> = RcuArc::empty();

/// Sets those of the module, or takes them away, which closes sessions that were left open. Sleeps.
pub(crate) fn set_handles(handles: Option<Arc<Handles>>) {
    drop(HANDLES.replace(handles));
}

/// Makes a handle of `client`. Sleeps. `ENODEV` while the module is being loaded or unloaded.
pub(crate) fn handle(client: Client) -> Result<Arc<Handle>> {
    let handles = HANDLES.get().ok_or(ENODEV)?;
    let client = Arc::new(client, GFP_KERNEL)?;
    let handle = handles.take()?;
    drop(handle.client.replace(Some(client)));
    Ok(handle)
}

impl Handles {
    /// There are none.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            lists <- kernel::new_mutex!(Lists { all: KVec::new(), idle: KVec::new() }),
        })
    }

    /// Takes one without a session.
    fn take(&self) -> Result<Arc<Handle>> {
        let mut lists = self.lists.lock();
        if let Ok(handle) = lists.idle.remove(0) {
            return Ok(handle);
        }
        let handle = Handle {
            client: RcuArc::new(None),
        };
        let handle = Arc::new(handle, GFP_KERNEL)?;
        let all = lists.all.len();
        // INVARIANT: There is room for one more than before.
        lists.idle.reserve(all.wrapping_add(1), GFP_KERNEL)?;
        lists.all.push(handle.clone(), GFP_KERNEL)?;
        Ok(handle)
    }

    /// Takes back one without a session.
    fn give_back(&self, handle: Arc<Handle>) {
        // By the invariant of the lists this allocates nothing, and does not fail.
        let _ = self.lists.lock().idle.push(handle, GFP_KERNEL);
    }
}
