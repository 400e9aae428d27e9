// SPDX-License-Identifier: GPL-2.0

//! What all sessions have in common.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    block::bio::BioSet,
    sysfs::Directory,
    tracepoint,
    workqueue::QueueHandle, //
};
use proto::name::SessName;
use rtrs_server::SessionHandler;

use crate::{
    export::Exports,
    export_policy::ExportPolicy,
    io::IoCompletion,
    session::{
        Handler,
        Session, //
    }, //
};

/// The user of the transport.
pub(crate) struct Server {
    exports: Arc<Exports>,
    policy: Arc<ExportPolicy>,
    bios: Arc<BioSet<IoCompletion>>,
    queue: QueueHandle,
}

impl Server {
    /// Makes a server that shows its devices in `devices`. Sleeps.
    pub(crate) fn new(
        devices: Directory<()>,
        policy: Arc<ExportPolicy>,
        queue: QueueHandle,
    ) -> Result<Arc<Self>> {
        let server = Self {
            exports: Exports::new(devices)?,
            policy,
            bios: BioSet::new()?,
            queue,
        };
        Ok(Arc::new(server, GFP_KERNEL)?)
    }

    /// The devices that sessions have open.
    pub(crate) fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// Who may open what.
    pub(crate) fn policy(&self) -> &ExportPolicy {
        &self.policy
    }

    /// What requests to devices are made of.
    pub(crate) fn bios(&self) -> &Arc<BioSet<IoCompletion>> {
        &self.bios
    }

    /// Where devices are opened and closed.
    pub(crate) fn queue(&self) -> &QueueHandle {
        &self.queue
    }
}

/// [`Server`] as the listener knows it.
pub(crate) struct Sessions(pub(crate) Arc<Server>);

impl rtrs_server::Server for Sessions {
    fn session_up(&self, session: &Arc<rtrs_server::Session>) -> Result<Arc<dyn SessionHandler>> {
        let name = SessName::new(session.name().to_bytes())
            .inspect_err(|error| {
                kernel_ext::pr_err_ratelimited!("session name {}\n", error.message().as_str())
            })
            .map_err(|_| EINVAL)?;
        let session = Session::new(self.0.clone(), name, session.queue_depth())?;
        let handler = Arc::new(Handler::new(session.clone()), GFP_KERNEL)?;
        tracepoint::create_sess(|| session.trace());
        Ok(handler)
    }
}
