// SPDX-License-Identifier: GPL-2.0

//! The administrator's control of the server: when clients are let in, and which reservations are
//! kept.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    sysfs::{
        Attribute,
        BinaryAttribute, //
    }, //
};
use proto::{
    drain,
    text::{
        Text,
        Untrusted, //
    }, //
};
use rtrs_core::error::from_errno;
use rtrs_server::Listener;

use crate::{
    export_policy::ExportPolicy,
    handler::Sessions,
    params,
    reserved_disks::ReservedDisks, //
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

/// The other files in that directory.
pub(crate) const FILES: &[Attribute<Service>] = &[
    Attribute::read_write(
        c"drain",
        |service, out| match service.draining() {
            Some(Draining {
                left_ms,
                with,
                without,
            }) => out.print(fmt!(
                "{} {} {}\n",
                drain::seconds_of(left_ms),
                with,
                without
            )),
            None => out.print(fmt!("off\n")),
        },
        |service, _, bytes| service.drain(bytes),
    ),
    Attribute::read_write(
        c"kept_reservations",
        |service, out| service.reserved.show_kept(out),
        |service, _, bytes| {
            let name = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            let dropped = service.reserved.drop_kept(name);
            let name = Text::<100>::of(&Untrusted(name));
            dropped.inspect_err(|error| match *error {
                ENOENT => pr_err_ratelimited!(
                    "kept_reservations: no closed disk with kept reservations has the name '{}': \
                     read the file for the names\n",
                    name.as_str()
                ),
                EEXIST => pr_err_ratelimited!(
                    "kept_reservations: '{}' is the name of several disks, write the wwid\n",
                    name.as_str()
                ),
                _ => pr_err_ratelimited!(
                    "kept_reservations: the reservations of '{}' are not dropped: {:?}\n",
                    name.as_str(),
                    error
                ),
            })
        },
    ),
];

/// The state of a drain, as the administrator sees it.
struct Draining {
    left_ms: u32,
    /// The sessions that are to leave: their clients know of drains, or may yet tell that they do.
    with: u32,
    /// The sessions whose clients do not know of drains.
    without: u32,
}

/// Lets clients in: as soon as there is a policy if the server must have one, otherwise at once.
#[pin_data]
pub(crate) struct Service {
    policy: Arc<ExportPolicy>,
    reserved: Arc<ReservedDisks>,
    #[pin]
    state: Mutex<State>,
}

enum State {
    /// The module is being loaded.
    Idle,
    /// No client is let in yet.
    Waiting(Arc<Sessions>),
    /// Clients are let in.
    Open {
        sessions: Arc<Sessions>,
        _listener: Listener,
    },
    /// No client is let in any more.
    Closed,
}

impl Service {
    /// Makes the service, which lets no client in yet. Sleeps.
    pub(crate) fn new(
        policy: Arc<ExportPolicy>,
        reserved: Arc<ReservedDisks>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                policy,
                reserved,
                state <- new_mutex!(State::Idle, "Service::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets clients in to `sessions`, at once or as soon as there is a policy. Sleeps.
    pub(crate) fn serve(&self, sessions: Arc<Sessions>) -> Result {
        *self.state.lock() = State::Waiting(sessions);
        self.start()?;
        if matches!(&*self.state.lock(), State::Waiting(_)) {
            pr_info!(
                "not listening until an export policy is loaded, as require_export_policy is set\n"
            );
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
            sessions: sessions.clone(),
            _listener: listener,
        };
        Ok(())
    }

    /// Calls `run` with the sessions and returns its result. `None` before there are sessions, and
    /// after the service has stopped. Sleeps.
    fn with_sessions<R>(&self, run: impl FnOnce(&Sessions) -> R) -> Option<R> {
        match &*self.state.lock() {
            State::Waiting(sessions) | State::Open { sessions, .. } => Some(run(sessions)),
            State::Idle | State::Closed => None,
        }
    }

    /// The state of the drain, if there is one. Sleeps.
    fn draining(&self) -> Option<Draining> {
        self.with_sessions(|Sessions { server, .. }| {
            let left_ms = server.drain().left_ms()?;
            let (with, without) = server.drain().sessions();
            Some(Draining {
                left_ms,
                with,
                without,
            })
        })?
    }

    /// Begins to drain for as many seconds as `text` says, or ends the drain. Sleeps.
    ///
    /// `EINVAL` unless `text` is a number from 0 to 86400, `ERANGE` for a number of more than 32
    /// bits, `EAGAIN` if the module is being loaded or unloaded.
    fn drain(&self, text: &[u8]) -> Result {
        let seconds = drain::DRAIN.parse(text).map_err(|error| {
            pr_err!("{}\n", error.message().as_str());
            from_errno(error.errno())
        })?;
        self.with_sessions(|Sessions { watch, .. }| {
            if seconds != 0 {
                let ms = watch.begin_drain(seconds.unsigned_abs());
                pr_info!(
                    "drain: new clients and devices are refused for {} s, connected clients are \
                     told\n",
                    drain::seconds_of(ms)
                );
            } else if watch.end_drain() {
                pr_info!("drain: ended, clients are let in again\n");
            }
        })
        .ok_or(EAGAIN)
    }

    /// Closes all sessions and lets no client in any more. Sleeps.
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
