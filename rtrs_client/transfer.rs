// SPDX-License-Identifier: GPL-2.0

//! Requests on one path: how they are sent, answered, and taken back when the path fails.
//!
//! A [`Transfer`] belongs to one incarnation of a path's connections: it is made while they are
//! established and goes with them, so that nothing of an old connection can be mistaken for the
//! new one's.

use kernel::{
    prelude::*,
    sync::{
        Arc, //
    }, //
};
use kernel_ext::{
    rdma::{
        message_buffers::MessageBuffers,
        MemoryRegion,
        ProtectionDomain,
        QueuePairRef,
        RemoteMemory,
        Sge,
        Unposted,
        WriteBatch, //
    },
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::rtrs::{
    ChunkLayout,
    ConnAccept,
    Imm,
    ReadMsg,
    SgDesc,
    WriteMsg,
    FEATURE_COALESCED_RESPONSES,
    FEATURE_PATH_END, //
};

use rtrs_core::connection::SERVICE_CID;

use crate::{
    bounce::BounceBuffers,
    connection::{
        Connection,
        ConnectionHandler, //
    },
    request::{
        Kind,
        Request,
        Resources,
        Tag,
        HEADER_BUFFER_SIZE, //
    },
    work::WorkKind, //
};

mod outstanding;
mod registered;

pub(crate) use outstanding::Outstanding;

/// The most scatter entries of one RDMA write: data segments and the header.
///
/// A write with more segments is registered; the table is on the stack.
pub(crate) const MAX_SEND_SGE: usize = 30;

/// Why a request could not be sent.
pub(crate) struct Refused {
    /// The request, as it was before.
    pub(crate) request: KBox<Request>,
    pub(crate) error: Error,
}

/// The most requests that are posted at once.
pub(crate) const MAX_BATCH: usize = 8;

/// Requests that are to be posted at once, `N` at most, with `S` scatter entries in all; by tag.
pub(crate) type Batch<const N: usize, const S: usize> = WriteBatch<N, S>;

/// For one request, whatever it is.
pub(crate) type SingleBatch = Batch<1, MAX_SEND_SGE>;

/// The room for as many requests as are posted at once.
pub type FullBatch = Batch<MAX_BATCH, { MAX_SEND_SGE + MAX_BATCH }>;

/// What became of a request that was submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It is in the batch.
    Added,
    /// It was posted.
    Posted,
    /// It may have been posted in part: the connection is to be given up, and the request is
    /// found by the teardown.
    Broken,
}

/// What the server's answer to a request leads to.
pub(crate) enum Answered {
    /// The request is finished.
    Finished(KBox<Request>),
    /// The device still uses its data; [`Transfer::used`] follows.
    InUse,
    /// The queue pair failed; the request waits for the teardown.
    Failed,
    /// No request was in flight under this number.
    Unknown,
    /// The request was sent on another connection; it waits for the teardown.
    Misdirected,
}

/// The requests of one incarnation of a path's connections.
pub(crate) struct Transfer {
    pub(crate) accept: ConnAccept,
    pub(crate) layout: ChunkLayout,
    domain: Arc<ProtectionDomain>,
    /// One for each of the server's chunks that is used.
    tags: KVVec<Tag>,
    /// Nothing if there is no memory for it; then all reads are registered, and writes are sent
    /// from their own memory.
    bounce: Option<BounceBuffers>,
    max_send_sge: Atomic<u32>,
    in_flight: KVec<InFlight>,
}

/// The requests in flight on one connection.
///
/// A cache line of its own: it is only touched by the CPU whose requests the connection carries.
#[repr(align(64))]
struct InFlight(Atomic<i32>);

impl Transfer {
    /// Allocates all that the requests of a path need. May sleep.
    ///
    /// `queue_depth` of the server's chunks are used, on `num_connections` queue pairs, the first
    /// of which was made with `max_send_sge`; see [`Self::limit_send_sge`] for the others.
    pub(crate) fn new(
        domain: Arc<ProtectionDomain>,
        accept: ConnAccept,
        layout: ChunkLayout,
        queue_depth: u16,
        max_segments: u16,
        max_send_sge: u32,
        num_connections: usize,
    ) -> Result<Self> {
        let mut in_flight = KVec::with_capacity(num_connections, GFP_KERNEL)?;
        for _ in 0..num_connections {
            in_flight.push(InFlight(Atomic::new(0)), GFP_KERNEL)?;
        }
        let depth = usize::from(queue_depth);
        let mut tags = KVVec::with_capacity(depth, GFP_KERNEL)?;
        let messages = MessageBuffers::allocate(&domain, depth, HEADER_BUFFER_SIZE)?;
        for message in messages {
            let resources = Resources {
                // Data that does not begin on a page boundary touches one page more.
                region: MemoryRegion::new(&domain, u32::from(max_segments).saturating_add(1))?,
                message,
            };
            tags.push(Tag::new(KBox::new(resources, GFP_KERNEL)?), GFP_KERNEL)?;
        }
        let bounce = BounceBuffers::new(&domain, depth).ok();
        Ok(Self {
            accept,
            layout,
            domain,
            tags,
            bounce,
            max_send_sge: Atomic::new(max_send_sge),
            in_flight,
        })
    }

    /// The requests that there may be at a time, service requests with them.
    pub(crate) fn queue_depth(&self) -> u32 {
        // As many as `new` was asked for.
        self.tags.len() as u32
    }

    /// The queue pairs take only so many scatter entries. No request has been sent yet.
    pub(crate) fn limit_send_sge(&self, max_send_sge: u32) {
        self.max_send_sge.store(max_send_sge, ordering::Relaxed);
    }

    #[inline]
    fn count(&self, connection: u32, change: i32) {
        if let Some(in_flight) = self.in_flight.get(connection as usize) {
            in_flight.0.add(change, ordering::Relaxed);
        }
    }

    /// Whether the server may answer several requests in one message.
    pub(crate) fn takes_joint_answers(&self) -> bool {
        self.accept.features & FEATURE_COALESCED_RESPONSES != 0
    }

    /// Whether the server ends another path if it is asked on this one.
    pub(crate) fn ends_other_paths(&self) -> bool {
        self.accept.features & FEATURE_PATH_END != 0
    }

    /// The requests in flight on `connection`.
    pub(crate) fn in_flight_on(&self, connection: usize) -> i32 {
        self.in_flight
            .get(connection)
            .map_or(0, |in_flight| in_flight.0.load(ordering::Relaxed))
    }

    /// The requests in flight on all connections.
    pub(crate) fn in_flight(&self) -> i32 {
        self.in_flight.iter().fold(0, |sum, in_flight| {
            sum.saturating_add(in_flight.0.load(ordering::Relaxed))
        })
    }

    /// Lets the server write to the bounce buffers, as soon as it gets what `queue_pair` sends
    /// afterwards.
    pub(crate) fn register_bounce_buffers(
        &self,
        queue_pair: &QueuePairRef<ConnectionHandler>,
    ) -> Result {
        match &self.bounce {
            Some(bounce) => bounce.register(queue_pair),
            None => Ok(()),
        }
    }

    /// The most scatter entries that `request` takes in a batch.
    #[inline]
    pub(crate) fn most_entries(&self, request: &Request) -> usize {
        match self.bounce(request, request.data_len()) {
            // The page and the message.
            Some(_) => 2,
            None => MAX_SEND_SGE,
        }
    }

    /// The pages that the data of `request` goes through, if it does not go to or from its own
    /// memory.
    #[inline]
    fn bounce(&self, request: &Request, data_len: usize) -> Option<&BounceBuffers> {
        if data_len > BounceBuffers::SIZE || request.connection == u32::from(SERVICE_CID) {
            return None;
        }
        self.bounce.as_ref()
    }

    /// Notes where chunk `index` lies. `EINVAL` beyond the queue depth.
    pub(crate) fn set_chunk(&self, index: usize, address: u64, rkey: u32) -> Result {
        let tag = self.tags.get(index).ok_or(EINVAL)?;
        tag.address.store(address, ordering::Relaxed);
        tag.rkey.store(rkey, ordering::Relaxed);
        Ok(())
    }

    /// Notes the new key of chunk `index`. `EINVAL` beyond the queue depth.
    pub(crate) fn set_rkey(&self, index: u32, rkey: u32) -> Result {
        let tag = self.tags.get(index as usize).ok_or(EINVAL)?;
        tag.rkey.store(rkey, ordering::Relaxed);
        Ok(())
    }

    /// Adds `request` to `batch`, which is for `connection` and has room. Never sleeps.
    ///
    /// On success the request belongs to this path until it is answered or taken back by
    /// [`Transfer::post`] or [`Transfer::take_outstanding`]; the batch has to be posted while the
    /// path's connections are still there. A request that needs a registration is posted at once.
    /// The caller gives the connection up if it is [`Submitted::Broken`].
    #[inline(always)]
    pub(crate) fn add<const N: usize, const S: usize>(
        &self,
        connection: &Connection,
        batch: &mut Batch<N, S>,
        mut request: KBox<Request>,
    ) -> Result<Submitted, Refused> {
        let number = request.tag();
        let Some(tag) = self.tags.get(number as usize) else {
            return Err(Refused {
                request,
                error: EINVAL,
            });
        };
        // Empty only if the tag is used twice at once, which its one request rules out.
        request.resources = tag.resources.take();
        match self.write(connection, tag, batch, &mut request) {
            Ok(true) => {}
            Ok(false) => return self.send_registered(connection, tag, request),
            Err(error) => {
                batch.reset();
                self.release(tag, &mut request);
                return Err(Refused { request, error });
            }
        }
        // Once it is posted an answer may come, so the request must be where it is looked for.
        self.count(request.connection, 1);
        drop(tag.in_flight.put(request));
        Ok(Submitted::Added)
    }

    /// Adds the RDMA write that carries `request` to `batch`; false if the data, which is mapped
    /// then, has to be registered first.
    ///
    /// In the chunk, the data comes first, then the user's header, then the message, which the
    /// immediate points to.
    #[inline(always)]
    fn write<const N: usize, const S: usize>(
        &self,
        connection: &Connection,
        tag: &Tag,
        batch: &mut Batch<N, S>,
        request: &mut Request,
    ) -> Result<bool> {
        let (number, data_len) = (request.tag(), request.data_len());
        if data_len > self.accept.max_io_size as usize {
            return Err(EMSGSIZE);
        }
        let mut desc = None;
        if data_len != 0 {
            match self.bounce(request, data_len) {
                Some(bounce) if request.kind == Kind::Read => {
                    desc = bounce.place(request.tag(), data_len);
                    request.bounced = true;
                }
                Some(bounce) => {
                    let (data, _, _) = request.parts();
                    batch.add(bounce.fill(number, data)?)?;
                }
                None if self.add_data(tag, batch, request)? => {}
                None => return Ok(false),
            }
        }
        let message = self.write_message_inline(request, false, desc)?;
        batch.add(message)?;
        let (remote, immediate) = self.place(tag, request, data_len)?;
        let signaled = connection.next_is_signaled();
        let (id, signaled) = if request.sent_from_data {
            (self.last_use(number).id(), true)
        } else {
            (WorkKind::Send.id(), signaled)
        };
        batch.write_with_imm(number, id, signaled, remote, immediate)?;
        Ok(true)
    }

    /// Maps the data of `request` and adds it to `batch`; false if it has to be registered first.
    ///
    /// That is a read, for the server to write to, or a write whose segments do not fit into the
    /// scatter list beside the header.
    #[inline(never)]
    fn add_data<const N: usize, const S: usize>(
        &self,
        tag: &Tag,
        batch: &mut Batch<N, S>,
        request: &mut Request,
    ) -> Result<bool> {
        request.map(&self.domain)?;
        // One is for the message.
        let limit = (self.max_send_sge.load(ordering::Relaxed) as usize).wrapping_sub(1);
        let kind = request.kind;
        let (data, _, _) = request.parts();
        if kind == Kind::Read || !batch.add_mapped(data, &self.domain, limit) {
            return Ok(false);
        }
        request.sent_from_data = true;
        tag.ends.store(0, ordering::Relaxed);
        Ok(true)
    }

    /// Writes the user's header and the transport's message behind it. `EMSGSIZE` if they are too
    /// long.
    #[inline(always)]
    fn write_message_inline(
        &self,
        request: &mut Request,
        need_inval: bool,
        desc: Option<SgDesc>,
    ) -> Result<Sge> {
        let (kind, usr_len) = (request.kind, request.header_len());
        let (_, resources, header) = request.parts();
        let message = &resources.ok_or(EBUSY)?.message;
        message.copy_in(0, header)?;
        let len = if kind == Kind::Read {
            let mut bytes = [0; ReadMsg::MAX_SIZE];
            let size = ReadMsg {
                usr_len,
                need_inval,
                desc,
            }
            .write_to(&mut bytes)
            .ok_or(EMSGSIZE)?;
            message.copy_in(header.len(), bytes.get(..size).ok_or(EMSGSIZE)?)?;
            header.len().wrapping_add(size)
        } else {
            message.copy_in(header.len(), &WriteMsg { usr_len }.to_bytes())?;
            header.len().wrapping_add(WriteMsg::SIZE)
        };
        if len > self.accept.max_hdr_size as usize {
            return Err(EMSGSIZE);
        }
        message.sge(len)
    }

    /// As [`Transfer::write_message_inline`], where it is not as urgent.
    #[inline(never)]
    fn write_message(
        &self,
        request: &mut Request,
        need_inval: bool,
        desc: Option<SgDesc>,
    ) -> Result<Sge> {
        self.write_message_inline(request, need_inval, desc)
    }

    /// Where `request` is written to, and the immediate that says where its message is.
    #[inline(always)]
    fn place(&self, tag: &Tag, request: &Request, data_len: usize) -> Result<(RemoteMemory, u32)> {
        // At most `max_io_size`, which is a `u32`.
        let data_len = data_len as u32;
        let offset = data_len.wrapping_add(u32::from(request.header_len()));
        let immediate = Imm::encode_io_req(&self.layout, request.tag(), offset).ok_or(EMSGSIZE)?;
        // The place of a read's data in the chunk is the server's.
        let skipped = if request.kind == Kind::Read {
            data_len
        } else {
            0
        };
        let remote = RemoteMemory {
            // Of memory that is the server's; if it wraps around, that is the server's doing.
            address: tag
                .address
                .load(ordering::Relaxed)
                .wrapping_add(u64::from(skipped)),
            rkey: tag.rkey.load(ordering::Relaxed),
        };
        Ok((remote, immediate))
    }

    /// Posts the requests of `batch` on `connection`, for which it is, and empties it. Those that
    /// cannot be posted are given to `refused`.
    ///
    /// The caller gives the connection up if it is [`Submitted::Broken`].
    #[inline(always)]
    pub(crate) fn post<const N: usize, const S: usize>(
        &self,
        connection: &Connection,
        batch: &mut Batch<N, S>,
        refused: impl FnMut(Refused),
    ) -> Submitted {
        let posted = match connection.queue_pair().post_batch(batch) {
            Ok(()) => Submitted::Posted,
            Err(unposted) => {
                let cid = connection.queue_pair().handler().cid;
                self.take_back(u32::from(cid), batch.keys(), unposted, refused)
            }
        };
        batch.clear();
        posted
    }

    /// Takes back what of a batch of `tags` was not posted on `connection`.
    #[cold]
    fn take_back(
        &self,
        connection: u32,
        tags: &[u32],
        unposted: Unposted,
        mut refused: impl FnMut(Refused),
    ) -> Submitted {
        // Any other errno means that the queue pair is failing: its teardown sends the requests
        // elsewhere, or has them wait.
        let stays = [ENOMEM, EINVAL, ESHUTDOWN].contains(&unposted.error);
        let Some(first) = unposted.first.filter(|_| stays) else {
            return Submitted::Broken;
        };
        let mut posted = Submitted::Posted;
        for number in tags.iter().skip(first) {
            let Some(tag) = self.tags.get(*number as usize) else {
                continue;
            };
            match tag.in_flight.take() {
                Some(mut request)
                    if request.connection == connection
                        && !request.registered
                        && !request.sent_from_data =>
                {
                    self.count(request.connection, -1);
                    self.release(tag, &mut request);
                    refused(Refused {
                        request,
                        error: unposted.error,
                    });
                }
                // The server has answered what it never got. The tag's next request may be there
                // already, and the device may be using it.
                other => {
                    if let Some(request) = other {
                        drop(tag.in_flight.put(request));
                    }
                    posted = Submitted::Broken;
                }
            }
        }
        posted
    }

    /// Gives back what the path lent to `request`. The device must not use it any more.
    #[inline]
    fn release(&self, tag: &Tag, request: &mut Request) {
        request.unmap(&self.domain);
        request.registered = false;
        request.sent_from_data = false;
        if let Some(resources) = request.resources.take() {
            resources.region.release();
            // The slot was emptied for this request.
            drop(tag.resources.put(resources));
        }
    }

    /// The server answered request `number`, on the connection of `handler`; `invalidated` if it
    /// says that it has let the device invalidate the registration just before. Completion context.
    #[inline(always)]
    pub(crate) fn answered(
        &self,
        handler: &ConnectionHandler,
        queue_pair: &QueuePairRef<ConnectionHandler>,
        number: u32,
        answer: Result,
        invalidated: bool,
    ) -> Answered {
        let Some(tag) = self.tags.get(number as usize) else {
            return Answered::Unknown;
        };
        let request = tag.in_flight.take();
        // What was invalidated counts for the next answer only, whatever that is to.
        let rkey = handler.take_invalidated_rkey();
        let Some(mut request) = request else {
            return Answered::Unknown;
        };
        if request.connection != u32::from(handler.cid) {
            // Its registration has to be invalidated behind the work requests that made it, so it
            // cannot be finished here. The teardown looks at the slot after the last handler.
            drop(tag.in_flight.put(request));
            return Answered::Misdirected;
        }
        self.count(request.connection, -1);
        request.answer = answer;
        if request.registered {
            return self.invalidate(queue_pair, tag, request, invalidated.then_some(rkey));
        }
        if request.sent_from_data {
            return self.wait_for_last_use(tag, request);
        }
        if request.bounced && answer.is_ok() {
            request.answer = self.deliver(&mut request);
        }
        self.release(tag, &mut request);
        Answered::Finished(request)
    }

    /// The server answered `request`, whose data the device was to send from its own memory. It may
    /// send it once more if it has not heard that the server has it.
    #[inline(never)]
    fn wait_for_last_use(&self, tag: &Tag, request: KBox<Request>) -> Answered {
        drop(tag.answered.put(request));
        match self.end(tag) {
            Some(request) => Answered::Finished(request),
            None => Answered::InUse,
        }
    }

    /// What the device's last use of the data of request `number` is called.
    fn last_use(&self, number: u32) -> WorkKind {
        // Service requests are on a connection of their own, whatever their tag.
        if number.checked_add(1) == Some(self.queue_depth()) {
            WorkKind::LastUseOfService
        } else {
            WorkKind::LastUse(number)
        }
    }

    /// The server's answer or the device's last use of a request's data has come: the request, if
    /// it was the second of them.
    fn end(&self, tag: &Tag) -> Option<KBox<Request>> {
        if tag.ends.fetch_add(1, ordering::Full) == 0 {
            return None;
        }
        let mut request = tag.answered.take()?;
        self.release(tag, &mut request);
        Some(request)
    }

    /// Copies the data of a bounced read to its own memory.
    #[inline]
    fn deliver(&self, request: &mut Request) -> Result {
        let tag = request.tag();
        match (&self.bounce, request.table()) {
            (Some(bounce), Some(table)) => bounce.deliver(tag, table),
            _ => Err(EIO),
        }
    }

    /// The device does not use the data of request `tag` any more: its registration is invalid, or
    /// it was sent. Completion context.
    pub(crate) fn used(&self, tag: u32) -> Option<KBox<Request>> {
        self.end(self.tags.get(tag as usize)?)
    }
}
