// SPDX-License-Identifier: GPL-2.0

//! Memory for the data of long writes, out of the reach of a client with several paths.
//!
//! A client has a key for each chunk on each of its paths. An invalidation takes away the key of
//! one path only, and a response tells the new key of its own path only. So in a session with
//! several paths the data of long writes is copied, as the data of short writes always is. There
//! are fewer places for copies than chunks; a write that finds no place waits for its turn.

use core::{
    mem,
    ptr, //
};
use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::chunk::{
        single::Chunk,
        ChunkSet, //
    },
    sync::{
        box_slot::BoxList,
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    }, //
};
use proto::rtrs::ChunkLayout;

use crate::{
    chunk::{
        ChunkBox,
        PathChunk, //
    },
    fifo::Fifo, //
};

/// There is one place for a copy for this many chunks.
const CHUNKS_PER_COPY: u32 = 8;

/// A place for a copy; given back by [`LongCopies::put()`].
pub(crate) type LongCopy = KBox<Chunk>;

/// The places that are free, and the requests that wait for a place.
struct Places<P: Send + Sync + 'static> {
    free: KVec<LongCopy>,
    waiting: Fifo<PathChunk<P>>,
}

/// The places for copies of a session.
///
/// # Invariants
///
/// `places.free` has room for all places.
#[pin_data]
pub(crate) struct LongCopies<P: Send + Sync + 'static> {
    memory: Arc<ChunkSet>,
    #[pin]
    places: SpinLockIrq<Places<P>>,
}

impl<P: Send + Sync + 'static> LongCopies<P> {
    /// Allocates the places for chunks of `layout`, on NUMA node `node` if possible. Sleeps.
    /// `ENOMEM`.
    pub(crate) fn new(layout: &ChunkLayout, node: i32) -> Result<Arc<Self>> {
        let count = layout.queue_depth().div_ceil(CHUNKS_PER_COPY) as usize;
        let memory = ChunkSet::new(count, layout.chunk_size() as usize, node, None)?;
        let mut free = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            free.push(
                KBox::new(Chunk::new(&memory, index)?, GFP_KERNEL)?,
                GFP_KERNEL,
            )?;
        }
        let places = Places {
            free,
            waiting: Fifo::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                memory,
                places <- new_spinlock_irq!(places, "rtrs_server::LongCopies::places"),
            }),
            GFP_KERNEL,
        )
    }

    /// The memory of the places, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory.memory()
    }

    /// Copies the first `len` bytes of `chunk`. Any context. `None` if no place is free.
    pub(crate) fn copy(&self, chunk: &Chunk, len: u32) -> Option<Result<LongCopy>> {
        let copy = self.places.lock().free.pop()?;
        Some(match chunk.copy_to(len as usize, &copy) {
            Ok(()) => Ok(copy),
            Err(error) => {
                // A place was free, so usually no request waits. The caller ends its path.
                drop(self.put(copy));
                Err(error)
            }
        })
    }

    /// Keeps `chunk`, whose request waits for a place. Returns `chunk` if a place is free by now.
    /// Any context.
    pub(crate) fn wait(&self, chunk: ChunkBox<P>) -> Option<ChunkBox<P>> {
        let mut places = self.places.lock();
        if !places.free.is_empty() {
            return Some(chunk);
        }
        places.waiting.push(chunk);
        None
    }

    /// Gives back a place that is not used any more. Returns the request that has waited longest:
    /// it tries again. Any context.
    #[must_use = "it would wait for ever"]
    pub(crate) fn put(&self, copy: LongCopy) -> Option<ChunkBox<P>> {
        let mut places = self.places.lock();
        // By the type invariant there is room.
        let _ = places.free.push_within_capacity(copy);
        places.waiting.pop()
    }

    /// Takes out the requests that wait on the path of `io`.
    pub(crate) fn take_of_path(&self, io: &P) -> BoxList<PathChunk<P>> {
        let mut taken = BoxList::new();
        let mut places = self.places.lock();
        let mut waiting = mem::replace(&mut places.waiting, Fifo::new());
        while let Some(chunk) = waiting.pop() {
            let entered = chunk.entered.as_ref();
            if entered.is_some_and(|entered| ptr::eq::<P>(&**entered, io)) {
                taken.push(chunk);
            } else {
                places.waiting.push(chunk);
            }
        }
        taken
    }
}
