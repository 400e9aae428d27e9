// SPDX-License-Identifier: GPL-2.0

//! A chunk as one path sees it.
//!
//! For each chunk a path has one box, which moves with the request that uses the chunk: from the
//! idle slot to the one where the end of an invalidation is awaited, on into the operation that
//! the user of the transport works on, and back. Whoever holds the box is the only one who may
//! answer, and a second request for the same chunk finds the slot empty.

use kernel::prelude::*;
use kernel_ext::{
    rdma::{
        chunk::{
            ChunkData,
            MappedChunk, //
        },
        message_buffers::{
            MessageBuffer,
            Outgoing, //
        }, //
    },
    sync::box_slot::{
        BoxSlot,
        Linked, //
    }, //
};
use proto::rtrs::Request;

use crate::{
    operation::Direction,
    private::PrivatePage, //
};

/// The registration of a chunk that has one of its own.
pub(crate) struct ChunkRegistration {
    /// Whether the client can write to the chunk.
    pub(crate) registered: bool,
    /// The request waits for room to take that away.
    pub(crate) to_invalidate: bool,
}

/// The use of a chunk by a request.
pub(crate) struct PathChunk {
    /// The number of the chunk.
    pub(crate) id: u32,
    /// Its memory.
    pub(crate) memory: MappedChunk,
    /// The connection that the request came by and is answered on.
    pub(crate) cid: u16,
    /// Where in the chunk the request's message is, in bytes.
    pub(crate) offset: u32,
    /// The request, once it was found good.
    pub(crate) request: Option<Request>,
    /// What to answer.
    pub(crate) result: Result<u32>,
    /// The answer was kept back: the chunk is not this request's any more, and not released with it.
    pub(crate) withheld: bool,
    /// Where the data of a small write was copied to.
    pub(crate) private: Option<PrivatePage>,
    /// Only with `always_invalidate`.
    pub(crate) registration: Option<ChunkRegistration>,
    /// What an answer says besides its immediate: the chunk's key, or what else is answered. With
    /// `always_invalidate`, or if the client takes joint answers.
    ///
    /// It can be written again when the client uses the chunk again, since then it has the message.
    pub(crate) message: Option<MessageBuffer<Outgoing>>,
}

/// What moves.
pub(crate) type ChunkBox = KBox<Linked<PathChunk>>;

impl PathChunk {
    /// The chunk `id`, unused. Sleeps.
    pub(crate) fn new(
        id: u32,
        memory: MappedChunk,
        registration: Option<ChunkRegistration>,
        message: Option<MessageBuffer<Outgoing>>,
    ) -> Result<ChunkBox> {
        Ok(KBox::new(
            Linked::new(Self {
                id,
                memory,
                cid: 0,
                offset: 0,
                request: None,
                result: Err(EIO),
                withheld: false,
                private: None,
                registration,
                message,
            }),
            GFP_KERNEL,
        )?)
    }

    /// Whether its request waits for room to take the client's access away.
    pub(crate) fn is_to_be_invalidated(&self) -> bool {
        self.registration
            .as_ref()
            .is_some_and(|registration| registration.to_invalidate)
    }

    /// Where the data of the request goes.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        match &self.request {
            Some(request) if request.is_read() => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// The length of the data: of what came, or of what the client asked for.
    #[inline]
    pub(crate) fn data_len(&self) -> u32 {
        self.request.as_ref().map_or(0, Request::transfer_len)
    }

    /// The data, out of the client's reach if need be.
    #[inline]
    pub(crate) fn data(&self) -> Option<ChunkData<'_>> {
        let len = self.data_len() as usize;
        match &self.private {
            Some(page) => page.data(len),
            None => self.memory.data(len),
        }
    }
}

/// The places of a chunk's box.
pub(crate) struct PathChunkSlots {
    /// No request of this path uses the chunk.
    pub(crate) idle: BoxSlot<Linked<PathChunk>>,
    /// The registration is being invalidated; the path owns the chunk.
    pub(crate) invalidating: BoxSlot<Linked<PathChunk>>,
    /// The request waits for one of another path that uses the same chunk.
    pub(crate) parked: BoxSlot<Linked<PathChunk>>,
    /// The request is finished, and answered when those that wait for the chunk are, too.
    pub(crate) withheld: BoxSlot<Linked<PathChunk>>,
}

impl PathChunkSlots {
    /// The places of `chunk`, which is idle.
    pub(crate) fn new(chunk: ChunkBox) -> Self {
        Self {
            idle: BoxSlot::new(chunk),
            invalidating: BoxSlot::empty(),
            parked: BoxSlot::empty(),
            withheld: BoxSlot::empty(),
        }
    }
}
