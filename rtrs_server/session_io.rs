// SPDX-License-Identifier: GPL-2.0

//! What requests need of a session: its memory, the owners of its chunks, and a worker for what may
//! sleep or has to wait for its turn.

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    rdma::chunk::{
        ChunkPool,
        ChunkSet, //
    },
    sync::{
        box_slot::{
            BoxList,
            BoxStack, //
        },
        gate::Entered, //
    },
    workqueue::QueueHandle, //
};
use proto::rtrs::ChunkLayout;

use crate::{
    chunk::{
        ChunkBox,
        PathChunk,
        Task, //
    },
    claims::{
        ChunkClaims,
        Next, //
    },
    path_io::PathIo,
    private::PrivatePages,
    request,
    response, //
};

/// What requests need of a session.
///
/// # Invariants
///
/// `work` is queued after each addition to `tasks`, so that no task is left there. Each task keeps
/// the path that it is of, and with that the session and the module.
#[pin_data]
pub(crate) struct SessionIo {
    layout: ChunkLayout,
    chunks: Arc<ChunkSet>,
    private: PrivatePages,
    #[pin]
    claims: ChunkClaims,
    tasks: BoxStack<PathChunk>,
    queue: QueueHandle,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for SessionIo { self.work }
}

impl SessionIo {
    /// Allocates the memory, on NUMA node `node` if possible, from `pool` as far as there is one.
    /// The worker runs on `queue`. Sleeps.
    pub(crate) fn new(
        layout: &ChunkLayout,
        node: i32,
        pool: Option<&Arc<ChunkPool>>,
        queue: &QueueHandle,
    ) -> Result<Arc<Self>> {
        let (depth, size) = (layout.queue_depth(), layout.chunk_size());
        let chunks =
            ChunkSet::new(depth as usize, size as usize, node, pool).inspect_err(|error| {
                kernel_ext::pr_err_ratelimited!(
                    "no {} KiB of memory for a session: {:?}\n",
                    layout.total_size() >> 10,
                    error
                );
            })?;
        let private = PrivatePages::new(layout, node)?;
        let claims = ChunkClaims::new(depth)?;
        Arc::pin_init(
            pin_init!(Self {
                layout: *layout,
                chunks,
                private,
                claims <- claims,
                tasks: BoxStack::new(),
                queue: queue.clone(),
                work <- new_work!("rtrs_server::SessionIo::work"),
            }),
            GFP_KERNEL,
        )
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

    /// The owners of the chunks.
    #[inline]
    pub(crate) fn claims(&self) -> &ChunkClaims {
        &self.claims
    }

    /// Has the session's worker do `task` with `chunk`. Any context.
    pub(crate) fn run_later(
        self: &Arc<Self>,
        io: &Entered<PathIo>,
        mut chunk: ChunkBox,
        task: Task,
    ) {
        chunk.task = task;
        chunk.entered = Some(io.clone());
        self.queue_task(chunk);
    }

    fn queue_task(self: &Arc<Self>, chunk: ChunkBox) {
        self.tasks.push(chunk);
        // If it is queued already it will see this task. It cannot fail otherwise: the queue
        // outlives all paths.
        let _ = self.queue.enqueue::<Self, 0>(self.clone());
    }

    /// The owner of chunk `id` has finished. Any context.
    #[inline(always)]
    pub(crate) fn release(self: &Arc<Self>, id: u32) {
        if !self.claims.release(id) {
            self.pass_on(id);
        }
    }

    /// Passes chunk `id` on, whose owner has finished while others wanted it. Any context.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass_on(self: &Arc<Self>, id: u32) {
        loop {
            match self.claims.next(id) {
                Next::Begin(mut chunk) => {
                    chunk.owns = true;
                    chunk.task = Task::Begin;
                    return self.queue_task(chunk);
                }
                Next::Respond(chunks) => {
                    for mut chunk in chunks {
                        if let Some(io) = chunk.entered.take() {
                            response::send(&io, chunk);
                        }
                    }
                }
                Next::Free => return,
            }
        }
    }

    fn run_task(mut chunk: ChunkBox) {
        let Some(io) = chunk.entered.take() else {
            return;
        };
        match chunk.task {
            Task::Admit => request::admit(&io, chunk),
            Task::Begin => request::begin_late(&io, chunk),
            Task::Deferred => request::resume(io, chunk),
            // These only wait in a send queue.
            Task::Respond | Task::Invalidate => io.release(chunk),
        }
    }
}

impl WorkItem for SessionIo {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut oldest_first = BoxList::new();
        for chunk in this.tasks.take_all() {
            oldest_first.push(chunk);
        }
        for chunk in oldest_first {
            Self::run_task(chunk);
        }
    }
}
