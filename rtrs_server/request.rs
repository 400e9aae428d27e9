// SPDX-License-Identifier: GPL-2.0

//! Requests, from the immediate that announces a request to the user of the transport.
//!
//! The message of a request is copied out of the chunk once and checked before it is used; the
//! client may write to the chunk all the while. Nothing here sleeps, but for [`resume()`].

use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        SendBatch,
        SendRoom, //
    },
    static_key::ServerTimes,
    sync::{
        box_slot::BoxList,
        gate::Entered, //
    }, //
};
use proto::{
    rtrs::{
        request::{
            RequestError,
            MAX_MSG_SIZE, //
        },
        Request,
        MAX_HDR_SIZE, //
    },
    ProtoError, //
};
use rtrs_core::traffic::Traffic;

use crate::{
    chunk::{
        ChunkKey,
        ChunkPath,
        DataPlace,
        Task,
        MAX_INLINE_HEADER, //
    },
    connection::{
        ConnectionRef,
        PathRequests, //
    },
    operation::{
        ChunkBox,
        Operation,
        PathChunk,
        PathIo, //
    },
    response,
    wr_kind::WrKind, //
};

/// The longest header that is handed over at once, and the transport's message behind it, in words.
/// The two are copied together.
const USUAL_WORDS: usize = (MAX_INLINE_HEADER + MAX_MSG_SIZE) / size_of::<u64>();

/// A copy of a header and of the message behind it.
type Words = [[u8; size_of::<u64>()]; USUAL_WORDS];

/// Closes the path: the client has named a chunk that does not exist.
#[cold]
#[inline(never)]
fn no_chunk(io: &PathIo, error: &ProtoError) {
    pr_err_ratelimited!("<{}>: {}\n", io.path, error.message().as_str());
    io.close();
}

/// Notes a request for a chunk that another request of the path uses. Returns the chunk if the
/// other request has ended meanwhile.
///
/// The chunk may be in use only for a moment: the client has the response before the request ends
/// here, after the response was posted. So one such request is noted with the chunk, and begins
/// when the response has been posted.
#[cold]
#[inline(never)]
fn early(io: &PathIo, id: u32, cid: u16, offset: u32) -> Option<ChunkBox> {
    let slot = io.slot(id)?;
    if slot.note(PathChunk::note(cid, offset)) {
        return None;
    }
    // Either the box has come back in the meantime, or another request is noted already.
    let chunk = slot.take();
    if chunk.is_none() {
        pr_err_ratelimited!(
            "<{}>: request for chunk {} while another request uses it\n",
            io.path,
            id
        );
        io.close();
    }
    chunk
}

/// Begins with a request that was noted, or parks the request.
fn admit(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    chunk.owns = io.session.claims().claim(chunk.id);
    if chunk.owns {
        begin_late(io, chunk);
    } else {
        park(io, chunk);
    }
}

/// Parks a request whose chunk is owned by a request of another path.
#[cold]
#[inline(never)]
fn park(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    if !io.path.is_connected() {
        return io.release(chunk);
    }
    chunk.entered = Some(io.clone());
    // The other request may have finished in the meantime.
    if let Some(mut chunk) = io.session.claims().park(chunk) {
        chunk.entered = None;
        chunk.owns = true;
        begin_late(io, chunk);
    }
}

/// Does what [`begin()`] does, where that is rare.
#[inline(never)]
pub(crate) fn begin_late(io: &Entered<PathIo>, chunk: ChunkBox) {
    begin(io, chunk, |traffic, _, is_read, bytes| {
        traffic.count_elsewhere(is_read, bytes);
    });
}

/// Begins with a request that owns its chunk; `count` counts it.
///
/// Inlined where requests are received, which saves 20 instructions of 500.
#[inline(always)]
fn begin(io: &Entered<PathIo>, mut chunk: ChunkBox, count: impl FnOnce(&Traffic, u16, bool, u64)) {
    chunk.request = None;
    if !io.path.is_connected() {
        // Rule 1 of failover: once `PATH_ENDED` was sent, no request of the path gets past here.
        // The chunk is claimed before this look, with a full barrier, and the change of the path's
        // state is a full barrier, too: either this look finds the path closing, or a copy by
        // another path finds the chunk owned and waits. A chunk that was passed on to a copy has
        // been owned all the while. If the path is not connected yet, its client has sent a request
        // before it was told where to write.
        return close_and_release(io, chunk);
    }
    let usual = (chunk.offset as usize)
        .checked_sub(MAX_INLINE_HEADER)
        .and_then(|start| {
            let end = start.checked_add(const { USUAL_WORDS * size_of::<u64>() })?;
            chunk.memory.sync_for_cpu(end).ok()?;
            chunk.memory.copy_words(start)
        });
    let words = usual.unwrap_or_else(|| words_at_edge(io, &chunk));
    let Some((before, message)) = words.as_flattened().split_first_chunk() else {
        return close_and_release(io, chunk);
    };
    let request = usual.and_then(|_| Request::parse_usual(chunk.offset, message.first_chunk()?));
    let request = match request {
        Some(request) => request,
        // The message is not copied again: `parse()` sees the same bytes as `parse_usual()`.
        None => match Request::parse(io.session.layout().chunk_size(), chunk.offset, message) {
            Ok(request) => request,
            Err(error) => return refuse(io, chunk, &error),
        },
    };
    let is_read = request.is_read();
    let (data_len, usr_len) = (request.data_len(), request.usr_len() as usize);
    chunk.request = Some(request);
    let bytes = u64::from(chunk.offset);
    count(&io.traffic, chunk.cid, is_read, bytes);
    // Only data that goes on to the user has to be kept from the client. The client may spoil data
    // that it reads itself, and the header was copied.
    if !is_read && data_len != 0 && chunk.key != ChunkKey::Shared {
        match io.session.private().copy(&chunk.memory, data_len) {
            Some(page) => chunk.data = DataPlace::Page(page),
            None => return protect(io, chunk),
        }
    }
    let before: &[u8; MAX_INLINE_HEADER] = before;
    let skip = before.len().checked_sub(usr_len);
    match skip.and_then(|skip| before.get(skip..)) {
        Some(header) => io
            .handler
            .request(Operation::new(io.clone(), chunk), header),
        None => hand_over(io, chunk),
    }
}

/// Copies the header and the message behind it, if the copy is not aligned or reaches over an end
/// of the chunk. Bytes outside of the chunk are zero.
#[cold]
#[inline(never)]
fn words_at_edge(io: &PathIo, chunk: &PathChunk) -> Words {
    let mut words = [[0; size_of::<u64>()]; USUAL_WORDS];
    let message = Request::msg_range(io.session.layout().chunk_size(), chunk.offset);
    let before = message.start.min(MAX_INLINE_HEADER);
    // Neither wraps around: `before` is at most `message.start` and at most `MAX_INLINE_HEADER`.
    let start = message.start.wrapping_sub(before);
    let skip = MAX_INLINE_HEADER.wrapping_sub(before);
    let len = message.end.wrapping_sub(start);
    let bytes = words.as_flattened_mut().get_mut(skip..);
    if let Some(bytes) = bytes.and_then(|bytes| bytes.get_mut(..len)) {
        let synced = chunk.memory.sync_for_cpu(message.end);
        if synced
            .and_then(|()| chunk.memory.copy_out(start, bytes))
            .is_err()
        {
            // All zeroes are no valid message.
            words = [[0; size_of::<u64>()]; USUAL_WORDS];
        }
    }
    words
}

/// Responds to an invalid request, or closes its path.
#[cold]
#[inline(never)]
fn refuse(io: &Entered<PathIo>, chunk: ChunkBox, error: &RequestError) {
    pr_err_ratelimited!("<{}>: {}\n", io.path, error.message().as_str());
    match error {
        RequestError::Respond(_) => {
            let error = rtrs_core::error::from_errno(error.errno());
            Operation::new(io.clone(), chunk).respond(Err(error));
        }
        RequestError::Close(_) => close_and_release(io, chunk),
    }
}

/// Closes the path of a request that gets no response.
#[cold]
#[inline(never)]
fn close_and_release(io: &PathIo, chunk: ChunkBox) {
    io.close();
    io.release(chunk);
}

/// Keeps the client from changing the data of a write: the data stays in its chunk, or is copied if
/// the client has other paths, and so other keys.
#[inline(never)]
fn protect(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    if io.session.enter_in_place() {
        chunk.data = DataPlace::ChunkOutOfReach;
        invalidate(io, chunk);
    } else {
        copy_long(io, chunk);
    }
}

/// Copies the data of a long write, now or when a place for the copy is free.
///
/// Does not look at the path: the request has begun, so copies of it wait for this one.
fn copy_long(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    let Some(copies) = io.session.long_copies() else {
        return close_and_release(io, chunk);
    };
    loop {
        match copies.copy(&chunk.memory, chunk.data_len()) {
            Some(Ok(copy)) => {
                chunk.data = DataPlace::Copy(copy);
                return hand_over(io, chunk);
            }
            Some(Err(_)) => return close_and_release(io, chunk),
            None => {}
        }
        chunk.task = Task::Copy;
        chunk.entered = Some(io.clone());
        match copies.wait(chunk) {
            Some(again) => chunk = again,
            None => return,
        }
        // INVARIANT: The box is in no list.
        chunk.entered = None;
    }
}

/// Takes the client's access to the chunk away, now or when the send queue has room;
/// [`invalidated()`] goes on.
///
/// The invalidation is posted on the connection on which the registration was posted. A send queue
/// is worked off in order, so the invalidation does not overtake the registration, however long the
/// client holds that connection up.
#[inline(never)]
fn invalidate(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    let cid = match chunk.key {
        ChunkKey::Registered(Some(cid)) => cid,
        _ => chunk.cid,
    };
    let Some(queue_pair) = io.queue_pair(cid) else {
        return close_and_release(io, chunk);
    };
    let queue = queue_pair.handler().send_queue();
    if queue.take_credit() {
        return send_invalidation(io, queue_pair, chunk);
    }
    chunk.task = Task::Invalidate;
    queue.wait(chunk);
    queue_pair.handler().send_waiting(io, queue_pair);
}

/// Posts the invalidation of the chunk's key. The caller took a credit, which the completion gives
/// back.
pub(crate) fn send_invalidation(
    io: &Entered<PathIo>,
    queue_pair: &ConnectionRef<PathIo>,
    mut chunk: ChunkBox,
) {
    let id = chunk.id;
    let (Some(slot), Some(region)) = (io.slot(id), io.region(id)) else {
        return close_and_release(io, chunk);
    };
    chunk.key = ChunkKey::Invalidated(queue_pair.handler().cid());
    if let Err((chunk, _)) = slot.put_aside(chunk) {
        // The client has sent the chunk's next request without a response to this one.
        return early_and_late(io, chunk);
    }
    let mut room = SendRoom::<1, 0>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    let posted = batch
        .invalidate_key(WrKind::Invalidate(id).id(), true, region.rkey())
        .and_then(|()| Ok(queue_pair.post(&mut batch)?));
    if let Err(error) = posted {
        queue_pair.handler().send_failed("an invalidation", error);
        if let Some(chunk) = slot.take_aside() {
            io.release(chunk);
        }
    }
}

/// Closes the path of a client that sends two requests for a chunk at a time.
#[cold]
#[inline(never)]
fn early_and_late(io: &PathIo, chunk: ChunkBox) {
    pr_err_ratelimited!(
        "<{}>: two requests for chunk {} at a time\n",
        io.path,
        chunk.id
    );
    close_and_release(io, chunk);
}

/// Goes on with the request in chunk `id`, to which the client has no access any more.
pub(crate) fn invalidated(io: &Entered<PathIo>, id: u32) {
    if let Some(chunk) = io.slot(id).and_then(|slot| slot.take_aside()) {
        hand_over(io, chunk);
    }
}

/// Copies the header of a request and hands the request to the user of the transport. A request
/// with a header of more than [`MAX_INLINE_HEADER`] bytes goes to the session's worker instead.
///
/// Does not look at the path: the request has begun, so copies of it wait for this one.
#[inline(never)]
fn hand_over(io: &Entered<PathIo>, chunk: ChunkBox) {
    let Some(range) = chunk.request.as_ref().map(Request::usr_range) else {
        return io.release(chunk);
    };
    let mut header = [0u8; MAX_INLINE_HEADER];
    let Some(header) = header.get_mut(..range.len()) else {
        return io.session.worker().run_later(io, chunk, Task::Deferred);
    };
    let copied = chunk.memory.copy_out(range.start, header);
    let operation = Operation::new(io.clone(), chunk);
    match copied {
        Ok(()) => io.handler.request(operation, header),
        Err(error) => operation.respond(Err(error)),
    }
}

/// Hands a request to the user of the transport: a deferred one, or one with a long header, which
/// is copied now. Called on a worker. Sleeps.
pub(crate) fn resume(io: Entered<PathIo>, chunk: ChunkBox) {
    let Some(range) = chunk.request.as_ref().map(Request::usr_range) else {
        return io.release(chunk);
    };
    if !io.path.is_connected() {
        // The path carries no response any more, so there is no use in going on. If the client has
        // sent a copy by another path, the copy gets the chunk now.
        return io.release(chunk);
    }
    let inline = chunk.header;
    if let Some(header) = inline.get(..range.len()) {
        let operation = Operation::new(io.clone(), chunk);
        return io.handler.deferred(operation, header);
    }
    if range.len() > MAX_HDR_SIZE as usize {
        pr_err_ratelimited!(
            "<{}>: header of {} bytes is too long\n",
            io.path,
            range.len()
        );
        return Operation::new(io, chunk).respond(Err(EMSGSIZE));
    }
    let copied = KVec::from_elem(0u8, range.len(), GFP_KERNEL)
        .map_err(Error::from)
        .and_then(|mut header| {
            chunk.memory.copy_out(range.start, &mut header)?;
            Ok(header)
        });
    let operation = Operation::new(io.clone(), chunk);
    match copied {
        Ok(header) => io.handler.deferred(operation, &header),
        Err(error) => operation.respond(Err(error)),
    }
}

impl PathRequests for PathIo {
    type Chunk = PathChunk;

    #[inline(always)]
    fn received(io: &Entered<Self>, cid: u16, payload: u32) {
        let (id, offset) = match io.session.layout().decode(payload) {
            Ok(place) => place,
            Err(error) => return no_chunk(io, &error),
        };
        let chunk = io.slot(id).and_then(|slot| slot.take());
        let Some(mut chunk) = chunk.or_else(|| early(io, id, cid, offset)) else {
            return;
        };
        chunk.cid = cid;
        chunk.offset = offset;
        if ServerTimes::is_on() {
            chunk.times.arrive();
        }
        chunk.owns = io.session.claims().claim(id);
        if chunk.owns {
            begin(io, chunk, Traffic::count);
        } else {
            park(io, chunk);
        }
    }

    fn invalidated(io: &Entered<Self>, id: u32) {
        invalidated(io, id);
    }

    fn send(io: &Entered<Self>, queue_pair: &ConnectionRef<Self>, chunk: ChunkBox) {
        if chunk.task == Task::Invalidate {
            send_invalidation(io, queue_pair, chunk);
        } else {
            response::send_waited(io, queue_pair, chunk);
        }
    }

    fn queue_pair(&self, cid: u16) -> Option<&ConnectionRef<Self>> {
        self.queue_pair(cid).map(|queue_pair| &**queue_pair)
    }

    fn send_collected(
        io: &Entered<Self>,
        queue_pair: &ConnectionRef<Self>,
        chunks: BoxList<PathChunk>,
    ) {
        response::send_coalesced(io, queue_pair, chunks);
    }
}

impl ChunkPath for PathIo {
    fn run(io: Entered<Self>, chunk: ChunkBox) {
        match chunk.task {
            Task::Admit => admit(&io, chunk),
            Task::Begin => begin_late(&io, chunk),
            Task::Deferred => resume(io, chunk),
            Task::Copy => copy_long(&io, chunk),
            // Chunks with these tasks wait in a send queue only.
            Task::Respond | Task::Invalidate => io.release(chunk),
        }
    }
}
