// SPDX-License-Identifier: GPL-2.0

//! A chunk as one path sees it.
//!
//! For each chunk a path has one box, which moves with the request that uses the chunk: out of its
//! slot into the [`Operation`](crate::operation::Operation) that the user of the transport works
//! on, into the send queue, and back into the slot when the response has been posted. Only the
//! holder of the box may respond.

use kernel_ext::{
    prelude::*,
    rdma::{
        chunk::single::{
            Chunk,
            MappedChunk, //
        },
        message_buffers::{
            MessageBuffer,
            Outgoing, //
        }, //
    },
    sync::{
        box_slot::Linked,
        gate::Entered,
        noted_slot::NotedSlot, //
    }, //
};
use proto::rtrs::Request;

use crate::{
    connection::PathRequests,
    private::PrivatePage,
    times::Times, //
};

/// A path that uses chunks. The lists of a session hand requests back to it.
pub(crate) trait ChunkPath: Responses {
    /// Does the task of `chunk`, on a worker. Sleeps.
    fn run(io: Entered<Self>, chunk: ChunkBox<Self>);
}

/// A path that sends responses.
pub(crate) trait Responses: PathRequests<Chunk = PathChunk<Self>> {
    /// Sends the response in `chunk`, whose `result` is set: now, at the end of the burst, or when
    /// there is room. Any context.
    fn respond(io: &Entered<Self>, chunk: ChunkBox<Self>);
}

/// The longest header of a request that is handed over where completions are handled, in bytes.
pub const MAX_INLINE_HEADER: usize = 32;

/// Whether the client can write to the chunk, by this path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKey {
    /// Until the path goes: the chunk shares its registration with other chunks.
    Shared,
    /// Until the chunk's own registration is invalidated. The registration was last posted on the
    /// connection with this number, or before the first request (`None`).
    Registered(Option<u16>),
    /// Not until the chunk is registered again with another key. The invalidation was posted on the
    /// connection with this number.
    Invalidated(u16),
}

/// Where the data of a request is, as the user gets it.
pub(crate) enum DataPlace {
    /// In the chunk, and the client may change it.
    Chunk,
    /// In the chunk, which [`InPlace`](crate::in_place::InPlace) counts.
    ChunkOutOfReach,
    /// In a page of [`PrivatePages`](crate::private::PrivatePages).
    Page(PrivatePage),
    /// In a copy of [`LongCopies`](crate::long_copies::LongCopies).
    Copy(KBox<Chunk>),
}

/// What is to be done next with a chunk that waits in a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// In the send queue: its response is to be sent.
    Respond,
    /// In the send queue: the client's access is to be taken away.
    Invalidate,
    /// With the session's worker: the request came before the previous response had been posted,
    /// and asks for the chunk now.
    Admit,
    /// With the session's worker: the request owns the chunk now, and begins.
    Begin,
    /// With the session's worker: the request is handed over where it may sleep.
    Deferred,
    /// Waiting for a place of [`LongCopies`](crate::long_copies::LongCopies), then with the
    /// session's worker: the data is to be copied.
    Copy,
}

/// Where the data of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client; also the direction of a request without data.
    Write,
}

/// The use of a chunk by a request; `P` is what requests need of the path.
///
/// # Invariants
///
/// `entered` is set while the box is in a list of the session, and only then.
pub(crate) struct PathChunk<P: Send + Sync + 'static> {
    /// The number of the chunk.
    pub(crate) id: u32,
    /// Its memory.
    pub(crate) memory: MappedChunk,
    /// The connection that the request came by; its response goes there.
    pub(crate) cid: u16,
    /// Whether the request owns the chunk among all paths; see
    /// [`ChunkClaims`](crate::claims::ChunkClaims).
    pub(crate) owns: bool,
    /// Where in the chunk the request's message is, in bytes.
    pub(crate) offset: u32,
    /// The request, once its message was parsed.
    pub(crate) request: Option<Request>,
    /// The result that the response tells.
    pub(crate) result: Result<u32>,
    /// Where the data of the request is.
    pub(crate) data: DataPlace,
    /// Whether the client can write to the chunk.
    pub(crate) key: ChunkKey,
    /// The memory for the message of a response: the chunk's key, or the other chunks of a
    /// coalesced response. There with `always_invalidate`, or if the client takes coalesced
    /// responses.
    pub(crate) message: Option<MessageBuffer<Outgoing>>,
    /// What is to be done next, while the box is in a list.
    pub(crate) task: Task,
    /// The header of a request that is deferred.
    pub(crate) header: [u8; MAX_INLINE_HEADER],
    /// What requests of the path need.
    pub(crate) entered: Option<Entered<P>>,
    /// The times of the request, while times are measured.
    pub(crate) times: Times,
}

/// The box of a chunk, which moves with the request.
pub(crate) type ChunkBox<P> = KBox<Linked<PathChunk<P>>>;

/// The slot of a chunk's box. The box is ready there while no request uses the chunk, and aside
/// while the chunk's registration is being invalidated. While a request has the box, the next
/// request is noted in the slot.
pub(crate) type ChunkSlot<P> = NotedSlot<Linked<PathChunk<P>>>;

impl<P: Send + Sync + 'static> PathChunk<P> {
    /// The chunk `id`, unused. Sleeps.
    pub(crate) fn new(
        id: u32,
        memory: MappedChunk,
        key: ChunkKey,
        message: Option<MessageBuffer<Outgoing>>,
    ) -> Result<ChunkBox<P>> {
        Ok(KBox::new(
            Linked::new(Self {
                id,
                memory,
                cid: 0,
                owns: false,
                offset: 0,
                request: None,
                result: Err(EIO),
                data: DataPlace::Chunk,
                key,
                message,
                task: Task::Respond,
                header: [0; MAX_INLINE_HEADER],
                entered: None,
                times: Times::NONE,
            }),
            GFP_KERNEL,
        )?)
    }

    /// Sets where the request is, as it was noted; see [`Self::note()`].
    pub(crate) fn place(&mut self, noted: u64) {
        // The two fields that `note()` has put together.
        self.cid = (noted >> u32::BITS) as u16;
        self.offset = noted as u32;
    }

    /// Returns the note of a request that comes by connection `cid`, at `offset` of its chunk.
    pub(crate) fn note(cid: u16, offset: u32) -> u64 {
        u64::from(cid) << u32::BITS | u64::from(offset)
    }

    /// Where the data of the request goes.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        match &self.request {
            Some(request) if request.is_read() => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// The length of the data in bytes: of the data that came with a write, or that a read asks
    /// for.
    #[inline]
    pub(crate) fn data_len(&self) -> u32 {
        self.request.as_ref().map_or(0, Request::transfer_len)
    }
}
