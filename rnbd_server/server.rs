// SPDX-License-Identifier: GPL-2.0

//! What all sessions have in common.

use kernel::sync::Arc;
use kernel_ext::{
    block::bio::BioSet,
    module::ModuleReference,
    prelude::*,
    sysfs::Directory,
    workqueue::QueueHandle, //
};

use crate::{
    drain::Drain,
    export::Exports,
    export_policy::ExportPolicy,
    io_completion::IoCompletion,
    reserved_disks::ReservedDisks, //
};

/// What all sessions have in common.
pub(crate) struct Server {
    exports: Arc<Exports>,
    policy: Arc<ExportPolicy>,
    bios: Arc<BioSet<IoCompletion>>,
    queue: QueueHandle,
    discovery_queue: QueueHandle,
    drain: Drain,
    /// Takes a reference to the module.
    module: fn() -> Result<ModuleReference>,
}

impl Server {
    /// Makes a server that shows its devices in `devices`, and keeps their reservations in
    /// `reserved`; `module` takes a reference to the module. Sleeps.
    pub(crate) fn new(
        devices: Directory<()>,
        reserved: Arc<ReservedDisks>,
        policy: Arc<ExportPolicy>,
        queue: QueueHandle,
        discovery_queue: QueueHandle,
        module: fn() -> Result<ModuleReference>,
    ) -> Result<Arc<Self>> {
        let server = Self {
            exports: Exports::new(devices, reserved)?,
            policy,
            bios: BioSet::new()?,
            queue,
            discovery_queue,
            drain: Drain::new(),
            module,
        };
        Ok(Arc::new(server, GFP_KERNEL)?)
    }

    /// The devices that sessions have open.
    pub(crate) fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// The policy, which says which client may open which device.
    pub(crate) fn policy(&self) -> &ExportPolicy {
        &self.policy
    }

    /// The bios of requests to devices.
    pub(crate) fn bios(&self) -> &Arc<BioSet<IoCompletion>> {
        &self.bios
    }

    /// The workqueue on which devices are opened and closed.
    pub(crate) fn queue(&self) -> &QueueHandle {
        &self.queue
    }

    /// The workqueue on which clients are told of disks.
    pub(crate) fn discovery_queue(&self) -> &QueueHandle {
        &self.discovery_queue
    }

    /// Takes a reference to the module. Any context. `ENODEV` if the module is being unloaded.
    pub(crate) fn reference(&self) -> Result<ModuleReference> {
        (self.module)()
    }

    /// Keeps the module loaded during `work`, which may take for ever: a path may lead to a file
    /// system that does not respond. If the module is being unloaded, the unloading waits for
    /// `work`.
    pub(crate) fn kept_loaded<R>(&self, work: impl FnOnce() -> R) -> R {
        let _reference = self.reference();
        work()
    }

    /// The drain of the server.
    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }
}
