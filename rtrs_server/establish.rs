// SPDX-License-Identifier: GPL-2.0

//! The exchange that establishes a path: the client names its session, the server registers the
//! chunks and says where they are.

use core::mem;
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    prelude::*,
    rdma::{
        message_buffers::{
            MessageBuffer,
            MessageBuffers,
            Outgoing, //
        },
        Access,
        ProtectionDomain,
        QueuePair,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::{
    name::SessName,
    path_state::{
        ServerEvent,
        ServerState, //
    },
    rtrs::{
        auth::AuthReq,
        InfoReq,
        InfoRsp,
        SgDesc,
        FEATURE_COALESCED_RESPONSES,
        FEATURE_REFUSAL, //
    }, //
};
use rtrs_core::{
    connection::SERVICE_CID,
    error::to_errno,
    traffic::Traffic, //
};

use crate::{
    chunk::ChunkSlot,
    connection::Connection,
    memory::PathMemory,
    operation::PathIo,
    path::{
        Given,
        Path,
        PathState,
        Setup,
        ESTABLISH, //
    },
    wr_kind::WrKind, //
};

/// Registrations in one post.
const REGISTRATIONS_PER_POST: usize = 8;
/// Registrations at a time: more would need a longer send queue from the first connection on, which
/// any peer gets.
pub(crate) const REGISTRATIONS_AT_A_TIME: usize = 32;
/// The work requests of a response besides the RDMA writes of data: at most two of invalidation,
/// registration and immediate. The invalidation of a chunk takes the room of a response.
pub(crate) const OTHERS_PER_RESPONSE: u32 = 2;

type Connected = QueuePair<Connection<PathIo>>;

// Both messages are received into buffers of the same length, which share a page.
const _: () = assert!(AuthReq::SIZE <= InfoReq::SIZE);

/// Posts receives for the information request and, if the client has offered a proof of identity,
/// for that proof, which comes first.
pub(crate) fn post_requests(setup: &mut Setup, queue_pair: &Connected) -> Result {
    let count = if setup.handshake.is_some() { 2 } else { 1 };
    let mut buffers = MessageBuffers::allocate(&setup.domain, count, InfoReq::SIZE)?;
    if setup.handshake.is_some() {
        let buffer = buffers.pop().ok_or(ENOMEM)?;
        queue_pair.post_recv(WrKind::AuthRequest.id(), &buffer)?;
        setup.auth = Some(buffer);
    }
    let buffer = buffers.pop().ok_or(ENOMEM)?;
    queue_pair.post_recv(WrKind::InfoRequest.id(), &buffer)?;
    setup.info = Some(buffer);
    Ok(())
}

impl WorkItem<ESTABLISH> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(error) = establish(&this) {
            kernel_ext::pr_err_ratelimited!("<{}>: path was not established: {:?}\n", this, error);
            this.close();
        }
    }
}

/// Responds to the information request; after that the path carries requests. Sleeps.
///
/// The caller closes the path if this fails.
fn establish(path: &Arc<Path>) -> Result {
    let setup = {
        let mut state = path.state().lock();
        if path.core().state() != ServerState::Connecting {
            return Err(EIO);
        }
        match mem::replace(&mut *state, PathState::Establishing) {
            PathState::Connecting(setup) => setup,
            // The client has sent two information requests; there is only one receive for them.
            _ => return Err(EBUSY),
        }
    };
    if setup.handshake.is_some() && path.identity().is_none() {
        kernel_ext::pr_err_ratelimited!(
            "<{}>: refused: the client named its session before it proved its identity\n",
            path
        );
        return Err(EKEYREJECTED);
    }
    let given = match tell_session(path, &setup) {
        // The client's administrator has to mend these, and only the response tells the client.
        Err(error) if [EACCES, EKEYREJECTED].contains(&error) => {
            return refuse(path, setup, error);
        }
        told => told?,
    };
    // Closing the path waits for this function, and then tells the session that the path is down.
    *path.state().lock() = PathState::Up;
    let queue_pairs = setup.queue_pairs;
    let service = queue_pairs.first().ok_or(ENOTCONN)?;

    copy_beside_others(path, &given, setup.domain.device().numa_node())?;
    // Not before the client has said its name and the user has accepted the client.
    let memory = PathMemory::new(
        &setup.domain,
        given.session.chunks(),
        given.session.layout(),
        path.context().settings.always_invalidate,
        path.core().features() & FEATURE_COALESCED_RESPONSES != 0,
    )?;
    open_send_queues(path, &queue_pairs, &memory)?;
    register(path, service, &memory)?;
    let response = Response::new(path, &setup.domain, memory.descriptors())?;
    let_requests_in(path, given, queue_pairs, memory)?;

    // The client cannot receive a heartbeat before the response.
    path.stop_timer();
    if !path.core().change_state(ServerEvent::Established) {
        return Err(ECONNABORTED);
    }
    path.ticket().end_half_open();
    let io = path.core().enter().ok_or(ENOTCONN)?;
    response.send(io.queue_pair(SERVICE_CID).ok_or(ENOTCONN)?)?;
    *path.state().lock() = PathState::Answered;
    path.owner().path_answered(path);
    path.start_heartbeat();
    Ok(())
}

/// Tells the session which client the path belongs to, and that the path is up. Sleeps. `EACCES` if
/// the user does not want this client, `EKEYREJECTED` if the session is another client's.
fn tell_session(path: &Arc<Path>, setup: &Setup) -> Result<Given> {
    let name = parse_request(path, setup)?;
    check_complete(path, &setup.queue_pairs)?;
    let service = setup.queue_pairs.first().ok_or(ENOTCONN)?;
    path.owner().set_identity(path.identity(), path)?;
    path.owner().set_name(&name, path)?;
    path.owner().clone().path_up(path, service)
}

/// Tells a client why it is refused; the path is closed when the response has been sent. Sleeps.
/// `error` if the client does not know of refusals: then the caller closes the path.
#[cold]
#[inline(never)]
fn refuse(path: &Arc<Path>, setup: Setup, error: Error) -> Result {
    if path.core().features() & FEATURE_REFUSAL == 0 {
        return Err(error);
    }
    let message = InfoRsp::refusal(to_errno(error));
    let buffer = MessageBuffer::new(&setup.domain, message.len())?;
    buffer.copy_in(0, &message)?;
    let service = setup.queue_pairs.first().ok_or(ENOTCONN)?;
    path.refuse();
    send_response(service, buffer, message.len())?;
    // The connections stay until the response has been sent. Closing the path waits for this
    // function.
    *path.state().lock() = PathState::Connecting(setup);
    Ok(())
}

/// Sends a response to the information request. The memory stays until the protection domain goes.
fn send_response(service: &Connected, buffer: MessageBuffer<Outgoing>, len: usize) -> Result {
    let mut room = SendRoom::<1, 1>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    batch.add(buffer.sge(len)?)?;
    batch.send(WrKind::InfoResponse.id(), true)?;
    Ok(service.post(&mut batch)?)
}

/// Has the data of the session's long writes copied if the session has other paths: an invalidation
/// takes away the key of one path only. `node` is the best NUMA node for the memory. Sleeps; see
/// [`SessionIo::begin_copying()`].
///
/// [`SessionIo::begin_copying()`]: crate::session_io::SessionIo::begin_copying
fn copy_beside_others(path: &Arc<Path>, given: &Given, node: i32) -> Result {
    if !path.context().settings.always_invalidate || path.owner().has_only(path) {
        return Ok(());
    }
    given.session.begin_copying(node).inspect_err(|error| {
        kernel_ext::pr_err_ratelimited!(
            "<{}>: the path cannot join the session's other paths ({:?}): long writes of those are \
             in flight, or there is no memory for copies of long writes\n",
            path,
            error
        );
    })
}

/// Lets requests in, with all that they need, and posts the receives for them. Sleeps.
fn let_requests_in(
    path: &Arc<Path>,
    given: Given,
    queue_pairs: KVec<Connected>,
    memory: PathMemory,
) -> Result {
    let mut slots = KVVec::with_capacity(memory.boxes.len(), GFP_KERNEL)?;
    for chunk in memory.boxes {
        slots.push(ChunkSlot::new(chunk), GFP_KERNEL)?;
    }
    path.core().admit_requests(PathIo {
        session: given.session,
        path: path.core().clone(),
        events: path.clone(),
        handler: given.handler,
        queue_pairs,
        chunks: memory.chunks,
        regions: memory.regions,
        slots,
        max_send_sge: path.max_send_sge(),
        traffic: Traffic::new(usize::from(path.num_connections()))?,
    })?;
    let io = path.core().enter().ok_or(ENOTCONN)?;
    for queue_pair in &io.queue_pairs {
        let count = queue_pair.handler().receives();
        queue_pair.post_empty_recvs(WrKind::Receive.id(), count)?;
    }
    Ok(())
}

/// The name that the client gave the session.
fn parse_request(path: &Path, setup: &Setup) -> Result<SessName> {
    let buffer = setup.info.as_ref().ok_or(ENOTCONN)?;
    let mut bytes = [0u8; InfoReq::SIZE];
    let len = (path.info_len() as usize).min(bytes.len());
    let received = bytes.get_mut(..len).ok_or(EINVAL)?;
    buffer.copy_out(received)?;
    match InfoReq::parse(received) {
        Ok(request) => Ok(request.sessname),
        Err(error) => {
            kernel_ext::pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
            Err(rtrs_core::error::from_errno(error.errno()))
        }
    }
}

/// Checks that the client has made all connections.
fn check_complete(path: &Path, queue_pairs: &[Connected]) -> Result {
    if queue_pairs.len() == usize::from(path.num_connections()) {
        return Ok(());
    }
    kernel_ext::pr_err_ratelimited!(
        "<{}>: refused: the client has not made connection {}\n",
        path,
        queue_pairs.len()
    );
    Err(EIO)
}

/// Opens the send queues, now that it is known how many work requests a response takes.
fn open_send_queues(path: &Path, queue_pairs: &[Connected], memory: &PathMemory) -> Result {
    let queue_depth = path.context().settings.layout.queue_depth();
    let writes = memory.chunks.max_sges().div_ceil(path.max_send_sge());
    let per_response = u32::try_from(writes)?
        .max(1)
        .checked_add(OTHERS_PER_RESPONSE)
        .ok_or(EOVERFLOW)?;
    for queue_pair in queue_pairs {
        let connection = queue_pair.handler();
        let credits = connection.send_entries().checked_div(per_response);
        let Some(credits) = credits.filter(|credits| *credits > 0) else {
            kernel_ext::pr_err_ratelimited!(
                "<{}>: memory is too scattered: a response takes {} work requests, and the device \
                 has room for {}: load rtrs_server with a smaller max_chunk_size\n",
                path,
                per_response,
                connection.send_entries()
            );
            return Err(ENOMEM);
        };
        connection.send_queue().open(credits, queue_depth);
    }
    Ok(())
}

/// Registers all chunks for the client. Sleeps.
fn register(path: &Path, service: &Connected, memory: &PathMemory) -> Result {
    let mut room = SendRoom::<REGISTRATIONS_PER_POST, 0>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    for at_a_time in memory.regions.chunks(REGISTRATIONS_AT_A_TIME) {
        let (last, others) = at_a_time.split_last().ok_or(EINVAL)?;
        for regions in others.chunks(REGISTRATIONS_PER_POST) {
            for region in regions {
                batch.register(WrKind::Unsignaled.id(), false, region, Access::RemoteWrite)?;
            }
            service.post(&mut batch)?;
        }
        batch.register(WrKind::Registration.id(), true, last, Access::RemoteWrite)?;
        service.post(&mut batch)?;
        path.wait_registered()?;
    }
    Ok(())
}

/// The information response. It has memory of its own, since it is long with `always_invalidate`.
struct Response {
    buffer: MessageBuffer<Outgoing>,
    len: usize,
}

impl Response {
    /// Writes the response. Sleeps.
    fn new(
        path: &Path,
        domain: &Arc<ProtectionDomain>,
        descriptors: impl ExactSizeIterator<Item = SgDesc>,
    ) -> Result<Self> {
        let len = InfoRsp::size(u16::try_from(descriptors.len())?);
        let mut message = KVVec::from_elem(0u8, len, GFP_KERNEL)?;
        InfoRsp::write(&mut message, descriptors).map_err(|error| {
            kernel_ext::pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
            rtrs_core::error::from_errno(error.errno())
        })?;
        let buffer = MessageBuffer::new(domain, len)?;
        buffer.copy_in(0, &message)?;
        Ok(Self { buffer, len })
    }

    /// Sends the response.
    fn send(self, service: &Connected) -> Result {
        send_response(service, self.buffer, self.len)
    }
}
