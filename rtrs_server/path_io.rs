// SPDX-License-Identifier: GPL-2.0

//! The chunks of an established path, and their return when a request is finished.

use core::mem;
use kernel_ext::{
    rdma::{
        MemoryRegion,
        QueuePair, //
    },
    static_key::ServerTimes,
    sync::box_slot::BoxList, //
};

use crate::{
    chunk::{
        ChunkSlot,
        DataPlace,
        Task, //
    },
    connection::Connection,
    operation::{
        ChunkBox,
        PathChunk,
        PathIo, //
    }, //
};

impl PathIo {
    /// The queue pair of connection `cid`.
    #[inline]
    pub(crate) fn queue_pair(&self, cid: u16) -> Option<&QueuePair<Connection<Self>>> {
        self.queue_pairs.get(usize::from(cid))
    }

    /// The slot of chunk `id`.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> Option<&ChunkSlot<Self>> {
        self.slots.get(id as usize)
    }

    /// The registration of chunk `id`, if it has one of its own.
    #[inline]
    pub(crate) fn region(&self, id: u32) -> Option<&MemoryRegion> {
        self.regions.get(id as usize)
    }

    /// Closes the path, in the background. Any context.
    pub(crate) fn close(&self) {
        self.events.clone().close_path();
    }

    /// Makes the chunk free for its next request. The request in `chunk` is finished, and its
    /// response has been posted, if it gets one. Any context.
    #[inline(never)]
    pub(crate) fn release(&self, chunk: ChunkBox) {
        self.release_inline(chunk);
    }

    /// Does what [`Self::release()`] does, inlined where responses are sent.
    #[inline(always)]
    pub(crate) fn release_inline(&self, mut chunk: ChunkBox) {
        let (id, owned) = (chunk.id, mem::replace(&mut chunk.owns, false));
        if !matches!(chunk.data, DataPlace::Chunk) {
            self.session
                .give_back(mem::replace(&mut chunk.data, DataPlace::Chunk));
        }
        if let Some(slot) = self.slot(id) {
            if let Err((chunk, noted)) = slot.put(chunk) {
                self.take_early(slot, chunk, noted);
            }
        }
        if owned {
            self.session.release(id);
        }
    }

    /// Begins with the noted request, which came before the previous response had been posted.
    #[cold]
    #[inline(never)]
    fn take_early(&self, slot: &ChunkSlot<Self>, chunk: ChunkBox, noted: u64) {
        let (mut chunk, mut noted) = (chunk, noted);
        loop {
            if let Some(io) = self.path.enter() {
                chunk.place(noted);
                if ServerTimes::is_on() {
                    chunk.times.arrive();
                }
                return self.session.worker().run_later(&io, chunk, Task::Admit);
            }
            // The path is being taken down, and begins with no request any more.
            match slot.put(chunk) {
                Ok(()) => return,
                Err(again) => (chunk, noted) = again,
            }
        }
    }

    /// Releases the requests that still wait. After the last completion nothing goes on with them.
    pub(crate) fn release_leftovers(&self) {
        for (id, slot) in (0..).zip(&self.slots) {
            if let Some(chunk) = slot.take_aside() {
                self.release(chunk);
            }
            self.release_all(self.session.claims().take_of_path(id, self));
        }
        if let Some(copies) = self.session.long_copies() {
            self.release_all(copies.take_of_path(self));
        }
        for queue_pair in &self.queue_pairs {
            let queue = queue_pair.handler().send_queue();
            while let Some(chunk) = queue.take_waiting() {
                self.release(chunk);
            }
            self.release_all(queue.take_collected());
        }
    }

    fn release_all(&self, chunks: BoxList<PathChunk>) {
        for mut chunk in chunks {
            let entered = chunk.entered.take();
            self.release(chunk);
            drop(entered);
        }
    }
}
