// SPDX-License-Identifier: GPL-2.0

//! What requests need of a session: its memory, the owners of its chunks, and a worker.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::chunk::{
        ChunkPool,
        ChunkSet, //
    },
    sync::{
        completion::Completion,
        set_once::SetOnce, //
    },
    workqueue::QueueHandle, //
};
use proto::rtrs::ChunkLayout;

use crate::{
    chunk::{
        ChunkPath,
        DataPlace,
        Task, //
    },
    claims::{
        ChunkClaims,
        Next, //
    },
    in_place::InPlace,
    long_copies::LongCopies,
    private::PrivatePages,
    worker::Worker, //
};

/// How long a new path waits for the writes of the session's only path, in ms. A client waits
/// longer for its path.
const IN_PLACE_TIMEOUT_MS: u32 = 20_000;

fn no_memory(layout: &ChunkLayout, needs: Needs, error: Error) {
    kernel_ext::pr_err_ratelimited!(
        "no {} KiB of memory for a session{}: {:?}; load rtrs_server with a smaller \
         sess_queue_depth or max_chunk_size\n",
        layout.total_size() >> 10,
        if needs.block_chunks {
            ", with the whole of each chunk in one block"
        } else {
            ""
        },
        error
    );
}

/// What the user of a listener needs beyond what each user gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Each chunk is one block, so that [`ChunkData::address()`] is there. A client is refused
    /// (`ENOMEM`) if the machine has not enough such blocks.
    ///
    /// [`ChunkData::address()`]: kernel_ext::rdma::chunk::single::ChunkData::address
    pub block_chunks: bool,
    /// [`SessionHandler::request()`] may sleep. Then it holds up the requests of its connection,
    /// and no others. Responses of such sessions are not coalesced: they would wait for the
    /// sleeping request, too.
    ///
    /// [`SessionHandler::request()`]: crate::SessionHandler::request
    pub sleeping_requests: bool,
}

/// What requests need of a session whose paths are of type `P`.
#[pin_data]
pub(crate) struct SessionIo<P: ChunkPath> {
    layout: ChunkLayout,
    chunks: Arc<ChunkSet>,
    private: PrivatePages,
    /// Writes whose data stays in their chunks.
    in_place: InPlace,
    /// Completed when no write whose data is in its chunk is left, and none begins any more.
    #[pin]
    calm: Completion,
    /// The places to which the data of long writes is copied, once there are several paths.
    long_copies: SetOnce<Arc<LongCopies<P>>>,
    #[pin]
    claims: ChunkClaims<P>,
    worker: Arc<Worker<P>>,
}

impl<P: ChunkPath> SessionIo<P> {
    /// Allocates the memory, on NUMA node `node` if possible. `pool`, if there is one, is used
    /// first. The worker runs on `queue`. Sleeps.
    pub(crate) fn new(
        layout: &ChunkLayout,
        needs: Needs,
        node: i32,
        pool: Option<&Arc<ChunkPool>>,
        queue: &QueueHandle,
    ) -> Result<Arc<Self>> {
        let (depth, size) = (layout.queue_depth(), layout.chunk_size());
        let allocate = if needs.block_chunks {
            ChunkSet::of_blocks
        } else {
            ChunkSet::new
        };
        let chunks = allocate(depth as usize, size as usize, node, pool)
            .inspect_err(|error| no_memory(layout, needs, *error))?;
        let private = PrivatePages::new(layout, node)?;
        let claims = ChunkClaims::new(depth)?;
        let worker = Worker::on(queue)?;
        Arc::pin_init(
            pin_init!(Self {
                layout: *layout,
                chunks,
                private,
                in_place: InPlace::new(),
                calm <- Completion::new(),
                long_copies: SetOnce::new(),
                claims <- claims,
                worker,
            }),
            GFP_KERNEL,
        )
    }

    /// Checks whether there is memory for a session: `ENOMEM` if there is not. Any context.
    pub(crate) fn check_memory(
        layout: &ChunkLayout,
        needs: Needs,
        pool: Option<&Arc<ChunkPool>>,
    ) -> Result {
        let (depth, size) = (layout.queue_depth(), layout.chunk_size());
        ChunkSet::check(depth as usize, size as usize, pool.map(|pool| &**pool))
            .inspect_err(|error| no_memory(layout, needs, *error))
    }

    /// How the chunks are numbered.
    #[inline]
    pub(crate) fn layout(&self) -> &ChunkLayout {
        &self.layout
    }

    /// The memory.
    pub(crate) fn chunks(&self) -> &Arc<ChunkSet> {
        &self.chunks
    }

    /// Pages for the data of small writes.
    #[inline]
    pub(crate) fn private(&self) -> &PrivatePages {
        &self.private
    }

    /// The places to which the data of long writes is copied, if there are several paths. Any
    /// context.
    pub(crate) fn long_copies(&self) -> Option<&LongCopies<P>> {
        self.long_copies.as_ref().map(|copies| &**copies)
    }

    /// The memory of the session, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let copies = self.long_copies().map_or(0, LongCopies::memory);
        // This does not wrap around: the memory exists.
        self.chunks
            .memory()
            .wrapping_add(self.private.memory())
            .wrapping_add(copies)
    }

    /// Whether the data of a long write may stay in its chunk; if so, the write is counted. Any
    /// context.
    pub(crate) fn enter_in_place(&self) -> bool {
        let may_stay = self.in_place.enter();
        if !may_stay {
            self.leave_in_place();
        }
        may_stay
    }

    fn leave_in_place(&self) {
        if self.in_place.leave() {
            self.calm.complete_all();
        }
    }

    /// Begins to copy the data of long writes, since the session gets another path. Waits for
    /// writes whose data is in their chunks. Sleeps. `ETIMEDOUT` if these take too long, `ENOMEM`.
    pub(crate) fn begin_copying(&self, node: i32) -> Result {
        if self.long_copies().is_none() {
            let copies = LongCopies::new(&self.layout, node)?;
            // Another path may have been faster.
            self.long_copies.populate(copies);
        }
        self.in_place.end();
        while !self.in_place.is_empty() {
            self.calm.wait_timeout(IN_PLACE_TIMEOUT_MS)?;
        }
        Ok(())
    }

    /// Gives back where the data of a request was; the user has done with it. Any context.
    #[inline]
    pub(crate) fn give_back(&self, data: DataPlace) {
        match data {
            DataPlace::Page(page) => self.private.put(page),
            other => self.give_back_rare(other),
        }
    }

    #[cold]
    #[inline(never)]
    fn give_back_rare(&self, data: DataPlace) {
        match data {
            DataPlace::Chunk => {}
            DataPlace::ChunkOutOfReach => self.leave_in_place(),
            DataPlace::Page(page) => self.private.put(page),
            DataPlace::Copy(copy) => {
                let waiting = self.long_copies().and_then(|copies| copies.put(copy));
                if let Some(chunk) = waiting {
                    self.worker.add(chunk);
                }
            }
        }
    }

    /// The owners of the chunks.
    #[inline]
    pub(crate) fn claims(&self) -> &ChunkClaims<P> {
        &self.claims
    }

    /// The worker for tasks that may sleep and have no other worker.
    pub(crate) fn worker(&self) -> &Arc<Worker<P>> {
        &self.worker
    }

    /// Ends the ownership of chunk `id`. Any context.
    #[inline(always)]
    pub(crate) fn release(self: &Arc<Self>, id: u32) {
        if !self.claims.release(id) {
            self.pass_on(id);
        }
    }

    /// Passes chunk `id` on: its owner has finished, and the chunk is contended. Any context.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass_on(self: &Arc<Self>, id: u32) {
        loop {
            match self.claims.next(id) {
                Next::Begin(mut chunk) => {
                    chunk.owns = true;
                    chunk.task = Task::Begin;
                    return self.worker.add(chunk);
                }
                Next::Respond(chunks) => {
                    for mut chunk in chunks {
                        if let Some(io) = chunk.entered.take() {
                            P::respond(&io, chunk);
                        }
                    }
                }
                Next::Free => return,
            }
        }
    }
}
