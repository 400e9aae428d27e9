// SPDX-License-Identifier: GPL-2.0

//! The functions that the transport calls: sessions that come and go (`Sessions`), and their
//! requests (`Handler`).
//!
//! Each message of a client comes to `Handler`. A block request goes on to `io.rs`. Each other
//! message is deferred to a worker, and goes from there to its file: `control.rs`, `news.rs`,
//! `discovery.rs`, `commands.rs`.

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
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
    block::disk::Wait,
    pr_err_ratelimited,
    prelude::*,
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
        FEATURE_CLOSED,
        FEATURE_DISCOVERY,
        FEATURE_DRAIN,
        FEATURE_NEWS,
        KNOWN_FEATURES,
        PROTO_VER_MAJOR, //
    }, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Operation,
    SessionHandler,
    Times,
    Worker, //
};

use crate::{
    commands,
    control::{
        self,
        ControlMessage,
        ControlRequest, //
    },
    discovery::Discovery,
    io,
    news,
    params::DISCOVERY,
    server::Server,
    session::Session,
    unfinished::Unfinished,
    watch::Watch, //
};

/// [`Server`] as the listener knows it. Gets no messages: the `Handler` of each session does.
pub(crate) struct Sessions {
    pub(crate) server: Arc<Server>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) unfinished: Arc<Unfinished>,
}

impl rtrs_server::Server for Sessions {
    fn admits(&self, client: Option<Address>) -> Result {
        self.server.drain().admits()?;
        self.server.policy().admits(client)
    }

    fn session_up(&self, transport: &Arc<rtrs_server::Session>) -> Result<Arc<dyn SessionHandler>> {
        let name = SessName::new(transport.name().to_bytes())
            .inspect_err(|error| {
                pr_err_ratelimited!(
                    "a client gets no session: its session name {}\n",
                    error.message().as_str()
                )
            })
            .map_err(|_| EINVAL)?;
        let client_id = transport.client_id().copied();
        let depth = transport.queue_depth();
        let session = Session::new(self.server.clone(), name, client_id, depth)?;
        let messages = Messages::new(session.clone(), self.watch.clone())?;
        let discovery = Discovery::new(session.clone())?;
        let handler = Handler {
            session: session.clone(),
            transport: transport.clone(),
            messages,
            discovery,
            unfinished: self.unfinished.clone(),
        };
        let handler = Arc::new(handler, GFP_KERNEL)?;
        self.unfinished.add(&session, transport)?;
        // The drain may have begun after the connection was asked for. Nothing after this can fail.
        self.server
            .drain()
            .session_up()
            .inspect_err(|_| self.unfinished.remove(&session))?;
        tracepoint::create_sess(|| session.trace());
        Ok(handler)
    }
}

/// Messages that open and close devices, which can take long. The messages are served in their
/// order on the module's workqueue.
#[pin_data]
struct Messages {
    session: Arc<Session>,
    watch: Arc<Watch>,
    /// The messages that are not served yet, at most one for each chunk of the session.
    #[pin]
    list: Mutex<KVec<ControlMessage>>,
    #[pin]
    work: Work<Messages>,
}

impl_has_work! {
    impl HasWork<Self> for Messages { self.work }
}

impl WorkItem for Messages {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let messages = core::mem::take(&mut *this.list.lock());
            if messages.is_empty() {
                return;
            }
            for message in messages {
                control::serve(&this.session, message);
                if this.session.features() & FEATURE_NEWS != 0 {
                    this.watch.begin();
                }
            }
        }
    }
}

impl Messages {
    fn new(session: Arc<Session>, watch: Arc<Watch>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session,
                watch,
                list <- new_mutex!(KVec::new(), "Messages::list"),
                work <- new_work!("Messages::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a message served, later. Sleeps.
    fn enqueue(self: &Arc<Self>, op: Operation, request: ControlRequest) {
        let message = ControlMessage { op, request };
        // Without memory the message is dropped, and its operation responded to.
        if self.list.lock().push(message, GFP_KERNEL).is_ok() {
            // If the work is queued already it finds this message too.
            let queue = self.session.server().queue();
            let _ = queue.enqueue::<Self, 0>(self.clone());
        }
    }
}

/// [`Session`] as the transport knows it.
///
/// The handler and the transport's session keep each other until the session is down.
struct Handler {
    session: Arc<Session>,
    transport: Arc<rtrs_server::Session>,
    messages: Arc<Messages>,
    discovery: Arc<Discovery>,
    unfinished: Arc<Unfinished>,
}

impl Handler {
    /// Responds to the session information of a client.
    fn negotiate(&self, op: Operation, info: SessInfo) {
        let known = if *DISCOVERY.get() {
            KNOWN_FEATURES
        } else {
            KNOWN_FEATURES & !FEATURE_DISCOVERY
        };
        let mut answer = info.answer(known);
        let watch = &self.messages.watch;
        let has_news = answer.features() & FEATURE_NEWS != 0;
        if !has_news {
            watch.remove(&self.session);
        }
        if !has_news || watch.add(&self.session, &self.transport).is_err() {
            // The client does without news until it is connected again, and without the extensions
            // that need news.
            let with_news = FEATURE_NEWS | FEATURE_DRAIN | FEATURE_CLOSED;
            answer = info.answer(known & !with_news);
        }
        let ver = answer.ver;
        tracepoint::process_msg_sess_info(|| tracepoint::SessionInfo {
            session: self.session.name().as_cstr(),
            proto_ver: ver,
            client_ver: info.ver,
            server_ver: PROTO_VER_MAJOR,
        });
        let result = op.write_response(&answer.to_rsp_bytes());
        if result.is_ok() {
            self.session.set_negotiated(ver, answer.features());
            // Devices may be open already.
            watch.begin();
        } else {
            watch.remove(&self.session);
        }
        op.respond(result.and(Ok(SessInfo::SIZE as u32)));
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
        match Io::parse_usual(header) {
            Some(io) => {
                io::trace(&self.session, &op, &io, header.len());
                io::submit(&self.session, op, io, Wait::Never);
            }
            None => op.defer(header),
        }
    }

    fn deferred(&self, op: Operation, header: &[u8]) {
        let session = &self.session;
        match Request::parse(header, session.features()) {
            Ok(Request::Io(io)) => {
                // A request of the usual kind was traced when it came.
                if Io::parse_usual(header).is_none() {
                    io::trace(session, &op, &io, header.len());
                }
                io::submit(session, op, io, Wait::Allowed);
            }
            Ok(Request::SessInfo(info)) => self.negotiate(op, info),
            Ok(Request::Open(open)) => match KBox::new(open, GFP_KERNEL) {
                Ok(open) => self.messages.enqueue(op, ControlRequest::Open(open)),
                Err(_) => op.respond(Err(ENOMEM)),
            },
            Ok(Request::Close(close)) => self.messages.enqueue(op, ControlRequest::Close(close)),
            Ok(Request::News(request)) => news::answer(session, op, &request),
            Ok(Request::Discover(request)) => self.discovery.enqueue(op, request),
            Ok(Request::Host(host)) => op.respond(session.set_host(host).map(|()| 0)),
            Ok(Request::Reservation(message)) => commands::serve(session, op, &message),
            Err(refused) => {
                pr_err_ratelimited!(
                    "session {:?}: {}\n",
                    session.name().as_cstr(),
                    refused.message().as_str()
                );
                op.respond(Err(from_errno(refused.errno())));
            }
        }
    }

    fn worker(&self, header: &[u8]) -> Option<Worker> {
        match Request::parse(header, self.session.features()) {
            Ok(Request::Io(io)) => self.session.devices().worker(io.device_id),
            Ok(Request::Reservation(message)) => {
                self.session.devices().command_worker(message.device_id)
            }
            _ => None,
        }
    }

    fn timed(&self, times: &Times) {
        self.session.devices().timed(times);
    }

    fn session_down(&self) {
        // Messages hold operations, so none is left; but the work item may still be running its
        // last lines.
        workqueue::cancel_sync::<Messages, 0>(&self.messages);
        self.discovery.stop();
        if !self.session.devices().is_empty() {
            tracepoint::destroy_sess(|| self.session.trace());
        }
        control::close_all(&self.session);
        self.messages.watch.remove(&self.session);
        self.unfinished.remove(&self.session);
        self.session.uncount();
    }
}
