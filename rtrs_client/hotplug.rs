// SPDX-License-Identifier: GPL-2.0

//! RDMA devices that come while sessions exist: paths that wait to connect again need not wait
//! any longer, since it may be their device that is back.

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
        if let Ok(globals) = globals() {
            // Not here, as the RDMA core holds locks. Without memory paths wait for their time.
            let sessions = globals.sessions.clone();
            let _ = globals.queue.spawn(move || sessions.retry());
        }
        Ok(())
    }

    // The connection manager tells every connection of it.
    fn remove(&self, _device: &Device) {}
}
