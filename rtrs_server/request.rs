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
    gate::Entered,
    pr_err_ratelimited,
    rdma::SendChain, //
};
use proto::rtrs::{
    request::{
        RequestError,
        MAX_MSG_SIZE, //
    },
    Request,
    MAX_HDR_SIZE, //
};

use crate::{
    answer,
    connection::Connection,
    operation::Operation,
    path::{
        Path,
        PathIo, //
    },
    path_chunk::ChunkBox,
    session::Session,
    work::WorkKind, //
};

/// User headers up to this size, in bytes, are copied to the stack; those of block requests have 32.
/// It is cleared for each request, so it is no larger.
const SMALL_HEADER: usize = 64;

/// The client says that there is a request in one of the chunks.
pub(crate) fn received(io: &Entered<PathIo>, connection: &Connection, payload: u32) {
    let path = connection.path();
    let (id, offset) = match path.session().layout().decode(payload) {
        Ok(place) => place,
        Err(error) => {
            pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
            path.close();
            return;
        }
    };
    let Some(mut chunk) = io.slots(id).and_then(|slots| slots.idle.take()) else {
        pr_err_ratelimited!(
            "<{}>: request for chunk {} while another one uses it\n",
            path,
            id
        );
        path.close();
        return;
    };
    chunk.cid = connection.cid();
    chunk.offset = offset;
    chunk.request = None;
    if path.session().owners().claim(id) {
        begin(io, path, chunk);
    } else {
        park(io, path, chunk);
    }
}

/// Puts a request aside whose chunk is still used by a request of another path.
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
                Some(chunk) => begin(io, path, chunk),
                None => path.session().release(id),
            }
            return;
        }
    }
}

/// Goes on with the requests of all paths that waited for a chunk. Process context.
pub(crate) fn resume_parked(session: &Session) {
    session.for_each_path(|path| {
        let Some(io) = path.io() else { return };
        for slots in &io.slots {
            if slots.parked.is_empty() {
                continue;
            }
            if let Some(chunk) = slots.parked.take() {
                if session.owners().claim(chunk.id) {
                    begin(&io, path, chunk);
                } else {
                    park(&io, path, chunk);
                }
            }
        }
    });
}

/// Begins with a request whose chunk belongs to it.
fn begin(io: &Entered<PathIo>, path: &Arc<Path>, mut chunk: ChunkBox) {
    if !path.is_connected() {
        // Either the path is being closed, or the client does not wait to be told where to write.
        io.release(chunk);
        path.close();
        return;
    }
    let session = path.session();
    let chunk_size = session.layout().chunk_size();
    let range = Request::msg_range(chunk_size, chunk.offset);
    // The user's header is in front of the message, so one copy gets both, if it is short.
    let start = range.start.saturating_sub(SMALL_HEADER);
    let mut buffer = [0u8; SMALL_HEADER + MAX_MSG_SIZE];
    let copy = buffer
        .get_mut(..range.end.saturating_sub(start))
        .unwrap_or_default();
    let id = chunk.id as usize;
    let copied = io
        .chunks
        .sync_for_cpu(id, 0, range.end)
        .and_then(|()| session.chunks().copy_out(id, start, copy));
    let (before, message) = copy
        .split_at_checked(range.start.saturating_sub(start))
        .unwrap_or_default();
    let parsed = match copied {
        Ok(()) => Request::parse(chunk_size, chunk.offset, message),
        Err(error) => {
            pr_err_ratelimited!("<{}>: request outside of its chunk: {:?}\n", path, error);
            io.release(chunk);
            path.close();
            return;
        }
    };
    let request = match parsed {
        Ok(request) => request,
        Err(error) => {
            pr_err_ratelimited!("<{}>: {}\n", path, error.message().as_str());
            match error {
                RequestError::Answer(_) => {
                    answer::respond(io, chunk, Err(rtrs_core::error::from_errno(error.errno())));
                }
                RequestError::Close(_) => {
                    io.release(chunk);
                    path.close();
                }
            }
            return;
        }
    };
    path.stats()
        .count(request.is_read(), u64::from(chunk.offset));
    chunk.request = Some(request);
    // Only data that goes on to the disk has to be kept from the client: what it reads it may
    // spoil, and a header is a copy.
    let must_keep = !request.is_read() && request.data_len() != 0 && chunk.registration.is_some();
    if must_keep {
        chunk.private = session
            .private()
            .copy(session.chunks(), chunk.id, request.data_len());
        if chunk.private.is_none() {
            return invalidate(io, path, chunk);
        }
    }
    match before
        .len()
        .checked_sub(request.usr_len() as usize)
        .and_then(|skip| before.get(skip..))
    {
        Some(header) => {
            if let Some(operation) = Operation::new(io.clone(), path, chunk) {
                io.handler.request(operation, header);
            }
        }
        None => hand_over(io, path, chunk),
    }
}

/// Takes the client's access to the chunk away; [`invalidated`] goes on.
fn invalidate(io: &Entered<PathIo>, path: &Arc<Path>, mut chunk: ChunkBox) {
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
    registration.registered = false;
    // The slot is empty: the chunk has only this box.
    drop(slots.invalidating.put(chunk));
    let mut chain = SendChain::<1>::new();
    let posted = chain
        .local_invalidate(WorkKind::Invalidate(id).id(), true, region.rkey())
        .and_then(|()| queue_pair.post(chain));
    if let Err(error) = posted {
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
fn hand_over(io: &Entered<PathIo>, path: &Arc<Path>, chunk: ChunkBox) {
    let Some(range) = chunk.request.map(|request| request.usr_range()) else {
        io.release(chunk);
        return;
    };
    let id = chunk.id as usize;
    let chunks = path.session().chunks();
    let Some(operation) = Operation::new(io.clone(), path, chunk) else {
        return;
    };
    let mut small = [0u8; SMALL_HEADER];
    if let Some(header) = small.get_mut(..range.len()) {
        match chunks.copy_out(id, range.start, header) {
            Ok(()) => io.handler.request(operation, header),
            Err(error) => operation.respond(Err(error)),
        }
    } else if range.len() <= MAX_HDR_SIZE as usize {
        let mut header = KVec::new();
        let copied = header
            .resize(range.len(), 0, GFP_NOWAIT)
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
