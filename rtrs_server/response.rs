// SPDX-License-Identifier: GPL-2.0

//! Responses, as the C client expects them.
//!
//! A response is an immediate with the number of the chunk and an errno. A read sends its data
//! first, and the immediate comes with the last of the data. If the client asked for it, the
//! response then invalidates the client's key for the place of the data, and the immediate follows.
//! With `always_invalidate` the immediate comes with a message that carries the chunk's key, which
//! is a new one if the chunk had to be registered again. A client that can do without the message
//! is only sent new keys; see [`FEATURE_SHORT_RESPONSES`]. Responses to writes that are ready at
//! the same time go in one message, if the client takes that; see [`coalesced_responses`].
//!
//! A chunk is released only when its response has been posted: a request that comes for the chunk
//! earlier waits. So a message is not written again before it is posted, and a registration that is
//! still to be posted is not invalidated.

use core::mem;
use kernel_ext::{
    prelude::*,
    rdma::{
        Access,
        MemoryRegion,
        RemoteMemory,
        SendBatch,
        SendRoom,
        Sge, //
    },
    static_key::ServerTimes,
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
    SgDesc,
    FEATURE_SHORT_RESPONSES, //
};

use crate::{
    chunk::{
        ChunkKey,
        DataPlace,
        Responses,
        Task, //
    },
    connection::{
        Connection,
        ConnectionRef, //
    },
    operation::{
        ChunkBox,
        PathChunk,
        PathIo, //
    },
    wr_kind::WrKind, //
};

/// The most scatter entries of one RDMA write. A chunk is one block of memory, except where memory
/// is scarce. With two entries a work request is no longer than with one, on usual adapters. The
/// number does not depend on the chunks, so queues can be made before a client's chunks are.
pub(crate) const MAX_SEND_SGE: usize = 2;

/// The last post of a response: data, registration, invalidation, and the immediate, which may come
/// with a message.
type LastPost<'a> = SendBatch<'a, 4, { MAX_SEND_SGE + 1 }>;

impl Responses for PathIo {
    fn respond(io: &Entered<Self>, chunk: ChunkBox) {
        let queue_pair = match io.queue_pair(chunk.cid) {
            Some(queue_pair) if io.path.is_connected() => queue_pair,
            // No client is there to read the response.
            _ => return io.release(chunk),
        };
        if is_contended(io, &chunk) {
            return withhold(io, chunk);
        }
        let queue = queue_pair.handler().send_queue();
        if queue.is_collecting() && says_nothing_else(&chunk) {
            if !queue.collect(chunk) {
                send_coalesced(io, queue_pair, queue.take_collected());
            }
        } else if queue.take_credit() {
            post(io, queue_pair, chunk);
        } else {
            wait(io, queue_pair, chunk);
        }
    }
}

/// Sends the response in `chunk` when there is room.
fn wait(io: &Entered<PathIo>, queue_pair: &ConnectionRef<PathIo>, mut chunk: ChunkBox) {
    chunk.task = Task::Respond;
    queue_pair.handler().send_queue().wait(chunk);
    queue_pair.handler().send_waiting(io, queue_pair);
}

/// Sends the response in `chunk`, which has waited for room; the caller took a credit.
pub(crate) fn send_waited(
    io: &Entered<PathIo>,
    queue_pair: &ConnectionRef<PathIo>,
    chunk: ChunkBox,
) {
    if is_contended(io, &chunk) {
        queue_pair.handler().send_queue().give_credits(1);
        return withhold(io, chunk);
    }
    post_late(io, queue_pair, chunk);
}

/// Whether the response in `chunk` is to be withheld first: see
/// [`is_contended()`](crate::claims::ChunkClaims::is_contended).
#[inline]
fn is_contended(io: &PathIo, chunk: &PathChunk) -> bool {
    chunk.owns && io.session.claims().is_contended(chunk.id)
}

/// Withholds the response in `chunk`, and passes the chunk on.
#[cold]
#[inline(never)]
fn withhold(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    let id = chunk.id;
    chunk.owns = false;
    chunk.entered = Some(io.clone());
    io.session
        .give_back(mem::replace(&mut chunk.data, DataPlace::Chunk));
    io.session.claims().withhold(chunk);
    io.session.pass_on(id);
}

/// Whether the response in `chunk` only says that the request was carried out.
#[inline]
fn says_nothing_else(chunk: &PathChunk) -> bool {
    !matches!(chunk.key, ChunkKey::Invalidated(_))
        && chunk.result.is_ok()
        && chunk
            .request
            .as_ref()
            .is_some_and(|request| !request.is_read())
}

/// Sends the responses in `chunks`, which only say that the requests were carried out, in as few
/// messages as possible.
pub(crate) fn send_coalesced(
    io: &Entered<PathIo>,
    queue_pair: &ConnectionRef<PathIo>,
    mut chunks: BoxList<PathChunk>,
) {
    while let Some(first) = chunks.next() {
        let queue = queue_pair.handler().send_queue();
        if is_contended(io, &first) {
            withhold(io, first);
        } else if !queue.take_credit() {
            wait(io, queue_pair, first);
        } else if chunks.is_empty() || first.message.is_none() {
            post_late(io, queue_pair, first);
        } else {
            post_coalesced(io, queue_pair, first, &mut chunks);
        }
    }
}

/// Posts the response in `first` together with as many of `more` as a message has room for. The
/// caller took a credit.
fn post_coalesced(
    io: &Entered<PathIo>,
    queue_pair: &ConnectionRef<PathIo>,
    first: ChunkBox,
    more: &mut BoxList<PathChunk>,
) {
    let connection = queue_pair.handler();
    let mut numbers = [0; coalesced_responses::MAX_COALESCED_SIZE];
    let mut posted = BoxList::new();
    trace(connection, &first);
    // The numbers of chunks have 16 bits, see `ChunkLayout`.
    let others = core::iter::from_fn(|| loop {
        let chunk = more.next()?;
        if is_contended(io, &chunk) {
            withhold(io, chunk);
            continue;
        }
        trace(connection, &chunk);
        let number = chunk.id as u16;
        posted.push(chunk);
        return Some(number);
    });
    let all = Iterator::chain(core::iter::once(first.id as u16), others);
    let count = coalesced_responses::write(&mut numbers, all);
    let size = coalesced_responses::size(count);
    let result = first.message.as_ref().ok_or(EINVAL).and_then(|message| {
        message.copy_in(0, numbers.get(..size).ok_or(EINVAL)?)?;
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.add(message.sge(size)?)?;
        batch.send_with_imm(
            WrKind::Response.id(),
            connection.send_queue().next_is_signaled(),
            coalesced_responses::immediate(count).encode(),
        )?;
        Ok(queue_pair.post(&mut batch)?)
    });
    if let Err(error) = result {
        connection.send_failed("a response", error);
    }
    tell_times(io, &first);
    io.release(first);
    for chunk in posted {
        tell_times(io, &chunk);
        io.release_inline(chunk);
    }
}

/// Does what [`post()`] does, for a response that was not sent at once.
#[inline(never)]
fn post_late(io: &Entered<PathIo>, queue_pair: &ConnectionRef<PathIo>, chunk: ChunkBox) {
    post(io, queue_pair, chunk);
}

/// Posts the response in `chunk` and releases the chunk. The caller took a credit.
///
/// Inlined where responses are sent at once, which saves 20 instructions of 500.
#[inline(always)]
fn post(io: &Entered<PathIo>, queue_pair: &ConnectionRef<PathIo>, chunk: ChunkBox) {
    let connection = queue_pair.handler();
    trace(connection, &chunk);
    let Some((data, remote)) = only_write(connection, &chunk) else {
        return post_in_steps(io, queue_pair, chunk);
    };
    let immediate = Imm::IoRsp {
        msg_id: chunk.id,
        errno: chunk.result.map_or_else(|error| error.to_errno(), |_| 0),
        invalidated: false,
    }
    .encode();
    let (id, signaled) = (
        WrKind::Response.id(),
        connection.send_queue().next_is_signaled(),
    );
    // Made last, so that no atomic access lies between the batch and its post: the compiler then
    // keeps the batch's fields in registers.
    let mut room = SendRoom::<1, 1>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    let posted = data
        .map_or(Ok(()), |data| batch.add(data))
        .and_then(|()| batch.write_with_imm(id, signaled, remote, immediate))
        .and_then(|()| Ok(queue_pair.post(&mut batch)?));
    if let Err(error) = posted {
        // Without its response the client would wait for ever.
        connection.send_failed("a response", error);
    }
    tell_times(io, &chunk);
    io.release_inline(chunk);
}

/// Whether each response tells the client the key of its chunk, not only a new key.
#[inline]
fn tells_keys(connection: &Connection<PathIo>) -> bool {
    connection.path().features() & FEATURE_SHORT_RESPONSES == 0
}

/// What a response does besides carrying the errno.
struct Plan {
    /// Where data goes, and the number of its bytes.
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
        // An error comes without data.
        let len = chunk.result.map_or(0, |len| len.min(target.len));
        Self {
            data: (len != 0).then_some((target, len)),
            invalidate: need_inval.then_some(target.key),
        }
    }
}

/// Returns what the response writes and where, if it does nothing else. The response to a write has
/// no data.
#[inline(always)]
fn only_write(
    connection: &Connection<PathIo>,
    chunk: &PathChunk,
) -> Option<(Option<Sge>, RemoteMemory)> {
    let has_message = chunk.key != ChunkKey::Shared && tells_keys(connection);
    if matches!(chunk.key, ChunkKey::Invalidated(_)) || has_message {
        return None;
    }
    let request = chunk.request.as_ref()?;
    if !request.is_read() {
        return Some((None, RemoteMemory::NONE));
    }
    let target = request.only_target()?;
    let len = chunk.result.ok()?.min(target.len) as usize;
    let sge = chunk.memory.sge(len)?;
    chunk.memory.sync_for_device(len).ok()?;
    let remote = RemoteMemory {
        address: target.addr,
        rkey: target.key,
    };
    Some((Some(sge), remote))
}

/// Does what [`post()`] does, for a response that may be several work requests.
#[inline(never)]
fn post_in_steps(io: &PathIo, queue_pair: &ConnectionRef<PathIo>, mut chunk: ChunkBox) {
    if let Err(error) = post_steps(io, queue_pair, &mut chunk) {
        queue_pair.handler().send_failed("a response", error);
    }
    tell_times(io, &chunk);
    io.release(chunk);
}

/// Posts the work requests of the response in `chunk`.
fn post_steps(io: &PathIo, queue_pair: &ConnectionRef<PathIo>, chunk: &mut PathChunk) -> Result {
    let plan = Plan::of(chunk);
    let immediate = Imm::IoRsp {
        msg_id: chunk.id,
        errno: chunk.result.map_or_else(|error| error.to_errno(), |_| 0),
        invalidated: plan.invalidate.is_some(),
    }
    .encode();
    let mut room = SendRoom::EMPTY;
    let mut batch = LastPost::new(&mut room);
    let data = match plan.data {
        Some((target, len)) => Some(write_data(
            io, queue_pair, chunk.id, target, len, &mut batch,
        )?),
        None => None,
    };
    let connection = queue_pair.handler();
    let key = renew_key(io, chunk, connection)?;
    let signaled = connection.send_queue().next_is_signaled();
    let (id, unsignaled) = (WrKind::Response.id(), WrKind::Unsignaled.id());
    let comes_with_data = plan.invalidate.is_none() && key.message.is_none();
    if let Some(remote) = data.filter(|_| !comes_with_data) {
        batch.rdma_write(unsignaled, false, remote)?;
    }
    if let Some(region) = key.register {
        batch.register(unsignaled, false, region, Access::RemoteWrite)?;
    }
    if let Some(rkey) = plan.invalidate {
        batch.send_with_invalidate(unsignaled, false, rkey)?;
    }
    match (key.message, data) {
        (Some(message), _) => {
            batch.add(message)?;
            batch.send_with_imm(id, signaled, immediate)?;
        }
        (None, Some(remote)) if comes_with_data => {
            batch.write_with_imm(id, signaled, remote, immediate)?;
        }
        (None, _) => batch.imm_only(id, signaled, immediate)?,
    }
    Ok(queue_pair.post(&mut batch)?)
}

/// Tells the user of the transport the times of a request whose response was just posted, if times
/// are measured.
#[inline(always)]
fn tell_times(io: &PathIo, chunk: &PathChunk) {
    #[cold]
    #[inline(never)]
    fn tell(io: &PathIo, chunk: &PathChunk) {
        if let Some(times) = chunk.times.posted() {
            io.handler.timed(&times);
        }
    }
    if ServerTimes::is_on() {
        tell(io, chunk);
    }
}

/// Traces a response.
#[inline]
fn trace(connection: &Connection<PathIo>, chunk: &PathChunk) {
    tracepoint::send_io_resp_imm(|| tracepoint::Response {
        session: connection.path().session_name(),
        path: connection.path().name(),
        state: connection.path().state().to_u32(),
        msg_id: chunk.id,
        signal_interval: connection.send_queue().signals().interval(),
        count: connection.send_queue().signals().posted(),
        error: chunk.result.map_or_else(|error| error.to_errno(), |_| 0),
        is_write: chunk
            .request
            .as_ref()
            .is_none_or(|request| !request.is_read()),
        need_inval: Plan::of(chunk).invalidate.is_some(),
        always_invalidate: chunk.key != ChunkKey::Shared,
    })
}

/// What the client is told of a chunk's key; nothing without `always_invalidate`.
struct Key<'a> {
    /// The registration that is to be made again.
    register: Option<&'a MemoryRegion>,
    /// The message with the key.
    message: Option<Sge>,
}

/// Chooses a new key for the chunk if its registration was invalidated. Writes the message with the
/// chunk's key, if the key is new or the client is told the key by each response.
fn renew_key<'a>(
    io: &'a PathIo,
    chunk: &mut PathChunk,
    connection: &Connection<PathIo>,
) -> Result<Key<'a>> {
    let mut key = Key {
        register: None,
        message: None,
    };
    let is_invalidated = matches!(chunk.key, ChunkKey::Invalidated(_));
    if chunk.key == ChunkKey::Shared || !(is_invalidated || tells_keys(connection)) {
        return Ok(key);
    }
    let region = io.region(chunk.id).ok_or(EINVAL)?;
    if is_invalidated {
        // The old key must not give the client access to the chunk's next data.
        region.renew_key();
        key.register = Some(region);
        chunk.key = ChunkKey::Registered(Some(connection.cid()));
    }
    let message = RkeyRsp {
        buf_id: u16::try_from(chunk.id)?,
        rkey: region.rkey(),
    };
    let buffer = chunk.message.as_ref().ok_or(EINVAL)?;
    buffer.copy_in(0, &message.to_bytes())?;
    key.message = Some(buffer.sge(RkeyRsp::SIZE)?);
    Ok(key)
}

/// Posts `len` bytes from the start of a chunk to `target`, except for the last RDMA write: the
/// scatter entries of that one are left in `batch`, and its target is returned.
fn write_data(
    io: &PathIo,
    queue_pair: &ConnectionRef<PathIo>,
    id: u32,
    target: SgDesc,
    len: u32,
    batch: &mut LastPost<'_>,
) -> Result<RemoteMemory> {
    let chunks = &io.chunks;
    let (index, len) = (id as usize, len as usize);
    chunks.sync_for_device(index, 0, len)?;
    let mut done = 0;
    loop {
        let remote = RemoteMemory {
            // If the client's address wraps around, that is the client's doing.
            address: target.addr.wrapping_add(done as u64),
            rkey: target.key,
        };
        let left = len.checked_sub(done).ok_or(EINVAL)?;
        let bytes = chunks.add_sges(index, done, left, batch, io.max_send_sge)?;
        if bytes == 0 {
            return Err(EINVAL);
        }
        done = done.checked_add(bytes).ok_or(EINVAL)?;
        if done >= len {
            return Ok(remote);
        }
        batch.rdma_write(WrKind::Unsignaled.id(), false, remote)?;
        queue_pair.post(batch)?;
    }
}
