// SPDX-License-Identifier: GPL-2.0

//! A request in the hands of the user of the transport, what the user does for a session, and what
//! requests need of an established path.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::{
        chunk::{
            single::ChunkData,
            MappedChunks, //
        },
        MemoryRegion,
        QueuePair, //
    },
    static_key::ServerTimes,
    sync::gate::Entered, //
};
use proto::addr::Address;
use rtrs_core::{
    connection::SERVICE_CID,
    traffic::Traffic, //
};

use crate::{
    chunk::{
        self,
        ChunkKey,
        ChunkSlot,
        DataPlace,
        Direction,
        Responses,
        Task, //
    },
    connection::Connection,
    path_core::{
        PathCore,
        PathEvents, //
    },
    session_io::SessionIo,
    times::Times,
    worker, //
};

/// Does deferred requests in process context, one at a time, in their order.
///
/// The user of the transport has a worker for each thing that its requests may sleep for; see
/// [`SessionHandler::worker()`].
#[derive(Clone)]
pub struct Worker(Arc<worker::Worker<PathIo>>);

impl Worker {
    /// Makes a worker. Sleeps. `ENODEV` while the module is not loaded.
    pub fn new() -> Result<Self> {
        Ok(Self(worker::Worker::new()?))
    }

    /// Whether a request is with the worker. Any context.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.0.is_busy()
    }

    /// Makes [`Self::is_busy`] true, also without a request, until [`Self::let_go`] is called,
    /// which has to follow once. Any context.
    pub fn hold(&self) {
        self.0.hold();
    }

    /// Ends the effect of [`Self::hold`]. Any context.
    pub fn let_go(&self) {
        self.0.let_go();
    }
}

pub(crate) type PathChunk = chunk::PathChunk<PathIo>;
pub(crate) type ChunkBox = chunk::ChunkBox<PathIo>;

/// What the user of the transport keeps for a session.
pub trait SessionHandler: Send + Sync + 'static {
    /// A path of the client is up, the first or a further one: requests may come by the path.
    ///
    /// `client` is the address that the path comes from; `None` if the address is only the client's
    /// word. Process context; may sleep. An error closes the path.
    fn path_up(&self, client: Option<Address>) -> Result {
        let _ = client;
        Ok(())
    }

    /// A path for which [`SessionHandler::path_up`] was called is gone; all operations of it have
    /// been responded to or dropped.
    ///
    /// Process context; may sleep.
    fn path_down(&self, client: Option<Address>) {
        let _ = client;
    }

    /// Handles a request of the client. Called where completions are handled: must not sleep, nor
    /// allocate memory in a way that sleeps, unless the listener's user
    /// [needs](crate::Needs::sleeping_requests) that. A request that cannot be handled so is
    /// [deferred](Operation::defer).
    ///
    /// `header` was copied out of the chunk once, and has at most
    /// [`MAX_INLINE_HEADER`](crate::MAX_INLINE_HEADER) bytes. `op` is responded to whenever the
    /// result is known.
    fn request(&self, op: Operation, header: &[u8]);

    /// Handles a request that was deferred, or whose header is too long for [`Self::request()`].
    ///
    /// Process context, on the worker that [`Self::worker()`] names, one request at a time; may
    /// sleep. Work that takes long on the session's worker (opening a device) belongs on a
    /// workqueue of the implementer, since it holds up the requests behind it.
    fn deferred(&self, op: Operation, header: &[u8]) {
        self.request(op, header);
    }

    /// The worker for a request with this header that is deferred; `None` for the session's own.
    /// Any context.
    ///
    /// Requests that may sleep for different things get different workers, so that no request waits
    /// for the thing that another request sleeps for.
    fn worker(&self, header: &[u8]) -> Option<Worker> {
        let _ = header;
        None
    }

    /// The response to a request was posted, and the user had called [`Operation::begins()`].
    /// Called only while there is a `kernel_ext::static_key::ServerTimes`. Any context.
    fn timed(&self, times: &Times) {
        let _ = times;
    }

    /// The last path of the session is gone; all operations have been responded to or dropped.
    ///
    /// Process context; may sleep. Called once.
    fn session_down(&self) {}
}

/// What requests need of an established path.
///
/// # Invariants
///
/// - `slots` has an element for each chunk of `session`. So has `regions`, with
///   `always_invalidate`.
/// - Each chunk has one box, which is in its slot or with a request.
pub(crate) struct PathIo {
    pub(crate) session: Arc<SessionIo<Self>>,
    pub(crate) path: Arc<PathCore<Self>>,
    pub(crate) events: Arc<dyn PathEvents>,
    pub(crate) handler: Arc<dyn SessionHandler>,
    /// By number of the connection.
    pub(crate) queue_pairs: KVec<QueuePair<Connection<Self>>>,
    pub(crate) chunks: Arc<MappedChunks>,
    /// With `always_invalidate` by number of the chunk, otherwise each for several chunks.
    pub(crate) regions: KVVec<MemoryRegion>,
    /// By number of the chunk.
    pub(crate) slots: KVVec<ChunkSlot<Self>>,
    /// The most scatter entries of an RDMA write.
    pub(crate) max_send_sge: usize,
    /// The requests of the client, counted.
    pub(crate) traffic: Traffic,
}

/// A request that gets a response, which can be sent in any context.
///
/// The operation owns its chunk until then. An operation that is dropped is responded to with
/// `EIO`. The memory of a path stays until all of its operations have been responded to, also when
/// the path has ended for the client.
pub struct Operation {
    /// `None` once the response was sent or the operation deferred.
    request: Option<(Entered<PathIo>, ChunkBox)>,
}

impl Operation {
    /// Makes the operation of the request in `chunk`.
    #[inline]
    pub(crate) fn new(io: Entered<PathIo>, chunk: ChunkBox) -> Self {
        Self {
            request: Some((io, chunk)),
        }
    }

    #[inline]
    fn chunk(&self) -> Option<&PathChunk> {
        self.request.as_ref().map(|(_, chunk)| &***chunk)
    }

    /// The number of the request's chunk, below [`Session::queue_depth()`](crate::Session). No
    /// other operation of the session has this number until this one was responded to. Any context.
    #[inline]
    pub fn chunk_id(&self) -> u32 {
        self.chunk().map_or(0, |chunk| chunk.id)
    }

    /// Whether the path's service connection, which has the heartbeats, waits while
    /// [`SessionHandler::request()`] has the operation: the request came by that connection, or its
    /// chunk was invalidated there. Any context.
    #[inline]
    pub fn is_on_service_connection(&self) -> bool {
        self.chunk().is_some_and(|chunk| {
            chunk.cid == SERVICE_CID || chunk.key == ChunkKey::Invalidated(SERVICE_CID)
        })
    }

    /// Notes that the user begins with the request's work, and `note` for
    /// [`SessionHandler::timed()`]. May be called again. Any context.
    #[inline(always)]
    pub fn begins(self, note: impl FnOnce() -> u64) -> Self {
        if ServerTimes::is_on() {
            self.noted(note())
        } else {
            self
        }
    }

    /// Takes `self` by value, so that the operation stays in registers where no times are wanted.
    #[cold]
    #[inline(never)]
    fn noted(mut self, note: u64) -> Self {
        if let Some((_, chunk)) = &mut self.request {
            chunk.times.begin(note);
        }
        self
    }

    /// Where the data goes. Any context.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.chunk().map_or(Direction::Write, PathChunk::direction)
    }

    /// The length of the data in bytes: of the data that came with a write, or that a read asks
    /// for. Any context.
    #[inline]
    pub fn data_len(&self) -> u32 {
        self.chunk().map_or(0, PathChunk::data_len)
    }

    /// The data of a write, out of the client's reach if need be; or where to put the data of a
    /// read. Any context.
    ///
    /// The data lies in memory of the session, so nothing may be done with it once the operation
    /// was responded to.
    #[inline]
    pub fn data(&self) -> Option<ChunkData<'_>> {
        self.chunk().and_then(|chunk| match &chunk.data {
            DataPlace::Page(copy) | DataPlace::Copy(copy) => copy.data(chunk.data_len() as usize),
            DataPlace::Chunk | DataPlace::ChunkOutOfReach => {
                chunk.memory.data(chunk.data_len() as usize)
            }
        })
    }

    /// Copies the bytes at `offset` of the data of a write to `bytes`. Any context.
    ///
    /// `EMSGSIZE` if the client has not sent that many bytes, `EINVAL` for a read.
    pub fn read_data(&self, offset: usize, bytes: &mut [u8]) -> Result {
        if self.direction() != Direction::Write {
            return Err(EINVAL);
        }
        let end = offset.checked_add(bytes.len()).ok_or(EMSGSIZE)?;
        if end > self.data_len() as usize {
            return Err(EMSGSIZE);
        }
        self.data().ok_or(EINVAL)?.copy_out(offset, bytes)
    }

    /// Copies `bytes` to the start of the data of a read, for the response. Any context.
    ///
    /// `EMSGSIZE` if the client did not ask for that many bytes, `EINVAL` for a write. The number
    /// of bytes to send is given to [`Self::respond()`].
    pub fn write_response(&self, bytes: &[u8]) -> Result {
        self.write_response_at(0, bytes)
    }

    /// As [`Self::write_response()`], `offset` bytes behind the start.
    pub fn write_response_at(&self, offset: usize, bytes: &[u8]) -> Result {
        if self.direction() != Direction::Read {
            return Err(EINVAL);
        }
        let end = offset.checked_add(bytes.len()).ok_or(EMSGSIZE)?;
        if end > self.data_len() as usize {
            return Err(EMSGSIZE);
        }
        self.data().ok_or(EINVAL)?.copy_in(offset, bytes)
    }

    /// Hands the request to [`SessionHandler::deferred()`], with the same `header`. Any context.
    ///
    /// A worker keeps the order of its requests, and deferring takes no memory. The end of the path
    /// waits for deferred requests. If the path is being closed when a request's turn comes, the
    /// request is dropped.
    pub fn defer(mut self, header: &[u8]) {
        let Some((io, mut chunk)) = self.request.take() else {
            return;
        };
        match chunk.header.get_mut(..header.len()) {
            Some(to) => {
                to.copy_from_slice(header);
                let worker = io.handler.worker(header);
                let worker = worker
                    .as_ref()
                    .map_or(io.session.worker(), |worker| &worker.0);
                worker.run_later(&io, chunk, Task::Deferred);
            }
            // Such a long header came by `deferred()`, which may sleep.
            None => Self::new(io, chunk).respond(Err(EMSGSIZE)),
        }
    }

    /// Has the responses of this operation's connection collected, to go out in few messages, until
    /// the calling work item ends or sleeps. Called by a work item of a queue with
    /// [`QueueFlags::PER_CPU`], before it carries the request out, if other requests are carried
    /// out right behind.
    ///
    /// Responses that are not collected, such as those of reads, are sent at once all the same.
    ///
    /// [`QueueFlags::PER_CPU`]: kernel_ext::workqueue::QueueFlags::PER_CPU
    pub fn collect_response(&self) {
        if let Some((io, chunk)) = &self.request {
            if let Some(queue_pair) = io.queue_pair(chunk.cid) {
                queue_pair
                    .handler()
                    .collect_for_now(io.session.worker().queue());
            }
        }
    }

    /// Responds to the request: with an error, or with the number of bytes that a read has put at
    /// the start of the data. The number is ignored for a write. Any context.
    #[inline]
    pub fn respond(mut self, result: Result<u32>) {
        if let Some((io, mut chunk)) = self.request.take() {
            chunk.result = result;
            if ServerTimes::is_on() {
                chunk.times.respond();
            }
            PathIo::respond(&io, chunk);
        }
    }
}

impl Drop for Operation {
    #[inline]
    fn drop(&mut self) {
        if let Some((io, mut chunk)) = self.request.take() {
            chunk.result = Err(EIO);
            if ServerTimes::is_on() {
                chunk.times.respond();
            }
            PathIo::respond(&io, chunk);
        }
    }
}
