// SPDX-License-Identifier: GPL-2.0

//! Sessions: what a client has open.

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
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    },
    tracepoint, //
};
use proto::{
    addr::Address,
    client_id::ClientId,
    name::SessName,
    rnbd::{
        Host,
        FEATURE_DRAIN,
        NO_NEWS, //
    }, //
};

use crate::{
    device_table::DeviceTable,
    export_policy::Subject,
    machine::Machine,
    server::Server, //
};

/// A client's session.
#[pin_data]
pub(crate) struct Session {
    server: Arc<Server>,
    subject: Subject,
    /// The number of the session's chunks.
    queue_depth: u32,
    /// The protocol's major version; 0 until the client has told its own.
    version: Atomic<u32>,
    /// The extensions that are used; none until the client has told which extensions it knows.
    features: Atomic<u32>,
    /// Whether the session is counted as one that stays while the server drains.
    stays: Atomic<bool>,
    /// The name of the client's machine, if the client has told one.
    host: SetOnce<Host>,
    /// The number of the last change of a device's disk. Held while disks are compared, and while
    /// the client is told; taken after `control`, and not held while a disk is waited for.
    #[pin]
    last_news: Mutex<u32>,
    devices: DeviceTable,
    /// Held while devices are opened and closed, for as long as their disks take.
    #[pin]
    control: Mutex<Control>,
    /// The addresses that the session's paths come from; see
    /// [`SessionHandler::path_up`](rtrs_server::SessionHandler::path_up). Taken after `control`,
    /// and not held while a disk is waited for.
    #[pin]
    clients: Mutex<KVec<Option<Address>>>,
}

/// Whether devices can be opened.
pub(crate) struct Control {
    /// The session is down.
    pub(crate) down: bool,
}

impl Session {
    /// Makes a session that has nothing open. Sleeps.
    pub(crate) fn new(
        server: Arc<Server>,
        name: SessName,
        client_id: Option<ClientId>,
        queue_depth: u32,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                server,
                subject: Subject::new(name, client_id),
                queue_depth,
                version: Atomic::new(0),
                features: Atomic::new(0),
                stays: Atomic::new(false),
                host: SetOnce::new(),
                last_news <- new_mutex!(NO_NEWS, "Session::last_news"),
                devices: DeviceTable::new(),
                control <- new_mutex!(Control { down: false }, "Session::control"),
                clients <- new_mutex!(KVec::new(), "Session::clients"),
            }),
            GFP_KERNEL,
        )
    }

    /// The server, which all sessions have in common.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The session as the export policy knows it.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The name that the client gave the session.
    pub(crate) fn name(&self) -> &SessName {
        &self.subject.name
    }

    /// The session's fields in events.
    pub(crate) fn trace(&self) -> tracepoint::ServerSession<'_> {
        tracepoint::ServerSession {
            session: self.name().as_cstr(),
            queue_depth: self.queue_depth,
        }
    }

    /// The protocol's major version; 0 until the client has told its own.
    #[inline]
    pub(crate) fn version(&self) -> u8 {
        // Stored from a `u8`.
        self.version.load(ordering::Relaxed) as u8
    }

    /// The extensions that are used (`proto::rnbd::FEATURE_`).
    pub(crate) fn features(&self) -> u32 {
        self.features.load(ordering::Relaxed)
    }

    /// Notes the version that the client has told, and the extensions that are used.
    pub(crate) fn set_negotiated(&self, version: u8, features: u32) {
        self.version.store(u32::from(version), ordering::Relaxed);
        self.features.store(features, ordering::Relaxed);
        let stays = features & FEATURE_DRAIN == 0;
        if self.stays.xchg(stays, ordering::Full) != stays {
            self.server.drain().count_again(stays);
        }
    }

    /// Takes the session out of the count of sessions: it has closed all that it had open. Any
    /// context.
    pub(crate) fn uncount(&self) {
        let stays = self.stays.load(ordering::Relaxed);
        self.server.drain().session_down(stays);
    }

    /// Notes that the client calls its machine `host`, which counts for devices that are opened
    /// from now on. `EEXIST`, which is logged, if the client has called the machine otherwise
    /// before.
    pub(crate) fn set_host(&self, host: Host) -> Result {
        if self.host.populate(host) || self.host.as_ref() == Some(&host) {
            return Ok(());
        }
        pr_err_ratelimited!(
            "session {:?}: the client names its machine {:?}, but has named it otherwise in this \
             session: a new host_uuid needs a new session\n",
            self.name().as_cstr(),
            host
        );
        Err(EEXIST)
    }

    /// The client's machine, as reservations know it. Sleeps.
    pub(crate) fn machine(&self) -> Result<Machine> {
        Machine::new(self.host.as_ref(), self.name())
    }

    /// The number of the last change of a device's disk. Each change is made with it locked.
    pub(crate) fn last_news(&self) -> &Mutex<u32> {
        &self.last_news
    }

    /// The session's devices. They change with [`Session::control`] locked only, and are added with
    /// [`Session::clients`] locked, too.
    pub(crate) fn devices(&self) -> &DeviceTable {
        &self.devices
    }

    /// The lock for opening and closing devices.
    pub(crate) fn control(&self) -> &Mutex<Control> {
        &self.control
    }

    /// The addresses that the session's paths come from.
    pub(crate) fn clients(&self) -> &Mutex<KVec<Option<Address>>> {
        &self.clients
    }
}
