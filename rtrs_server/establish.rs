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
        InfoReq,
        InfoRsp,
        SgDesc, //
    }, //
};
use rtrs_core::connection::SERVICE_CID;

use crate::{
    chunk::ChunkSlot,
    connection::Connection,
    memory::PathMemory,
    operation::PathIo,
    path::{
        Path,
        PathState,
        Setup,
        ESTABLISH, //
    },
    wr_kind::WrKind, //
};

/// Registrations in one post.
const REGISTRATIONS_PER_POST: usize = 8;

type Connected = QueuePair<Connection<PathIo>>;

/// Makes room for the information request, and waits for it.
pub(crate) fn post_request(setup: &mut Setup, queue_pair: &Connected) -> Result {
    let buffer = MessageBuffer::new(&setup.domain, InfoReq::SIZE)?;
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

/// Answers the information request; after that the path carries requests. Sleeps.
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
    let name = parse_request(path, &setup)?;
    let queue_pairs = take_queue_pairs(path, setup.queue_pairs)?;
    let service = queue_pairs.first().ok_or(ENOTCONN)?;

    path.owner().set_name(&name, path)?;
    let handler = path.owner().clone().path_up(path, service)?;
    // Closing the path waits for this function, and then tells that it is down.
    *path.state().lock() = PathState::Up;

    let memory = setup.memory;
    register(service, &memory)?;
    let response = Response::new(&setup.domain, memory.descriptors())?;

    let mut slots = KVVec::with_capacity(memory.boxes.len(), GFP_KERNEL)?;
    for chunk in memory.boxes {
        slots.push(ChunkSlot::new(chunk), GFP_KERNEL)?;
    }
    path.core().admit_requests(PathIo {
        session: path.session().clone(),
        path: path.core().clone(),
        events: path.clone(),
        handler,
        queue_pairs,
        chunks: memory.chunks,
        regions: memory.regions,
        slots,
        max_send_sge: path.max_send_sge(),
    })?;
    let io = path.core().enter().ok_or(ENOTCONN)?;
    for queue_pair in &io.queue_pairs {
        let count = queue_pair.handler().receives();
        queue_pair.post_empty_recvs(WrKind::Receive.id(), count)?;
    }
    // The client has nowhere to receive a heartbeat before the response.
    path.stop_timer();
    if !path.core().change_state(ServerEvent::Established) {
        return Err(ECONNABORTED);
    }
    response.send(io.queue_pair(SERVICE_CID).ok_or(ENOTCONN)?)?;
    *path.state().lock() = PathState::Answered;
    path.owner().path_answered(path);
    path.start_heartbeat();
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

/// All connections, if they are all there.
fn take_queue_pairs(path: &Path, made: KVec<Option<Connected>>) -> Result<KVec<Connected>> {
    if let Some(missing) = made.iter().position(Option::is_none) {
        kernel_ext::pr_err_ratelimited!("<{}>: connection {} is missing\n", path, missing);
        return Err(EIO);
    }
    let mut queue_pairs = KVec::with_capacity(made.len(), GFP_KERNEL)?;
    for queue_pair in made.into_iter().flatten() {
        queue_pairs.push(queue_pair, GFP_KERNEL)?;
    }
    Ok(queue_pairs)
}

/// Registers all chunks for the client.
fn register(service: &Connected, memory: &PathMemory) -> Result {
    let mut room = SendRoom::<REGISTRATIONS_PER_POST, 0>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    for regions in memory.regions.chunks(REGISTRATIONS_PER_POST) {
        for region in regions {
            batch.register(WrKind::Unsignaled.id(), false, region, Access::RemoteWrite)?;
        }
        service.post(&mut batch)?;
    }
    Ok(())
}

/// The information response, in memory of its own: with `always_invalidate` it is long.
struct Response {
    buffer: MessageBuffer<Outgoing>,
    len: usize,
}

impl Response {
    /// Writes it. Sleeps.
    fn new(
        domain: &Arc<ProtectionDomain>,
        descriptors: impl ExactSizeIterator<Item = SgDesc>,
    ) -> Result<Self> {
        let len = InfoRsp::size(u16::try_from(descriptors.len())?);
        let mut message = KVVec::from_elem(0u8, len, GFP_KERNEL)?;
        InfoRsp::write(&mut message, descriptors).map_err(|error| {
            kernel_ext::pr_err_ratelimited!("information response: {}\n", error.message().as_str());
            rtrs_core::error::from_errno(error.errno())
        })?;
        let buffer = MessageBuffer::new(domain, len)?;
        buffer.copy_in(0, &message)?;
        Ok(Self { buffer, len })
    }

    /// Sends it. The memory stays until the protection domain goes.
    fn send(self, service: &Connected) -> Result {
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.add(self.buffer.sge(self.len)?)?;
        batch.send(WrKind::InfoResponse.id(), true)?;
        Ok(service.post(&mut batch)?)
    }
}
