// SPDX-License-Identifier: GPL-2.0

//! How the connections of a path are established.
//!
//! One thread establishes them step by step. Events of the connection manager only report that a
//! step is done. All functions sleep, and give up when the path leaves the state `connecting`,
//! after the session's `connect_timeout_ms` without progress, or when the calling process gets a
//! signal.

use kernel::sync::Arc;
use kernel_ext::{
    net::Namespace,
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        cm,
        message_buffers::{
            MessageBuffer,
            MessageBuffers, //
        },
        Capabilities,
        CompletionQueue,
        Device,
        PollContext,
        ProtectionDomain,
        QueuePair,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::{
    handshake::PathKey,
    rtrs::{
        path_number,
        ConnAccept,
        ConnReq,
        InfoReq,
        InfoRsp,
        FEATURE_COALESCED_RESPONSES,
        FEATURE_DOORBELL,
        FEATURE_PATH_END,
        FEATURE_REFUSAL,
        FEATURE_SHORT_RESPONSES, //
    },
    Errno,
    ProtoError, //
};
use rtrs_core::{
    address::RESOURCE_OWNER,
    connection::{
        QueueSizes,
        SignalInterval,
        SERVICE_CID,
        SERVICE_DEPTH, //
    },
    error::from_errno,
    identity::KernelMac, //
};

use super::{
    proof::{
        Answer,
        Proof, //
    },
    waiting::{
        filled_buffer,
        wait_for_message,
        wait_for_progress, //
    },
    Path,
    PathHandler, //
};
use crate::{
    availability::ConnectSnapshot,
    connection::Connection,
    connection_set::ConnectionSet,
    handler::{
        receive_counts,
        ExchangeBuffers,
        Progress,
        RECEIVE_SIZE, //
    },
    incarnation::{
        Incarnation,
        PathEvents, //
    },
    requests::{
        submit::MAX_SEND_SGE,
        PathRequests, //
    },
    work::WorkKind, //
};

// The server's information about its chunks is received into one buffer, however many there are.
const _: () = assert!(InfoRsp::size(u16::MAX) <= MessageBuffers::MAX_SIZE);

impl Path {
    /// Establishes all connections, see [`establish()`].
    pub(super) fn establish(
        self: &Arc<Self>,
    ) -> Result<(Arc<ConnectionSet<Path>>, ConnectSnapshot)> {
        establish(self)
    }
}

/// Establishes all connections of `path` and learns where the server's chunks are. Returns the
/// connections, and the snapshot of the session that was taken when the server was asked for the
/// first connection.
///
/// The state of the path is `connecting`; the caller changes it.
fn establish(path: &Arc<Path>) -> Result<(Arc<ConnectionSet<Path>>, ConnectSnapshot)> {
    let total = path.num_connections();
    let recon_cnt = path.next_reconnect_count();
    let number = path_number(&path.uuid, recon_cnt);
    let incarnation = Incarnation::new(path.clone(), number)?;
    let mut setup = Setup {
        path,
        incarnation: &incarnation,
        total,
        recon_cnt,
        domain: None,
        max_send_sge: 0,
        snapshot: ConnectSnapshot::default(),
        path_key: None,
    };
    let mut connections = KVec::with_capacity(usize::from(total), GFP_KERNEL)?;
    let mut handlers = KVec::with_capacity(usize::from(total), GFP_KERNEL)?;
    for cid in 0..total {
        let (queue_pair, handler) = setup.connect(cid)?;
        let signals = SignalInterval::new(setup.queue_depth(cid).div_ceil(2));
        connections.push(
            Connection::new(queue_pair, cid, signals, setup.max_send_sge(cid)),
            GFP_KERNEL,
        )?;
        handlers.push(handler, GFP_KERNEL)?;
    }
    setup.exchange_info(&connections, &handlers)?;
    let snapshot = setup.snapshot;
    let set = ConnectionSet::new(incarnation, connections);
    Ok((Arc::new(set, GFP_KERNEL)?, snapshot))
}

/// Logs why the server has sent no usable information about its chunks, and returns the error.
#[cold]
fn no_information(path: &str, error: &ProtoError) -> Error {
    let advice = match error {
        ProtoError::Refused(Errno::EKEYREJECTED) => {
            "; the session was begun with another proof of identity, or without one: disconnect \
             all its paths, and reconnect them then (rnbdctl path)"
        }
        _ => "",
    };
    pr_err_ratelimited!("{}: {}{}\n", path, error.message().as_str(), advice);
    from_errno(error.errno())
}

/// The extensions that this client knows.
const OFFERED_FEATURES: u32 = FEATURE_SHORT_RESPONSES
    | FEATURE_COALESCED_RESPONSES
    | FEATURE_PATH_END
    | FEATURE_DOORBELL
    | FEATURE_REFUSAL;

/// The scatter entries of a request that every device has: one for data, one for the message.
const MIN_SEND_SGE: u32 = 2;

/// How long the CM may take to find a device for the server's address before it is asked again.
const RESOLVE_TIMEOUT_MS: u32 = 2000;

/// Makes a CM id on a device that reaches the server, in at most `timeout` ms.
///
/// The network asks for a neighbour's address for about three seconds, and the CM starts that only
/// once. If the neighbour does not respond meanwhile, the CM waits until its own time is over,
/// although the neighbour may be there soon after. So the CM is asked several times.
fn resolve_address(
    path: &Path,
    handler: &Arc<PathHandler>,
    timeout: u32,
) -> Result<cm::Id<PathHandler>> {
    let mut left = timeout;
    loop {
        let mut id = cm::Id::new(
            handler.clone(),
            Namespace::init(),
            path.port_space(),
            RESOURCE_OWNER,
        )?;
        let step = left.min(RESOLVE_TIMEOUT_MS);
        id.resolve_address(path.source(), path.destination(), step)?;
        match wait_for_progress(path, handler, "resolving the address") {
            Err(error) if error == ETIMEDOUT && step < left => left = left.wrapping_sub(step),
            Err(error) if error == ETIMEDOUT => {
                if !path.expects_absence() {
                    pr_err_ratelimited!(
                        "{}: no way to the server: no machine responds at the address\n",
                        path.name_text()
                    );
                }
                return Err(EHOSTUNREACH);
            }
            result => return result.map(|_| id),
        }
    }
}

/// How long a path waits while another path of the session asks the server, in milliseconds. Then
/// the path asks all the same: the server may never respond to the other path.
const TURN_TIMEOUT_MS: u32 = 500;

/// The state that the steps of one establishment share.
struct Setup<'a> {
    path: &'a Arc<Path>,
    incarnation: &'a Arc<Incarnation<Path>>,
    total: u16,
    recon_cnt: u16,
    /// Made for the device of the first connection; all others must use that device too.
    domain: Option<Arc<ProtectionDomain>>,
    /// The scatter entries of a work request; for service requests see [`Self::max_send_sge()`].
    max_send_sge: u32,
    /// The session, as it was when the server was asked for the first connection.
    snapshot: ConnectSnapshot,
    /// The key by which further connections prove that they belong to the path, if this machine has
    /// proved its identity.
    path_key: Option<PathKey>,
}

impl Setup<'_> {
    /// The most requests in flight on connection `cid`.
    fn queue_depth(&self, cid: u16) -> u32 {
        match self.incarnation.requests() {
            // The last tag is that of service requests, so it does not count. There are two tags or
            // more. Counting it, a depth of a power of two would need a send queue of twice the
            // length, as devices make queues of a power of two entries.
            Some(requests) if cid != SERVICE_CID => requests.queue_depth().wrapping_sub(1),
            _ => SERVICE_DEPTH,
        }
    }

    /// The sizes of the queues of connection `cid`, on `device`.
    fn sizes(&self, cid: u16, device: &Device) -> QueueSizes {
        if cid == SERVICE_CID {
            QueueSizes::service(device.max_qp_wr())
        } else {
            QueueSizes::client(self.queue_depth(cid), device.max_qp_wr())
        }
    }

    /// The scatter entries of a work request on connection `cid`. Few service requests carry data,
    /// and entries take memory.
    fn max_send_sge(&self, cid: u16) -> u32 {
        if cid == SERVICE_CID {
            self.max_send_sge.min(MIN_SEND_SGE)
        } else {
            self.max_send_sge
        }
    }

    /// Establishes connection `cid`.
    fn connect(&mut self, cid: u16) -> Result<(QueuePair<PathHandler>, Arc<PathHandler>)> {
        let path = self.path;
        let handler = PathHandler::new(
            self.incarnation.clone(),
            cid,
            self.path.session.cpu_of(cid)?,
        )?;
        let timeout = path.session.settings.connect_timeout_ms();
        let mut id = resolve_address(path, &handler, timeout)?;
        id.resolve_route(timeout)?;
        wait_for_progress(path, &handler, "resolving the route")?;
        let mut queue_pair = self.make_queue_pair(id, cid)?;
        if cid != SERVICE_CID {
            self.ask_server(&mut queue_pair, &handler, 0)?;
            return Ok((queue_pair, handler));
        }
        let proof = Proof::new(path)?;
        let answer = self.ask_server(&mut queue_pair, &handler, proof.features())?;
        // The proof comes before anything is believed that the server says of itself.
        let domain = self.domain.as_ref().ok_or(EINVAL)?;
        self.path_key = proof.make(path, domain, &queue_pair, &handler, &answer)?;
        self.negotiated(&queue_pair, answer.accept)?;
        Ok((queue_pair, handler))
    }

    /// The protection domain of all connections, made for `device` if there is none.
    fn domain(&mut self, device: &Device) -> Result<Arc<ProtectionDomain>> {
        if let Some(domain) = &self.domain {
            return Ok(domain.clone());
        }
        if !device.has_fast_registration() {
            pr_err!(
                "{}: the RDMA device cannot register memory: use another device\n",
                self.path.name_text()
            );
            return Err(EOPNOTSUPP);
        }
        self.max_send_sge = device.max_send_sge().min(MAX_SEND_SGE as u32);
        let domain = ProtectionDomain::new(device, RESOURCE_OWNER)?;
        self.domain = Some(domain.clone());
        Ok(domain)
    }

    /// Makes the queue pair of connection `cid`, with its completion queue.
    fn make_queue_pair(
        &mut self,
        id: cm::Id<PathHandler>,
        cid: u16,
    ) -> Result<QueuePair<PathHandler>> {
        let device = id.device().ok_or(ENODEV)?;
        let domain = self.domain(device)?;
        let sizes = self.sizes(cid, device);
        let context = if self.path.is_polled(cid) {
            PollContext::Direct
        } else {
            PollContext::Softirq
        };
        let queue = CompletionQueue::new(
            device,
            RESOURCE_OWNER,
            sizes.completions(device)?,
            self.path.session.cpu_of(cid)?,
            context,
        )?;
        self.create_queue_pair(id, cid, &domain, &queue, &sizes)
    }

    /// Asks the server for the connection, offering `features` and those that are always offered.
    /// Returns the server's response if it accepts.
    fn ask_server(
        &mut self,
        queue_pair: &mut QueuePair<PathHandler>,
        handler: &PathHandler,
        features: u32,
    ) -> Result<Answer> {
        let (path, cid) = (self.path, handler.cid);
        let session = &path.session;
        // Later connections belong to a session that exists.
        let may_be_first = cid == SERVICE_CID
            && path.may_be_first()
            && session.availability.snapshot().let_make_session();
        // A C server that two paths ask for a session at once makes two sessions, and frees one of
        // them in use. Paths do ask at once when a server has just been loaded.
        let asking = may_be_first
            .then(|| {
                session
                    .asking
                    .lock_interruptible_timeout(TURN_TIMEOUT_MS)
                    .ok()
            })
            .flatten();
        if cid == SERVICE_CID {
            self.snapshot = session.availability.snapshot();
        }
        let first_conn = may_be_first && self.snapshot.let_make_session();
        let request = ConnReq {
            cid,
            cid_num: self.total,
            recon_cnt: self.recon_cnt,
            sess_uuid: path.uuid,
            paths_uuid: session.uuid,
            first_conn,
            features: OFFERED_FEATURES | features,
            given_up: self.snapshot.given_up,
        };
        let mut message = request.to_bytes();
        if let Some(key) = self.path_key.as_ref().filter(|_| cid != SERVICE_CID) {
            let number = queue_pair.number_at_peer();
            key.connection(&KernelMac, cid, number).put(&mut message);
        }
        queue_pair.connect(&message, &session.settings.connection_parameters())?;
        let progress = wait_for_progress(path, handler, "the server's response")?;
        let Progress::Established(reply) = progress else {
            return Err(ECONNRESET);
        };
        drop(asking);
        if first_conn && session.availability.has_path_up() {
            // Another path came up while this request was on its way. The server may have forgotten
            // that path since. Then this connection belongs to a new session, and the user would
            // not be told of that.
            return Err(ECONNRESET);
        }
        Answer::parse(request, &reply).map_err(|error| {
            pr_err_ratelimited!("{}: {}\n", path.name_text(), error.message().as_str());
            ECONNRESET
        })
    }

    /// Makes the queue pair itself. Tries with fewer scatter entries if the device does not have as
    /// many in a queue of that length, as the device does not tell that before.
    fn create_queue_pair(
        &mut self,
        mut id: cm::Id<PathHandler>,
        cid: u16,
        domain: &Arc<ProtectionDomain>,
        queue: &Arc<CompletionQueue>,
        sizes: &QueueSizes,
    ) -> Result<QueuePair<PathHandler>> {
        let wr_ids = WorkKind::count(sizes.receive)?;
        loop {
            let capabilities = Capabilities {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive,
                max_send_sge: self.max_send_sge(cid),
                max_recv_sge: 1,
            };
            match id.create_queue_pair(domain, queue, &capabilities, wr_ids) {
                Ok(queue_pair) => return Ok(queue_pair),
                Err((unused, error))
                    if self.max_send_sge(cid) > MIN_SEND_SGE
                        && (error == ENOMEM || error == EINVAL) =>
                {
                    self.max_send_sge = (self.max_send_sge / 2).max(MIN_SEND_SGE);
                    id = unused;
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Takes over what the server offers; it has accepted the first connection.
    fn negotiated(&self, queue_pair: &QueuePair<PathHandler>, accept: ConnAccept) -> Result {
        let path = self.path;
        let domain = self.domain.as_ref().ok_or(EINVAL)?;
        let queue_depth = path
            .session
            .negotiated(path.name_text(), &accept, domain.device())
            .inspect_err(|_| path.backoff.note_hopeless())?;
        path.set_device(queue_pair)?;
        path.settle_name()?;
        let max_pages = path.session.limit_segments(domain.device())?;
        self.incarnation.set_requests(PathRequests::new(
            domain,
            path.session.tags.clone(),
            accept,
            queue_depth,
            max_pages,
            path.stats.clone(),
        )?)
    }

    /// Posts all receives, sends the name of the session, and notes the chunks in the server's
    /// response.
    fn exchange_info(
        &self,
        connections: &KVec<Connection<PathHandler>>,
        handlers: &KVec<Arc<PathHandler>>,
    ) -> Result {
        let path = self.path;
        let requests = self.incarnation.requests().ok_or(EINVAL)?;
        let domain = self.domain.as_ref().ok_or(EINVAL)?;
        let (Some(first), Some(handler)) = (connections.first(), handlers.first()) else {
            return Err(EINVAL);
        };

        let size = InfoRsp::size(requests.accept.queue_depth);
        let message = InfoReq {
            sessname: path.session.session_name(),
        }
        .to_bytes();
        let buffers = handler.set_info_buffers(ExchangeBuffers {
            request: filled_buffer(domain, &message)?,
            response: MessageBuffer::new(domain, size)?,
        })?;

        // The response is the first message that comes, so its receive is the first of its queue.
        first
            .queue_pair()
            .post_recv(WorkKind::InfoReceive.id(), &buffers.response)?;
        for (connection, handler) in connections.iter().zip(handlers) {
            self.post_receives(domain, requests, connection, handler)?;
        }

        // The server's response to the next message says that the registration is done.
        requests.register_bounce_buffers(first.queue_pair())?;
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.add(buffers.request.sge(message.len())?)?;
        batch.send(WorkKind::InfoSend.id(), true)?;
        first.queue_pair().post(&mut batch)?;

        let mut bytes = KVVec::new();
        let what = "learning where the server's memory is";
        let len = wait_for_message(path, handler, what, PathHandler::info_len)?;
        bytes.resize(len.min(size), 0, GFP_KERNEL)?;
        buffers.response.copy_out(&mut bytes)?;
        let info = InfoRsp::parse(&bytes, &requests.layout)
            .map_err(|error| no_information(path.name_text(), &error))?;
        let used = requests.queue_depth() as usize;
        for (index, chunk) in info.remote_bufs().take(used).enumerate() {
            requests.set_chunk(index, chunk.addr, chunk.rkey)?;
        }
        Ok(())
    }

    /// Posts the receives of a connection, with buffers if the server sends more than immediates.
    fn post_receives(
        &self,
        domain: &Arc<ProtectionDomain>,
        requests: &PathRequests,
        connection: &Connection<PathHandler>,
        handler: &PathHandler,
    ) -> Result {
        let cid = handler.cid;
        let room = if cid == SERVICE_CID {
            0
        } else {
            self.sizes(cid, domain.device()).receive
        };
        let (count, at_once) = receive_counts(self.queue_depth(cid), room);
        if requests.accept.new_rkey || requests.takes_coalesced_responses() {
            handler.set_receive_buffers(MessageBuffers::allocate(
                domain,
                count as usize,
                RECEIVE_SIZE,
            )?);
        }
        handler.post_receives(connection.queue_pair(), count, at_once)
    }
}
