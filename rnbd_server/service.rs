// SPDX-License-Identifier: GPL-2.0

//! When clients are let in.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sysfs::BinaryAttribute, //
};
use rtrs_server::Listener;

use crate::{
    export_policy::ExportPolicy,
    handler::Sessions,
    params, //
};

/// The policy's file in `/sys/class/rnbd-server/ctl/`.
pub(crate) static EXPORT_POLICY: BinaryAttribute<Service> = BinaryAttribute::new(
    c"export_policy",
    |service, offset, out| service.policy.read(offset, out),
    |service, file, offset, bytes| {
        service.policy.write(file, offset, bytes)?;
        service.start()
    },
);

/// Lets clients in as soon as there is a policy if there must be one, else at once.
#[pin_data]
pub(crate) struct Service {
    policy: Arc<ExportPolicy>,
    #[pin]
    state: Mutex<State>,
}

enum State {
    /// The module is being loaded.
    Idle,
    /// Nobody is let in yet.
    Waiting(Arc<Sessions>),
    /// Clients are let in.
    Open { _listener: Listener },
    /// Nobody is let in any more.
    Closed,
}

impl Service {
    /// Makes it, without letting anybody in. Sleeps.
    pub(crate) fn new(policy: Arc<ExportPolicy>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                policy,
                state <- new_mutex!(State::Idle, "Service::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets clients in to `sessions`, as soon as that is possible. Sleeps.
    pub(crate) fn serve(&self, sessions: Arc<Sessions>) -> Result {
        *self.state.lock() = State::Waiting(sessions);
        self.start()?;
        if matches!(&*self.state.lock(), State::Waiting(_)) {
            pr_info!("listening as soon as there is an export policy\n");
        }
        Ok(())
    }

    /// Lets clients in if that is possible now. Sleeps.
    fn start(&self) -> Result {
        let mut state = self.state.lock();
        let State::Waiting(sessions) = &*state else {
            return Ok(());
        };
        if !self.policy.may_serve() {
            return Ok(());
        }
        let port = *params::PORT_NR.get();
        let listener = Listener::open(sessions.clone(), port)
            .inspect_err(|error| pr_err!("cannot listen on port {}: {:?}\n", port, error))?;
        *state = State::Open {
            _listener: listener,
        };
        Ok(())
    }

    /// Closes all sessions and lets nobody in any more. Sleeps.
    fn stop(&self) {
        let state = core::mem::replace(&mut *self.state.lock(), State::Closed);
        drop(state);
    }
}

/// Stops the service when it is dropped.
pub(crate) struct StopService(pub(crate) Arc<Service>);

impl Drop for StopService {
    fn drop(&mut self) {
        self.0.stop();
    }
}
