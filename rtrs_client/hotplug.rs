// SPDX-License-Identifier: GPL-2.0

//! RDMA devices that come while sessions exist: paths that wait to connect again need not wait
//! any longer, since it may be their device that is back.

use kernel::{
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    mm::without_io,
    rdma::{
        client::{
            Client,
            Registration, //
        },
        Device, //
    }, //
};

use crate::session::Session;

/// Is told of RDMA devices.
pub(crate) struct Devices;

kernel_ext::rdma_client!(Devices);

impl Devices {
    /// Begins to listen. Sleeps.
    pub(crate) fn register() -> Result<Registration<Self>> {
        Registration::new(Arc::new(Self, GFP_KERNEL)?)
    }
}

impl Client for Devices {
    const NAME: &'static CStr = c"rtrs_client";

    fn add(&self, _device: &Device) -> Result {
        // While the module is being loaded there is nobody to tell.
        if let Ok(globals) = crate::globals() {
            // Not here, as the RDMA core holds locks. Without memory paths wait for their time.
            let sessions = globals.sessions.clone();
            let _ = globals.queue.spawn(move || sessions.retry());
        }
        Ok(())
    }

    // The connection manager tells every connection of it.
    fn remove(&self, _device: &Device) {}
}

/// All sessions.
#[pin_data]
pub(crate) struct Sessions {
    #[pin]
    list: kernel::sync::Mutex<KVec<Arc<Session>>>,
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
    pub(crate) fn add(&self, session: &Arc<Session>) -> Result {
        // `retry` waits for the lock, in the place of work that requests may wait for.
        without_io(|| Ok(self.list.lock().push(session.clone(), GFP_KERNEL)?))
    }

    /// Forgets one, if it is there. Sleeps.
    pub(crate) fn remove(&self, session: &Session) {
        let removed = {
            let mut list = self.list.lock();
            let index = list
                .iter()
                .position(|other| core::ptr::eq(&**other, session));
            index.and_then(|index| list.remove(index).ok())
        };
        drop(removed);
    }

    /// Has all paths that wait to connect again do it now. Sleeps.
    ///
    /// Locked meanwhile: once a session is removed nobody here has it any more, and its user may
    /// be unloaded.
    fn retry(&self) {
        for session in self.list.lock().iter() {
            session.retry_paths();
        }
    }
}
