// SPDX-License-Identifier: GPL-2.0

//! The exchange that establishes a path: the client names its session, the server registers the
//! chunks and says where they are.

use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::rdma::{
    message_buffers::{
        MessageBuffer,
        Outgoing, //
    },
    Access,
    ProtectionDomain,
    QueuePair,
    SendChain,
    SgeList, //
};
use proto::{
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
    connection::Connection,
    memory::PathMemory,
    path::{
        Path,
        Setup, //
    },
    path_chunk::PathChunkSlots,
    path_io::PathIo,
    sysfs::PathDirectory,
    work::WorkKind, //
};

/// Registrations in one post.
const REGISTRATIONS_PER_POST: usize = 8;

/// Makes room for the information request, and waits for it.
pub(crate) fn post_request(setup: &mut Setup, queue_pair: &QueuePair<Connection>) -> Result {
    let domain = setup.domain.as_ref().ok_or(ENOTCONN)?;
    let buffer = MessageBuffer::new(domain, InfoReq::SIZE)?;
    queue_pair.post_recv(WorkKind::InfoRequest.id(), &buffer)?;
    setup.info = Some(buffer);
    Ok(())
}

/// Answers the information request; after that the path carries requests. Sleeps.
///
/// The caller closes the path if this fails.
pub(crate) fn establish(path: &Arc<Path>) -> Result {
    // Not locked while it is used: what is dropped on the way waits for event handlers, which may
    // wait for this lock. Closing the path waits for this function.
    let mut setup = {
        let mut place = path.setup().lock();
        if path.state() != ServerState::Connecting {
            return Err(EIO);
        }
        mem::take(&mut *place)
    };
    let result = establish_with(path, &mut setup);
    *path.setup().lock() = setup;
    result
}

fn establish_with(path: &Arc<Path>, setup: &mut Setup) -> Result {
    let name = parse_request(path, setup)?;
    let queue_pairs = take_queue_pairs(path, setup)?;
    let mut memory = setup.memory.take().ok_or(ENOTCONN)?;
    let service = queue_pairs.first().ok_or(ENOTCONN)?;

    path.session().set_name(&name, path)?;
    setup.directory = Some(PathDirectory::new(path, service)?);
    let handler = path.session().path_up(path)?;
    setup.up = true;

    register(service, &mut memory)?;
    let domain = setup.domain.as_ref().ok_or(ENOTCONN)?;
    let response = Response::new(domain, memory.descriptors())?;

    let mut slots = KVVec::with_capacity(memory.boxes.len(), GFP_KERNEL)?;
    for chunk in memory.boxes.drain_all() {
        slots.push(PathChunkSlots::new(chunk), GFP_KERNEL)?;
    }
    path.set_io(PathIo {
        session: path.session().clone(),
        layout: *path.session().layout(),
        handler,
        queue_pairs,
        chunks: memory.chunks,
        regions: memory.regions,
        slots,
        max_send_sge: path.max_send_sge(),
    })?;
    let io = path.io().ok_or(ENOTCONN)?;
    for queue_pair in &io.queue_pairs {
        let count = queue_pair.handler().receives();
        queue_pair.post_empty_recvs(WorkKind::Receive.id(), count)?;
    }
    // The client has nowhere to receive a heartbeat before the response.
    path.stop_timer();
    if !path.change_state(ServerEvent::Established) {
        return Err(ECONNABORTED);
    }
    response.send(io.queue_pair(SERVICE_CID).ok_or(ENOTCONN)?)?;
    path.start_heartbeat();
    Ok(())
}

/// The name that the client gave the session.
fn parse_request(path: &Arc<Path>, setup: &mut Setup) -> Result<proto::name::SessName> {
    let buffer = setup.info.take().ok_or(ENOTCONN)?;
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
fn take_queue_pairs(path: &Path, setup: &mut Setup) -> Result<KVec<QueuePair<Connection>>> {
    if let Some(missing) = setup.queue_pairs.iter().position(Option::is_none) {
        kernel_ext::pr_err_ratelimited!("<{}>: connection {} is missing\n", path, missing);
        return Err(EIO);
    }
    let mut queue_pairs = KVec::with_capacity(setup.queue_pairs.len(), GFP_KERNEL)?;
    for queue_pair in mem::take(&mut setup.queue_pairs).into_iter().flatten() {
        queue_pairs.push(queue_pair, GFP_KERNEL)?;
    }
    Ok(queue_pairs)
}

/// Registers all chunks for the client.
fn register(service: &QueuePair<Connection>, memory: &mut PathMemory) -> Result {
    let mut regions = memory.regions.iter().peekable();
    while regions.peek().is_some() {
        let mut chain = SendChain::<REGISTRATIONS_PER_POST>::new();
        for region in regions.by_ref().take(REGISTRATIONS_PER_POST) {
            chain.reg_mr(
                WorkKind::Unsignaled.id(),
                false,
                region,
                Access::RemoteWrite,
            )?;
        }
        service.post(chain)?;
    }
    memory.set_registered();
    Ok(())
}

/// The answer, in memory of its own: with `always_invalidate` it is long.
struct Response {
    buffer: MessageBuffer<Outgoing>,
    len: usize,
}

impl Response {
    /// Writes it.
    fn new(
        domain: &Arc<ProtectionDomain>,
        descriptors: impl ExactSizeIterator<Item = SgDesc>,
    ) -> Result<Self> {
        let len = InfoRsp::size(u16::try_from(descriptors.len())?);
        let mut buffer = MessageBuffer::new(domain, len)?;
        let written = buffer.write(|bytes| InfoRsp::write(bytes, descriptors));
        written.map_err(|error| {
            kernel_ext::pr_err_ratelimited!("information response: {}\n", error.message().as_str());
            rtrs_core::error::from_errno(error.errno())
        })?;
        Ok(Self { buffer, len })
    }

    /// Sends it. The memory stays until the protection domain goes.
    fn send(self, service: &QueuePair<Connection>) -> Result {
        let entries = SgeList::from(self.buffer.sge(self.len)?);
        let mut chain = SendChain::<1>::new();
        chain.send(WorkKind::InfoResponse.id(), true, &entries)?;
        service.post(chain)
    }
}
