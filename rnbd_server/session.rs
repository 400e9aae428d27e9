// SPDX-License-Identifier: GPL-2.0

//! Sessions: what a client has open.

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    sync::atomic::{
        ordering,
        Atomic, //
    },
    tracepoint,
    workqueue, //
};
use proto::{
    addr::Address,
    name::SessName,
    rnbd::{
        Io,
        Request,
        SessInfo,
        PROTO_VER_MAJOR, //
    }, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Operation,
    SessionHandler, //
};

use crate::{
    control::{
        self,
        ControlMessage,
        ControlRequest, //
    },
    device_table::DeviceTable,
    io,
    server::Server, //
};

/// A client's session.
///
/// Requests for IO are served where they come in. Messages that open and close devices are served
/// one after the other on the module's workqueue, since both can take long.
#[pin_data]
pub(crate) struct Session {
    server: Arc<Server>,
    name: SessName,
    /// The number of its chunks.
    queue_depth: u32,
    /// The protocol's major version; 0 until the client has told its own.
    version: Atomic<u32>,
    devices: DeviceTable,
    /// Messages that are not yet served, at most one for each chunk of the session.
    #[pin]
    messages: Mutex<KVec<ControlMessage>>,
    /// Held while devices are opened and closed, for as long as their disks take.
    #[pin]
    control: Mutex<Control>,
    /// Where its paths come from; see [`SessionHandler::path_up`]. Taken after `control`, and not
    /// held while a disk is waited for.
    #[pin]
    clients: Mutex<KVec<Option<Address>>>,
    /// The export policy that this session was last refused something by.
    refused_by: Atomic<u32>,
    #[pin]
    work: Work<Session>,
}

/// Whether devices can be opened.
pub(crate) struct Control {
    /// The session is down.
    pub(crate) down: bool,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.work }
}

impl WorkItem for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let messages = core::mem::take(&mut *this.messages.lock());
            if messages.is_empty() {
                return;
            }
            for message in messages {
                control::serve(&this, message);
            }
        }
    }
}

impl Session {
    /// Makes a session that has nothing open. Sleeps.
    pub(crate) fn new(server: Arc<Server>, name: SessName, queue_depth: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                server,
                name,
                queue_depth,
                version: Atomic::new(0),
                devices: DeviceTable::new(),
                messages <- new_mutex!(KVec::new(), "Session::messages"),
                control <- new_mutex!(Control { down: false }, "Session::control"),
                clients <- new_mutex!(KVec::new(), "Session::clients"),
                refused_by: Atomic::new(0),
                work <- new_work!("Session::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// What all sessions have in common.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The name that the client gave it.
    pub(crate) fn name(&self) -> &SessName {
        &self.name
    }

    /// What events say of it.
    pub(crate) fn trace(&self) -> tracepoint::ServerSession<'_> {
        tracepoint::ServerSession {
            session: self.name.as_cstr(),
            queue_depth: self.queue_depth,
        }
    }

    /// The version of the protocol.
    pub(crate) fn version(&self) -> u8 {
        // It was stored from a `u8`.
        u8::try_from(self.version.load(ordering::Relaxed)).unwrap_or(0)
    }

    /// Its devices; changed under [`Session::control`] only, and added to under
    /// [`Session::clients`], too.
    pub(crate) fn devices(&self) -> &DeviceTable {
        &self.devices
    }

    /// The lock for opening and closing devices.
    pub(crate) fn control(&self) -> &Mutex<Control> {
        &self.control
    }

    /// Where its paths come from.
    pub(crate) fn clients(&self) -> &Mutex<KVec<Option<Address>>> {
        &self.clients
    }

    /// The number of the export policy that it was last refused something by; 0 for none.
    pub(crate) fn refused_by(&self) -> &Atomic<u32> {
        &self.refused_by
    }

    /// Answers the first message of a client.
    fn negotiate(&self, op: Operation, info: SessInfo) {
        let ver = info.negotiate();
        tracepoint::process_msg_sess_info(|| tracepoint::SessionInfo {
            session: self.name.as_cstr(),
            proto_ver: ver,
            client_ver: info.ver,
            server_ver: PROTO_VER_MAJOR,
        });
        let result = op.write_response(&SessInfo { ver }.to_rsp_bytes());
        if result.is_ok() {
            self.version.store(u32::from(ver), ordering::Relaxed);
        }
        op.respond(result.and(Ok(SessInfo::SIZE as u32)));
    }

    /// Has a message served on the workqueue. Sleeps.
    fn enqueue(self: &Arc<Self>, op: Operation, request: ControlRequest) {
        let message = ControlMessage { op, request };
        // Without memory the message is dropped, and its operation answered.
        if self.messages.lock().push(message, GFP_KERNEL).is_ok() {
            // If the work is queued already it finds this message too.
            let _ = self.server.queue().enqueue::<Session, 0>(self.clone());
        }
    }
}

/// [`Session`] as the transport knows it.
pub(crate) struct Handler {
    session: Arc<Session>,
}

impl Handler {
    /// Serves a request that is not of the usual kind.
    #[inline(never)]
    fn other_request(&self, op: Operation, header: &[u8]) {
        let session = &self.session;
        match Request::parse(header) {
            Ok(Request::Io(io)) => {
                io::trace(session, &op, &io, header.len());
                io::submit(session, op, io);
            }
            Ok(Request::SessInfo(info)) => session.negotiate(op, info),
            Ok(Request::Open(open)) => match KBox::new(open, GFP_KERNEL) {
                Ok(open) => session.enqueue(op, ControlRequest::Open(open)),
                Err(_) => op.respond(Err(ENOMEM)),
            },
            Ok(Request::Close(close)) => session.enqueue(op, ControlRequest::Close(close)),
            Err(refused) => {
                pr_err_ratelimited!(
                    "session {:?}: {}\n",
                    session.name.as_cstr(),
                    refused.message().as_str()
                );
                op.respond(Err(from_errno(refused.errno())));
            }
        }
    }

    /// Makes the handler of a session.
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }
}

impl SessionHandler for Handler {
    fn path_up(&self, client: Option<Address>) -> Result {
        control::path_up(&self.session, client)
    }

    fn path_down(&self, client: Option<Address>) {
        control::path_down(&self.session, client);
    }

    fn request(&self, op: Operation, header: &[u8]) {
        let session = &self.session;
        if let Some(io) = Io::parse_usual(header) {
            io::trace(session, &op, &io, header.len());
            io::submit(session, op, io);
            return;
        }
        self.other_request(op, header);
    }

    fn session_down(&self) {
        // Messages hold operations, so there are none any more; but the work may still be at its
        // end.
        workqueue::cancel_sync::<Session, 0>(&self.session);
        if !self.session.devices.is_empty() {
            tracepoint::destroy_sess(|| self.session.trace());
        }
        control::close_all(&self.session);
    }
}
