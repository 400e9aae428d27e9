// SPDX-License-Identifier: GPL-2.0

//! RDMA devices that come while sessions exist. Paths that wait for their next attempt to connect
//! then try at once, since it may be their device that is back.

use kernel::{
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    prelude::*,
    rdma::{
        client::{
            Client,
            Registration, //
        },
        Device, //
    }, //
};

use crate::globals::globals;

/// The listener for RDMA devices.
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
        // While the module is being loaded there are no sessions.
        if let Ok(globals) = globals() {
            // Not in this context, as the RDMA core holds locks. Without memory for the work the
            // paths wait for their next attempt.
            let sessions = globals.sessions.clone();
            let _ = globals.queue.spawn(move || sessions.retry());
        }
        Ok(())
    }

    // The connection manager tells each connection of the removal.
    fn remove(&self, _device: &Device) {}
}
