// SPDX-License-Identifier: GPL-2.0

//! Answers, as the C client expects them.
//!
//! An answer is an immediate with the number of the chunk and an errno. A read sends its data
//! before it, and invalidates the client's key for the place of the data if it asked for that;
//! otherwise the immediate comes with the last of the data.
//! With `always_invalidate` the immediate comes with a message that carries the chunk's key,
//! which is a new one if the chunk had to be registered again. A client that can do without the
//! message is only sent new keys; see
//! [`FEATURE_SHORT_RESPONSES`](proto::rtrs::FEATURE_SHORT_RESPONSES). Answers to writes that are there at
//! the same time go in one message, if the client takes that; see [`coalesced_responses`].

use kernel::prelude::*;
use kernel_ext::{
    pr_err_ratelimited,
    rdma::{
        message_buffers::{
            MessageBuffer,
            Outgoing, //
        },
        Access,
        MemoryRegion,
        RemoteMemory,
        SendChain,
        SgeList, //
    },
    sync::{
        box_slot::BoxList,
        gate::Entered, //
    },
    tracepoint, //
};
use proto::rtrs::{
    coalesced_responses,
    request::Direction,
    Imm,
    Request,
    RkeyRsp,
    SgDesc, //
};

use crate::{
    connection::Connection,
    path_chunk::{
        ChunkBox,
        PathChunk, //
    },
    path_io::PathIo,
    work::WorkKind, //
};

/// The most scatter entries of one RDMA write, whatever the device allows; they are on the stack.
pub(crate) const MAX_SEND_SGE: usize = 32;

/// The work requests of the last post of an answer: data, invalidation, registration, immediate.
const MAX_LAST_POST: usize = 4;

/// Answers the request in `chunk` with an error or with the number of bytes that were read.
///
/// Any context. If the send queue is full the answer is sent later.
#[inline]
pub(crate) fn respond(io: &Entered<PathIo>, mut chunk: ChunkBox, result: Result<u32>) {
    chunk.result = result;
    answer(io, chunk);
}

/// Sends the answer in `chunk`, which was kept back. The chunk belongs to the caller, who keeps it.
pub(crate) fn send_withheld(io: &Entered<PathIo>, chunk: ChunkBox) {
    answer(io, chunk);
}

/// Sends the answer in `chunk`, now or when there is room.
fn answer(io: &Entered<PathIo>, chunk: ChunkBox) {
    let Some(connection) = io.connection(chunk.cid) else {
        io.release(chunk);
        return;
    };
    if !connection.path().is_connected() {
        // Nobody is there to read it.
        io.release(chunk);
        return;
    }
    let Some(chunk) = unless_awaited(io, chunk) else {
        return;
    };
    if connection.joins_answers() && says_nothing_else(&chunk) {
        connection.join(io, chunk);
    } else if connection.take_credit() {
        send_now(io, connection, chunk);
    } else {
        connection.wait(io, chunk);
    }
}

/// Keeps the answer in `chunk` back if other requests wait for the chunk: the client must not have it
/// before they are finished, too. Returns `chunk` if not.
#[inline]
pub(crate) fn unless_awaited(io: &PathIo, chunk: ChunkBox) -> Option<ChunkBox> {
    if !chunk.withheld && io.session.owners().is_awaited(chunk.id) {
        io.withhold(chunk);
        return None;
    }
    Some(chunk)
}

/// The next answer of `chunks` that is not kept back.
fn next_answer(io: &PathIo, chunks: &mut BoxList<PathChunk>) -> Option<ChunkBox> {
    chunks.find_map(|chunk| unless_awaited(io, chunk))
}

/// Sends the answer in `chunk` alone, now or when there is room.
fn send_or_wait(io: &Entered<PathIo>, connection: &Connection, chunk: ChunkBox) {
    if connection.take_credit() {
        send(io, connection, chunk);
    } else {
        connection.wait(io, chunk);
    }
}

/// Whether the answer in `chunk` is no more than that the request was carried out.
#[inline]
fn says_nothing_else(chunk: &PathChunk) -> bool {
    let has_key = chunk
        .registration
        .as_ref()
        .is_none_or(|registration| registration.registered);
    has_key
        && chunk.result.is_ok()
        && chunk
            .request
            .as_ref()
            .is_some_and(|request| !request.is_read())
}

/// Sends the answers in `chunks`, which say nothing but that the requests were carried out.
pub(crate) fn send_joint(
    io: &Entered<PathIo>,
    connection: &Connection,
    chunks: &mut BoxList<PathChunk>,
) {
    while let Some(mut first) = next_answer(io, chunks) {
        let Some(second) = next_answer(io, chunks) else {
            return send_or_wait(io, connection, first);
        };
        // Buffers are there if the client takes joint answers.
        let message = match first.message.take() {
            Some(message) if connection.take_credit() => message,
            message => {
                first.message = message;
                send_or_wait(io, connection, first);
                send_or_wait(io, connection, second);
                continue;
            }
        };
        if let Err(error) = try_send_joint(io, connection, first, message, second, chunks) {
            failed(connection, error);
        }
    }
}

/// Sends as many answers as a message has room for.
fn try_send_joint(
    io: &Entered<PathIo>,
    connection: &Connection,
    mut first: ChunkBox,
    mut message: MessageBuffer<Outgoing>,
    second: ChunkBox,
    chunks: &mut BoxList<PathChunk>,
) -> Result {
    // The numbers of chunks have 16 bits, see `ChunkLayout`.
    let number = |chunk: &PathChunk| {
        trace(connection, chunk);
        chunk.id as u16
    };
    let others = core::iter::from_fn(|| next_answer(io, chunks));
    let rest = Iterator::chain(core::iter::once(second), others).map(|chunk: ChunkBox| {
        let number = number(&chunk);
        // From here on the chunk may be used again, namely as soon as the client has the answer.
        io.release(chunk);
        number
    });
    let numbers = Iterator::chain(core::iter::once(number(&first)), rest);
    let count = message.write(|bytes| coalesced_responses::write(bytes, numbers));
    let sge = message.sge(coalesced_responses::size(count));
    first.message = Some(message);
    io.release(first);
    let sge = SgeList::from(sge?);
    let queue_pair = io.queue_pair(connection.cid()).ok_or(ENOTCONN)?;
    let mut chain = SendChain::<1>::new();
    chain.send_with_imm(
        WorkKind::Answer.id(),
        connection.next_is_signaled(),
        &sge,
        coalesced_responses::immediate(count).encode(),
    )?;
    queue_pair.post_mut(&mut chain)
}

/// Sends the answer in `chunk`, for which the caller took a credit.
pub(crate) fn send(io: &Entered<PathIo>, connection: &Connection, chunk: ChunkBox) {
    send_now(io, connection, chunk);
}

/// See [`send()`].
#[inline(always)]
fn send_now(io: &Entered<PathIo>, connection: &Connection, chunk: ChunkBox) {
    if let Err(error) = try_send(io, connection, chunk) {
        failed(connection, error);
    }
}

/// An answer could not be sent: the client would wait for it for ever.
#[cold]
#[inline(never)]
fn failed(connection: &Connection, error: Error) {
    pr_err_ratelimited!(
        "<{}>: sending an answer failed: {:?}\n",
        connection.path(),
        error
    );
    connection.path().close();
}

/// What an answer does besides carrying the errno.
struct Plan {
    /// Where data goes, and how many bytes of it.
    data: Option<(SgDesc, u32)>,
    /// The client's key that is to be invalidated.
    invalidate: Option<u32>,
}

impl Plan {
    fn of(chunk: &PathChunk) -> Self {
        let Some(Direction::Read {
            target: Some(target),
            need_inval,
        }) = chunk.request.as_ref().map(Request::direction)
        else {
            return Self {
                data: None,
                invalidate: None,
            };
        };
        let len = chunk.result.unwrap_or(0).min(target.len);
        Self {
            data: (len != 0).then_some((target, len)),
            invalidate: need_inval.then_some(target.key),
        }
    }
}

/// The data of a read, if the answer is no more than that: where it is, and where it goes.
#[inline]
fn data_only(
    io: &PathIo,
    connection: &Connection,
    chunk: &PathChunk,
) -> Option<(SgeList<1>, RemoteMemory)> {
    let (Some(request), Ok(len)) = (&chunk.request, chunk.result) else {
        return None;
    };
    let target = request.only_target()?;
    if let Some(registration) = &chunk.registration {
        if !registration.registered || connection.tells_keys() {
            return None;
        }
    }
    let len = len.min(target.len) as usize;
    let sge = chunk.memory.sge(len)?;
    chunk.memory.sync_for_device(&io.chunks, len).ok()?;
    let remote = RemoteMemory {
        address: target.addr,
        rkey: target.key,
    };
    Some((SgeList::from(sge), remote))
}

#[inline(always)]
fn try_send(io: &Entered<PathIo>, connection: &Connection, chunk: ChunkBox) -> Result {
    trace(connection, &chunk);
    let Some((sges, remote)) = data_only(io, connection, &chunk) else {
        return try_send_in_steps(io, connection, chunk);
    };
    let immediate = Imm::IoRsp {
        msg_id: chunk.id,
        errno: 0,
        invalidated: false,
    };
    // From here on the chunk may be used again, namely as soon as the client has the answer.
    io.release(chunk);
    let queue_pair = io.queue_pair(connection.cid()).ok_or(ENOTCONN)?;
    queue_pair.post_write_with_imm(
        WorkKind::Answer.id(),
        connection.next_is_signaled(),
        &sges,
        remote,
        immediate.encode(),
    )
}

/// Sends an answer that may be several work requests.
#[inline(never)]
fn try_send_in_steps(io: &PathIo, connection: &Connection, mut chunk: ChunkBox) -> Result {
    let id = chunk.id;
    let plan = Plan::of(&chunk);
    let immediate = Imm::IoRsp {
        msg_id: id,
        errno: chunk.result.map_or_else(|error| error.to_errno(), |_| 0),
        invalidated: plan.invalidate.is_some(),
    };
    let mut sges = SgeList::<MAX_SEND_SGE>::new();
    let data = match plan.data {
        Some((target, len)) => write_data(io, connection, id, target, len, &mut sges).map(Some),
        None => Ok(None),
    };
    let key = renew_key(io, &mut chunk, connection.tells_keys());
    // From here on the chunk may be used again, namely as soon as the client has the answer.
    io.release(chunk);
    let (data, key) = (data?, key?);
    let queue_pair = io.queue_pair(connection.cid()).ok_or(ENOTCONN)?;

    let signaled = connection.next_is_signaled();
    let mut chain = SendChain::<MAX_LAST_POST>::new();
    if let Some(remote) = data {
        if plan.invalidate.is_none() && key.message.is_none() {
            let id = WorkKind::Answer.id();
            chain.rdma_write_with_imm(id, signaled, &sges, remote, immediate.encode())?;
            return queue_pair.post_mut(&mut chain);
        }
        chain.rdma_write(WorkKind::Unsignaled.id(), false, &sges, remote)?;
    }
    if let Some(region) = key.register {
        chain.reg_mr(
            WorkKind::Unsignaled.id(),
            false,
            region,
            Access::RemoteWrite,
        )?;
    }
    if let Some(rkey) = plan.invalidate {
        chain.send_with_invalidate(WorkKind::Unsignaled.id(), false, rkey)?;
    }
    let id = WorkKind::Answer.id();
    match &key.message {
        Some(message) => chain.send_with_imm(id, signaled, message, immediate.encode())?,
        None => chain.imm_only(id, signaled, immediate.encode())?,
    }
    queue_pair.post_mut(&mut chain)
}

/// Lets an answer be traced.
#[inline]
fn trace(connection: &Connection, chunk: &PathChunk) {
    tracepoint::send_io_resp_imm(|| {
        let path = connection.path();
        tracepoint::Answer {
            session: path.session().name(),
            path: path.name(),
            state: path.state().to_u32(),
            msg_id: chunk.id,
            signal_interval: connection.signals().interval(),
            count: connection.signals().posted(),
            error: chunk.result.map_or_else(|error| error.to_errno(), |_| 0),
            is_write: chunk
                .request
                .as_ref()
                .is_none_or(|request| !request.is_read()),
            need_inval: Plan::of(chunk).invalidate.is_some(),
            always_invalidate: chunk.registration.is_some(),
        }
    });
}

/// What the client is told of a chunk's key; nothing without `always_invalidate`.
struct Key<'a> {
    /// The registration that is to be made again.
    register: Option<&'a MemoryRegion>,
    /// The message with the key.
    message: Option<SgeList<1>>,
}

/// Chooses a new key for the chunk if it was invalidated, and writes the message with its key,
/// which is needed for a new key or if the client has to be told always.
fn renew_key<'a>(io: &'a PathIo, chunk: &mut PathChunk, tell_always: bool) -> Result<Key<'a>> {
    let mut key = Key {
        register: None,
        message: None,
    };
    if let Some(registration) = &mut chunk.registration {
        if registration.registered && !tell_always {
            return Ok(key);
        }
        let id = chunk.id;
        let region = io.region(id).ok_or(EINVAL)?;
        if !registration.registered {
            // With the old key the client must not get at what comes next.
            region.renew_key();
            key.register = Some(region);
            registration.registered = true;
        }
        let message = RkeyRsp {
            buf_id: u16::try_from(id).map_err(|_| EINVAL)?,
            rkey: region.rkey(),
        };
        let buffer = chunk.message.as_mut().ok_or(EINVAL)?;
        buffer.write(|bytes| {
            if let Some(to) = bytes.first_chunk_mut() {
                *to = message.to_bytes();
            }
        });
        key.message = Some(SgeList::from(buffer.sge(RkeyRsp::SIZE)?));
    }
    Ok(key)
}

/// Sends `len` bytes from the start of a chunk to `target`, except for the last RDMA write, whose
/// scatter entries are left in `sges` and whose place is returned.
fn write_data(
    io: &PathIo,
    connection: &Connection,
    chunk: u32,
    target: SgDesc,
    len: u32,
    sges: &mut SgeList<MAX_SEND_SGE>,
) -> Result<RemoteMemory> {
    let chunks = &io.chunks;
    let queue_pair = io.queue_pair(connection.cid()).ok_or(ENOTCONN)?;
    let (index, len) = (chunk as usize, len as usize);
    chunks.sync_for_device(index, 0, len)?;
    let mut done = 0;
    loop {
        let remote = RemoteMemory {
            address: target.addr.wrapping_add(done as u64),
            rkey: target.key,
        };
        sges.clear();
        let left = len.saturating_sub(done);
        let bytes = chunks.add_sges(index, done, left, sges, io.max_send_sge)?;
        if bytes == 0 {
            return Err(EINVAL);
        }
        done = done.saturating_add(bytes);
        if done >= len {
            return Ok(remote);
        }
        let mut chain = SendChain::<1>::new();
        chain.rdma_write(WorkKind::Unsignaled.id(), false, sges, remote)?;
        queue_pair.post(chain)?;
    }
}
