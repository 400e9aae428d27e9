// SPDX-License-Identifier: GPL-2.0

//! Workers, which do tasks that may sleep or have to wait for their turn.

use kernel::{
    sync::Arc,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        box_slot::{
            BoxList,
            BoxStack, //
        },
        gate::Entered, //
    },
    workqueue::QueueHandle, //
};

use crate::{
    chunk::{
        ChunkBox,
        ChunkPath,
        PathChunk,
        Task, //
    },
    connection::MAX_BURST,
    context::Context, //
};

/// Does tasks of chunks in process context, one at a time, in the order in which they come.
///
/// # Invariants
///
/// - `work` is queued after each addition to `tasks`, so that no task is left there. Each task
///   keeps its path, and with that the session and the module.
/// - `unfinished` is the number of tasks, each from before its addition until it is done, plus one
///   for each call of [`Self::hold`] that no call of [`Self::let_go`] has followed.
#[pin_data]
pub(crate) struct Worker<P: ChunkPath> {
    tasks: BoxStack<PathChunk<P>>,
    unfinished: Atomic<u32>,
    queue: QueueHandle,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl{P: ChunkPath} HasWork<Self> for Worker<P> { self.work }
}

impl<P: ChunkPath> Worker<P> {
    /// Makes a worker. Sleeps. `ENODEV` while the module is not loaded.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Self::on(&Context::get()?.workers)
    }

    /// Makes a worker that runs on `queue`, on the CPU where a task is added. Sleeps.
    pub(crate) fn on(queue: &QueueHandle) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                tasks: BoxStack::new(),
                unfinished: Atomic::new(0),
                queue: queue.clone(),
                work <- new_work!("rtrs_server::Worker::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The queue on which the worker runs.
    pub(crate) fn queue(&self) -> &QueueHandle {
        &self.queue
    }

    /// Whether a request is with the worker, or [`Self::hold`] says so. Any context.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.unfinished.load(ordering::Relaxed) != 0
    }

    /// Makes [`Self::is_busy`] true until [`Self::let_go`] is called. Any context.
    pub(crate) fn hold(&self) {
        self.unfinished.fetch_add(1, ordering::Relaxed);
    }

    /// Ends the effect of [`Self::hold`]. Any context.
    pub(crate) fn let_go(&self) {
        self.unfinished.fetch_sub(1, ordering::Relaxed);
    }

    /// Does `task` with `chunk`, later. Any context.
    pub(crate) fn run_later(self: &Arc<Self>, io: &Entered<P>, mut chunk: ChunkBox<P>, task: Task) {
        chunk.task = task;
        chunk.entered = Some(io.clone());
        self.add(chunk);
    }

    /// Does the task of `chunk`, later; `chunk` keeps its path. Any context.
    pub(crate) fn add(self: &Arc<Self>, chunk: ChunkBox<P>) {
        self.unfinished.fetch_add(1, ordering::Relaxed);
        self.tasks.push(chunk);
        // If the work is queued already, it will see this task. Queueing cannot fail otherwise: the
        // queue outlives all paths.
        let _ = self.queue.enqueue::<Self, 0>(self.clone());
    }

    /// Has the responses to the following tasks collected. The responses are sent when this work
    /// has ended or sleeps, and after every `MAX_BURST` tasks.
    fn collect(&self, io: &Entered<P>, cid: u16, done: u32) {
        if let Some(queue_pair) = io.queue_pair(cid) {
            let connection = queue_pair.handler();
            if done % MAX_BURST == 0 {
                connection.send_collected(io, queue_pair);
            }
            connection.collect_for_now(&self.queue);
        }
    }
}

impl<P: ChunkPath> WorkItem for Worker<P> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut oldest_first = BoxList::new();
        for chunk in this.tasks.take_all() {
            oldest_first.push(chunk);
        }
        let mut done = 0u32;
        while let Some(mut chunk) = oldest_first.next() {
            let Some(io) = chunk.entered.take() else {
                continue;
            };
            if !oldest_first.is_empty() {
                this.collect(&io, chunk.cid, done);
            }
            P::run(io, chunk);
            done = done.wrapping_add(1);
            this.unfinished.fetch_sub(1, ordering::Relaxed);
        }
    }
}
