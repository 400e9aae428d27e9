// SPDX-License-Identifier: GPL-2.0

//! What requests need of an established path.

use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::rdma::{
    chunk::MappedChunks,
    MemoryRegion,
    QueuePair, //
};
use proto::rtrs::ChunkLayout;

use crate::{
    connection::Connection,
    listener::SessionHandler,
    path_chunk::{
        ChunkBox,
        PathChunkSlots, //
    },
    session::Session, //
};

/// What requests need of an established path.
pub(crate) struct PathIo {
    pub(crate) session: Arc<Session>,
    /// How the session's chunks are numbered.
    pub(crate) layout: ChunkLayout,
    pub(crate) handler: Arc<dyn SessionHandler>,
    /// By number.
    pub(crate) queue_pairs: KVec<QueuePair<Connection>>,
    pub(crate) chunks: MappedChunks,
    /// With `always_invalidate` by number of the chunk, else each for several of them.
    pub(crate) regions: KVVec<MemoryRegion>,
    /// By number of the chunk.
    pub(crate) slots: KVVec<PathChunkSlots>,
    /// The most scatter entries of an RDMA write.
    pub(crate) max_send_sge: usize,
}

impl PathIo {
    /// The queue pair of connection `cid`.
    #[inline]
    pub(crate) fn queue_pair(&self, cid: u16) -> Option<&QueuePair<Connection>> {
        self.queue_pairs.get(usize::from(cid))
    }

    /// Connection `cid`.
    #[inline]
    pub(crate) fn connection(&self, cid: u16) -> Option<&Connection> {
        Some(self.queue_pair(cid)?.handler())
    }

    /// The places of chunk `id`.
    #[inline]
    pub(crate) fn slots(&self, id: u32) -> Option<&PathChunkSlots> {
        self.slots.get(id as usize)
    }

    /// The registration of chunk `id`, if it has one of its own.
    #[inline]
    pub(crate) fn region(&self, id: u32) -> Option<&MemoryRegion> {
        self.regions.get(id as usize)
    }

    /// The request in `chunk` is finished: the chunk may be used again.
    #[inline(always)]
    pub(crate) fn release(&self, mut chunk: ChunkBox) {
        let (id, owns) = (chunk.id, !mem::replace(&mut chunk.withheld, false));
        if let Some(page) = chunk.private.take() {
            self.session.private().put(page);
        }
        if let Some(slots) = self.slots(id) {
            // The slot is empty: the chunk has only this box.
            drop(slots.idle.put(chunk));
        }
        if owns {
            self.session.release(id);
        }
    }

    /// The request in `chunk` is finished, but others wait for the chunk, which go first.
    #[cold]
    #[inline(never)]
    pub(crate) fn withhold(&self, mut chunk: ChunkBox) {
        let id = chunk.id;
        if let Some(page) = chunk.private.take() {
            self.session.private().put(page);
        }
        chunk.withheld = true;
        if let Some(slots) = self.slots(id) {
            // The slot is empty: the chunk has only this box.
            drop(slots.withheld.put(chunk));
        }
        self.session.release(id);
    }

    /// Gives up the requests that nobody works on any more, after the last completion.
    pub(crate) fn release_leftovers(&self) {
        for slots in &self.slots {
            if let Some(chunk) = slots.invalidating.take() {
                self.release(chunk);
            }
        }
        for queue_pair in &self.queue_pairs {
            while let Some(chunk) = queue_pair.handler().take_waiting() {
                self.release(chunk);
            }
            for chunk in queue_pair.handler().take_joint() {
                self.release(chunk);
            }
        }
    }
}
