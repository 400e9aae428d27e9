// SPDX-License-Identifier: GPL-2.0

//! RNBD client: remote disks as local block devices.
//!
//! A line written to `map_device` names a session, its paths, and a device path on the server.
//! Devices of one session share its transport and one set of tags; a request's tag is the number of
//! the server's chunk that the request uses.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    unsafe_code
)]

use kernel::sync::Arc;
use kernel_ext::{
    device::{
        class::{
            Class,
            ClassDevice, //
        },
        misc::MiscDevice, //
    },
    module::ModuleReference,
    prelude::*,
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};

use crate::{
    client::Client,
    discovery::Discovery,
    session::SessionContext, //
};

mod client;
mod device;
mod device_list;
mod discovery;
mod disk;
mod drain;
mod fixed_limits;
mod identity;
mod in_flight;
mod latency;
mod limits_update;
mod mapping;
mod news;
mod params;
mod queue;
mod remote_device;
mod reopening;
mod reservations;
mod server;
mod session;
mod state_word;
mod sysfs;

module! {
    type: RnbdClient,
    name: "rnbd_client",
    authors: ["The RNBD in Rust developers"],
    description: "RNBD client: remote disks as local block devices",
    license: "GPL",
}

/// The module; dropped when it is unloaded, which every mapped device prevents.
pub(crate) struct RnbdClient {
    /// Removed first: files that are open keep the module loaded.
    _discover: MiscDevice<Discovery<RnbdClient>>,
    /// Devices can be mapped until it is removed.
    ctl: ClassDevice<Client>,
    client: Arc<Client>,
    _class: Class,
    /// Dropped last, which waits for all work.
    _queues: [OwnedQueue; 3],
}

impl kernel::Module for RnbdClient {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // To free memory, the kernel may wait for a device to be opened again.
        let flags = QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM;
        let queue = OwnedQueue::new(c"rnbd_client", flags)?;
        let uevents = OwnedQueue::new(c"rnbd_client_uevents", QueueFlags::UNBOUND)?;
        let limits = OwnedQueue::new(c"rnbd_client_limits", QueueFlags::UNBOUND)?;
        let client = Client::new(SessionContext {
            queue: queue.handle(),
            uevent_queue: uevents.handle(),
            limits_queue: limits.handle(),
            module: ModuleReference::new::<Self>,
        })?;
        let class = Class::new(c"rnbd-client")?;
        let ctl = class.device(c"ctl", sysfs::CTL_ATTRIBUTES, client.clone())?;
        client.set_devices_directory(&ctl)?;
        let discover = MiscDevice::new(c"rnbd-discover", client.clone())?;
        ctl.announce();
        Ok(Self {
            _discover: discover,
            ctl,
            client,
            _class: class,
            _queues: [queue, uevents, limits],
        })
    }
}

impl Drop for RnbdClient {
    fn drop(&mut self) {
        self.client.remove_devices_directory();
        // Waits for tasks that are mapping a device.
        self.ctl.remove();
    }
}
