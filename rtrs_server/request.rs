// SPDX-License-Identifier: GPL-2.0

//! Requests, from the immediate that announces one to the user of the transport.
//!
//! What the client wrote into the chunk is copied out once and checked before anything is made of
//! it; the client may be writing to the chunk all the while.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pr_err_ratelimited,
    rdma::SendChain,
    sync::gate::Entered, //
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

use crate::{
    answer,
    connection::Connection,
    operation::Operation,
    path::Path,
    path_chunk::{
        ChunkBox,
        ChunkRegistration,
        PathChunk, //
    },
    path_io::PathIo,
    session::Session,
    work::WorkKind, //
};

/// The size of the header of a block request, in bytes. Such a header is copied together with the
/// message that is behind it.
const USUAL_HEADER: usize = 32;

/// Both in words.
const USUAL_WORDS: usize = (USUAL_HEADER + MAX_MSG_SIZE) / size_of::<u64>();

/// User headers up to this size, in bytes, are copied to the stack.
const SMALL_HEADER: usize = 64;

/// The client says that there is a request in one of the chunks.
#[inline]
pub(crate) fn received(io: &Entered<PathIo>, connection: &Connection, payload: u32) {
    let path = connection.path();
    let (id, offset) = match io.layout.decode(payload) {
        Ok(place) => place,
        Err(error) => return no_chunk(path, &error),
    };
    let Some(mut chunk) = io.slots(id).and_then(|slots| slots.idle.take()) else {
        return in_use(path, id);
    };
    chunk.cid = connection.cid();
    chunk.offset = offset;
    chunk.request = None;
    if io.session.owners().claim(id) {
        begin(io, path, chunk);
    } else {
        park(io, path, chunk);
    }
}

/// The client names no chunk.
#[cold]
#[inline(never)]
fn no_chunk(path: &Arc<Path>, error: &ProtoError) {
    pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
    path.close();
}

/// The client names a chunk that it has not got back.
#[cold]
#[inline(never)]
fn in_use(path: &Arc<Path>, id: u32) {
    pr_err_ratelimited!(
        "<{}>: request for chunk {} while another one uses it\n",
        path,
        id
    );
    path.close();
}

/// Puts a request aside whose chunk is still used by a request of another path.
#[cold]
#[inline(never)]
fn park(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    let id = chunk.id;
    let Some(slots) = io.slots(id) else { return };
    // The slot is empty: the chunk has only this box.
    drop(slots.parked.put(chunk));
    loop {
        if path.session().owners().wait_for(id) {
            return;
        }
        // The other request is finished, and nobody was told that this one waits.
        if path.session().owners().claim(id) {
            match slots.parked.take() {
                Some(chunk) => begin_late(io, path, chunk),
                None => path.session().release(id),
            }
            return;
        }
    }
}

/// Goes on with requests that waited for a chunk whose owner has finished, and sends the answers that were
/// kept back for that. One at a time; process context.
pub(crate) fn resume_parked(session: &Session) {
    let owners = session.owners();
    for id in 0..session.queue_depth() {
        while owners.is_ended(id) {
            if let Some((io, path, chunk)) = take_parked(session, id) {
                owners.pass_on(id);
                begin_late(&io, &path, chunk);
            } else if owners.claim_ended(id) {
                // As its owner, so that none of the answers is one of a later round.
                answer_withheld(session, id);
                // Somebody may wait by now, which the loop sees.
                let _ = owners.release(id);
            }
        }
    }
}

/// Takes out a request that waits for chunk `id`. Sleeps.
fn take_parked(session: &Session, id: u32) -> Option<(Entered<PathIo>, Arc<Path>, ChunkBox)> {
    find_on_paths(session, |io, path| {
        let slots = io.slots(id)?;
        let chunk = slots.parked.take()?;
        if path.is_connected() {
            return Some((io.clone(), path.clone(), chunk));
        }
        // Nobody is there to read the answer. The slot is empty: the chunk has only this box.
        drop(slots.idle.put(chunk));
        None
    })
}

/// Sends the answers of chunk `id` that were kept back. Sleeps.
fn answer_withheld(session: &Session, id: u32) {
    find_on_paths(session, |io, _| -> Option<()> {
        if let Some(chunk) = io.slots(id)?.withheld.take() {
            answer::send_withheld(io, chunk);
        }
        None
    });
}

/// What `f` finds on one of the established paths. Sleeps.
fn find_on_paths<T>(
    session: &Session,
    mut f: impl FnMut(&Entered<PathIo>, &Arc<Path>) -> Option<T>,
) -> Option<T> {
    // Backwards, as paths that go meanwhile move others down. One that comes meanwhile has nothing
    // here that was there when this was called.
    let mut index = session.paths().lock().len();
    while let Some(previous) = index.checked_sub(1) {
        index = previous;
        let path = session.paths().lock().get(index).cloned();
        let Some(path) = path else { continue };
        let Some(io) = path.io() else { continue };
        if let Some(found) = f(&io, &path) {
            return Some(found);
        }
    }
    None
}

/// Begins with a request whose chunk belongs to it, and which had to wait for that.
#[inline(never)]
fn begin_late(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    begin(io, path, chunk);
}

/// Begins with a request whose chunk belongs to it.
#[inline(always)]
fn begin(io: &Entered<PathIo>, path: &Arc<Path>, mut chunk: ChunkBox) {
    if !path.is_connected() {
        // Either the path is being closed, or the client does not wait to be told where to write.
        give_up(io, path, chunk);
        return;
    }
    let offset = chunk.offset;
    if let Some(words) = (offset as usize)
        .checked_sub(USUAL_HEADER)
        .and_then(|start| usual_words(io, &chunk, start))
    {
        let bytes = words.as_flattened();
        if let Some((header, Some(message))) = bytes
            .split_first_chunk::<USUAL_HEADER>()
            .map(|(header, rest)| (header, rest.first_chunk::<MAX_MSG_SIZE>()))
        {
            match Request::parse_usual(offset, message) {
                Some(request) => {
                    chunk.request = Some(request);
                    go_on(io, path, chunk, header);
                }
                // It is not read again, so that this is what was found unusual.
                None => unusual(io, path, chunk, header, message),
            }
            return;
        }
    }
    begin_elsewhere(io, path, chunk);
}

/// What is at `start` of the chunk, if that is as usual.
#[inline]
fn usual_words(
    io: &PathIo,
    chunk: &PathChunk,
    start: usize,
) -> Option<[[u8; size_of::<u64>()]; USUAL_WORDS]> {
    let end = start.checked_add(const { USUAL_WORDS * size_of::<u64>() })?;
    chunk.memory.sync_for_cpu(&io.chunks, end).ok()?;
    chunk.memory.copy_words(start)
}

/// Begins with a request whose message is not aligned, or at one of the ends of the chunk.
#[inline(never)]
fn begin_elsewhere(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    let range = Request::msg_range(path.session().layout().chunk_size(), chunk.offset);
    let mut buffer = [0u8; MAX_MSG_SIZE];
    let message = buffer.get_mut(..range.len()).unwrap_or_default();
    let copied = chunk
        .memory
        .sync_for_cpu(&io.chunks, range.end)
        .and_then(|()| chunk.memory.copy_out(range.start, message));
    match copied {
        Ok(()) => unusual(io, path, chunk, &[], message),
        Err(error) => {
            pr_err_ratelimited!("<{}>: request outside of its chunk: {:?}\n", path, error);
            give_up(io, path, chunk);
        }
    }
}

/// Goes on with a request whose message takes a closer look.
#[cold]
#[inline(never)]
fn unusual(
    io: &Entered<PathIo>,
    path: &Arc<Path>,
    mut chunk: ChunkBox,
    before: &[u8],
    message: &[u8],
) {
    match Request::parse(path.session().layout().chunk_size(), chunk.offset, message) {
        Ok(request) => {
            chunk.request = Some(request);
            go_on(io, path, chunk, before);
        }
        Err(error) => {
            pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
            match error {
                RequestError::Answer(_) => {
                    answer::respond(io, chunk, Err(rtrs_core::error::from_errno(error.errno())));
                }
                RequestError::Close(_) => give_up(io, path, chunk),
            }
        }
    }
}

/// Closes the path of a request that is not answered.
#[cold]
#[inline(never)]
fn give_up(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    io.release(chunk);
    path.close();
}

/// Goes on with a request that was found good; `before` is what was copied from in front of its
/// message.
#[inline(always)]
fn go_on(io: &Entered<PathIo>, path: &Arc<Path>, mut chunk: ChunkBox, before: &[u8]) {
    let Some(request) = &chunk.request else {
        return io.release(chunk);
    };
    path.stats()
        .count(request.is_read(), u64::from(chunk.offset));
    let header = before
        .len()
        .checked_sub(request.usr_len() as usize)
        .and_then(|skip| before.get(skip..));
    // Only data that goes on to the disk has to be kept from the client: what it reads it may
    // spoil, and a header is a copy.
    if !request.is_read() && request.data_len() != 0 && chunk.registration.is_some() {
        let len = request.data_len();
        chunk.private = io.session.private().copy(&chunk.memory, len);
        if chunk.private.is_none() {
            return invalidate(io, chunk);
        }
    }
    match header {
        Some(header) => {
            let operation = Operation::new(io.clone(), chunk);
            io.handler.request(operation, header);
        }
        None => hand_over(io, path, chunk),
    }
}

/// Takes the client's access to the chunk away, now or when there is room in the send queue;
/// [`invalidated`] goes on.
#[inline(never)]
fn invalidate(io: &Entered<PathIo>, mut chunk: ChunkBox) {
    let Some(connection) = io.connection(chunk.cid) else {
        io.release(chunk);
        return;
    };
    if connection.take_credit() {
        return send_invalidation(io, connection, chunk);
    }
    if let Some(registration) = &mut chunk.registration {
        registration.to_invalidate = true;
    }
    connection.wait(io, chunk);
}

/// Takes the client's access to the chunk away. The caller took a credit, which the completion gives
/// back.
pub(crate) fn send_invalidation(
    io: &Entered<PathIo>,
    connection: &Connection,
    mut chunk: ChunkBox,
) {
    let id = chunk.id;
    let (Some(slots), Some(queue_pair), Some(region), Some(registration)) = (
        io.slots(id),
        io.queue_pair(chunk.cid),
        io.region(id),
        chunk.registration.as_mut(),
    ) else {
        io.release(chunk);
        return;
    };
    *registration = ChunkRegistration {
        registered: false,
        to_invalidate: false,
    };
    // The slot is empty: the chunk has only this box.
    drop(slots.invalidating.put(chunk));
    let mut chain = SendChain::<1>::new();
    let posted = chain
        .local_invalidate(WorkKind::Invalidate(id).id(), true, region.rkey())
        .and_then(|()| queue_pair.post(chain));
    if let Err(error) = posted {
        let path = connection.path();
        pr_err_ratelimited!(
            "<{}>: posting the invalidation of a chunk failed: {:?}\n",
            path,
            error
        );
        if let Some(chunk) = slots.invalidating.take() {
            io.release(chunk);
        }
        path.close();
    }
}

/// The client has no access to chunk `id` any more.
pub(crate) fn invalidated(io: &Entered<PathIo>, connection: &Connection, id: u32) {
    if let Some(chunk) = io.slots(id).and_then(|slots| slots.invalidating.take()) {
        hand_over(io, connection.path(), chunk);
    }
}

/// Copies the header of a request and hands it to the user of the transport.
#[inline(never)]
fn hand_over(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    let Some(range) = chunk.request.as_ref().map(Request::usr_range) else {
        io.release(chunk);
        return;
    };
    let id = chunk.id as usize;
    let chunks = path.session().chunks();
    let operation = Operation::new(io.clone(), chunk);
    let mut small = [0u8; SMALL_HEADER];
    if let Some(header) = small.get_mut(..range.len()) {
        match chunks.copy_out(id, range.start, header) {
            Ok(()) => io.handler.request(operation, header),
            Err(error) => operation.respond(Err(error)),
        }
    } else if range.len() <= MAX_HDR_SIZE as usize {
        let mut header = KVec::new();
        let copied = header
            .resize(range.len(), 0, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|()| chunks.copy_out(id, range.start, &mut header));
        match copied {
            Ok(()) => io.handler.request(operation, &header),
            Err(error) => operation.respond(Err(error)),
        }
    } else {
        pr_err_ratelimited!("<{}>: header of {} bytes is too long\n", path, range.len());
        operation.respond(Err(EMSGSIZE));
    }
}
