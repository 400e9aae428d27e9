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
    atomic::{
        ordering,
        Atomic, //
    },
    message_buffers::MessageBuffers,
    rdma::{
        Access,
        Direction,
        MemoryRegion,
        ProtectionDomain,
        QueuePair,
        RemoteMemory,
        SendChain,
        Sge,
        SgeList, //
    }, //
};
use proto::rtrs::{
    ChunkLayout,
    ConnAccept,
    Imm,
    ReadMsg,
    SgDesc,
    WriteMsg,
    FEATURE_JOINT_ANSWERS,
    FEATURE_SHORT_ANSWERS, //
};

use rtrs_core::connection::SERVICE_CID;

use crate::{
    bounce::BounceBuffers,
    connection::{
        Connection,
        ConnectionHandler,
        WorkKind, //
    },
    request::{
        Kind,
        Request,
        Resources,
        TagSlots,
        HEADER_BUFFER_SIZE, //
    }, //
};

/// The most scatter entries of one RDMA write: data segments and the header.
///
/// A write with more segments is registered; the table is on the stack.
pub(crate) const MAX_SEND_SGE: usize = 30;

/// A chunk of the server as this path reaches it.
struct RemoteChunk {
    address: Atomic<u64>,
    /// Changes with every answer if the server invalidates always. Only the owner of the tag
    /// reads it, and only after the answer that changed it.
    rkey: Atomic<u32>,
}

/// Why a request could not be sent.
pub(crate) struct Refused {
    /// The request, as it was before.
    pub(crate) request: KBox<Request>,
    pub(crate) error: Error,
}

/// What became of a request that was submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It was posted.
    Posted,
    /// It may have been posted in part: the connection is to be given up, and the request is
    /// found by the teardown.
    Broken,
}

/// What is to be posted for a request.
struct Plan {
    /// How the region is to be registered before it, if at all.
    access: Option<Access>,
    remote: RemoteMemory,
    immediate: u32,
}

/// What the server's answer to a request leads to.
pub(crate) enum Answered {
    /// The request is finished.
    Finished(KBox<Request>),
    /// Its registration is being invalidated; [`Transfer::invalidated`] follows.
    Invalidating,
    /// The queue pair failed; the request waits for the teardown.
    Failed,
    /// No request was in flight under this number.
    Unknown,
}

/// The requests of one incarnation of a path's connections.
pub(crate) struct Transfer {
    pub(crate) accept: ConnAccept,
    pub(crate) layout: ChunkLayout,
    domain: Arc<ProtectionDomain>,
    chunks: KVec<RemoteChunk>,
    slots: KVec<TagSlots>,
    /// Nothing if there is no memory for it; then all reads are registered.
    bounce: Option<BounceBuffers>,
    max_send_sge: usize,
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
    /// `max_send_sge` is what its queue pairs were made with, `num_connections` their number.
    pub(crate) fn new(
        domain: Arc<ProtectionDomain>,
        accept: ConnAccept,
        layout: ChunkLayout,
        max_segments: u16,
        max_send_sge: usize,
        num_connections: usize,
    ) -> Result<Self> {
        let mut in_flight = KVec::with_capacity(num_connections, GFP_KERNEL)?;
        for _ in 0..num_connections {
            in_flight.push(InFlight(Atomic::new(0)), GFP_KERNEL)?;
        }
        let depth = usize::from(accept.queue_depth);
        let mut chunks = KVec::with_capacity(depth, GFP_KERNEL)?;
        let mut slots = KVec::with_capacity(depth, GFP_KERNEL)?;
        let messages =
            MessageBuffers::allocate(&domain, depth, HEADER_BUFFER_SIZE, Direction::ToDevice)?;
        for message in messages {
            let resources = Resources {
                // Data that does not begin on a page boundary touches one page more.
                region: MemoryRegion::new(&domain, u32::from(max_segments).saturating_add(1))?,
                message,
            };
            slots.push(TagSlots::new(KBox::new(resources, GFP_KERNEL)?), GFP_KERNEL)?;
            chunks.push(
                RemoteChunk {
                    address: Atomic::new(0),
                    rkey: Atomic::new(0),
                },
                GFP_KERNEL,
            )?;
        }
        let bounce = BounceBuffers::new(&domain, depth).ok();
        Ok(Self {
            accept,
            layout,
            domain,
            chunks,
            slots,
            bounce,
            max_send_sge: max_send_sge.min(MAX_SEND_SGE),
            in_flight,
        })
    }

    fn count(&self, connection: usize, change: i32) {
        if let Some(in_flight) = self.in_flight.get(connection) {
            in_flight.0.add(change, ordering::Relaxed);
        }
    }

    /// Whether the server may answer several requests in one message.
    pub(crate) fn takes_joint_answers(&self) -> bool {
        self.accept.features & FEATURE_JOINT_ANSWERS != 0
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
        queue_pair: &QueuePair<ConnectionHandler>,
    ) -> Result {
        match &self.bounce {
            Some(bounce) => bounce.register(queue_pair),
            None => Ok(()),
        }
    }

    /// Where the server is to write the data of `request` if that is not the data's own memory.
    #[inline]
    fn bounce_place(&self, request: &Request, data_len: usize) -> Option<SgDesc> {
        if request.kind != Kind::Read || request.connection == usize::from(SERVICE_CID) {
            return None;
        }
        self.bounce.as_ref()?.place(request.tag(), data_len)
    }

    /// Notes where chunk `index` lies. `EINVAL` beyond the queue depth.
    pub(crate) fn set_chunk(&self, index: usize, address: u64, rkey: u32) -> Result {
        let chunk = self.chunks.get(index).ok_or(EINVAL)?;
        chunk.address.store(address, ordering::Relaxed);
        chunk.rkey.store(rkey, ordering::Relaxed);
        Ok(())
    }

    /// Notes the new key of chunk `index`. `EINVAL` beyond the queue depth.
    pub(crate) fn set_rkey(&self, index: u32, rkey: u32) -> Result {
        let chunk = self.chunks.get(index as usize).ok_or(EINVAL)?;
        chunk.rkey.store(rkey, ordering::Relaxed);
        Ok(())
    }

    /// Sends `request` on `connection`. Never sleeps.
    ///
    /// On success the request belongs to this path until it is answered or taken back by
    /// [`Transfer::take_outstanding`]. The caller gives the connection up if it is
    /// [`Submitted::Broken`].
    pub(crate) fn submit(
        &self,
        connection: &Connection,
        mut request: KBox<Request>,
    ) -> Result<Submitted, Refused> {
        let tag = request.tag() as usize;
        let (Some(slots), Some(chunk)) = (self.slots.get(tag), self.chunks.get(tag)) else {
            return Err(Refused {
                request,
                error: EINVAL,
            });
        };
        // Empty only if the tag is used twice at once, which its one request rules out.
        request.resources = slots.resources.take();
        self.send(connection, slots, chunk, request)
            .map_err(|mut refused| {
                Self::release(slots, &mut refused.request);
                refused
            })
    }

    /// Posts the RDMA write that carries `request`.
    fn send(
        &self,
        connection: &Connection,
        slots: &TagSlots,
        chunk: &RemoteChunk,
        mut request: KBox<Request>,
    ) -> Result<Submitted, Refused> {
        let mut entries = SgeList::new();
        let plan = match self.plan(chunk, &mut request, &mut entries) {
            Ok(plan) => plan,
            Err(error) => return Err(Refused { request, error }),
        };
        let mut chain = SendChain::<2>::new();
        if let Err(error) = self.build(&mut chain, connection, &request, &plan, entries.as_slice())
        {
            return Err(Refused { request, error });
        }

        // From here on an answer may come, so the request must be where it is looked for.
        request.registered = plan.access.is_some();
        let index = request.connection;
        self.count(index, 1);
        drop(slots.in_flight.put(request));
        if let Err(error) = connection.queue_pair().post_mut(&mut chain) {
            if plan.access.is_some() {
                // The registration may have been posted, so the device may use the region.
                return Ok(Submitted::Broken);
            }
            if let Some(request) = slots.in_flight.take() {
                self.count(index, -1);
                return Err(Refused { request, error });
            }
            // Somebody took the request to finish it: for the caller it was sent.
        }
        Ok(Submitted::Posted)
    }

    /// Maps the data and writes the header; says what is to be posted for them.
    ///
    /// In the chunk, the data comes first, then the user's header, then the message, which the
    /// immediate points to.
    fn plan(
        &self,
        chunk: &RemoteChunk,
        request: &mut Request,
        entries: &mut SgeList<MAX_SEND_SGE>,
    ) -> Result<Plan> {
        let data_len = request.data_len();
        if data_len > self.accept.max_io_size as usize {
            return Err(EMSGSIZE);
        }
        let mut desc = None;
        if data_len != 0 {
            desc = self.bounce_place(request, data_len);
            request.bounced = desc.is_some();
            if desc.is_none() {
                request.map(&self.domain)?;
            }
        }
        let (tag, kind) = (request.tag(), request.kind);
        let (data, resources, header) = request.parts();
        let resources = resources.ok_or(EBUSY)?;

        // A read that is not bounced needs a registration, for the server to write to; a write
        // only if its segments do not fit into the scatter list beside the header.
        let mut access = None;
        if let Some(data) = data {
            let limit = self.max_send_sge.saturating_sub(1);
            if kind != Kind::Write || !data.add_sges(entries, limit) {
                resources.region.map(data)?;
                if kind == Kind::Read {
                    access = Some(Access::RemoteWrite);
                    desc = Some(SgDesc {
                        addr: resources.region.iova(),
                        key: resources.region.rkey(),
                        len: u32::try_from(resources.region.len())?,
                    });
                } else {
                    access = Some(Access::Local);
                    entries.push(resources.region.sge()?)?;
                }
            }
        }

        let usr_len = u16::try_from(header.len()).map_err(|_| EMSGSIZE)?;
        // A server that is as short as it can be leaves the invalidation to the client, which does
        // it for less than a message.
        let need_inval = access.is_some() && self.accept.features & FEATURE_SHORT_ANSWERS == 0;
        let message = ReadMsg {
            usr_len,
            need_inval,
            desc,
        };
        let message_len = resources
            .message
            .write(|buffer| write_message(buffer, header, kind, &message))??;
        if message_len > self.accept.max_hdr_size as usize {
            return Err(EMSGSIZE);
        }
        entries.push(resources.message.sge(message_len)?)?;

        let data_len = u32::try_from(data_len).map_err(|_| EMSGSIZE)?;
        let offset = data_len.checked_add(u32::from(usr_len)).ok_or(EMSGSIZE)?;
        let immediate = Imm::io_req(&self.layout, tag, offset).ok_or(EMSGSIZE)?;
        // The place of a read's data in the chunk is the server's.
        let skipped = if kind == Kind::Read { data_len } else { 0 };
        Ok(Plan {
            access,
            remote: RemoteMemory {
                address: chunk
                    .address
                    .load(ordering::Relaxed)
                    .checked_add(u64::from(skipped))
                    .ok_or(EMSGSIZE)?,
                rkey: chunk.rkey.load(ordering::Relaxed),
            },
            immediate: immediate.encode(),
        })
    }

    /// Fills `chain` with what `plan` says.
    fn build<'a>(
        &'a self,
        chain: &mut SendChain<'a, 2>,
        connection: &Connection,
        request: &Request,
        plan: &Plan,
        entries: &'a [Sge],
    ) -> Result {
        if let (Some(access), Some(resources)) = (plan.access, request.resources.as_ref()) {
            chain.reg_mr(
                WorkKind::Registration.id(),
                false,
                &self.domain,
                &resources.region,
                access,
            )?;
        }
        chain.rdma_write_with_imm(
            WorkKind::Send.id(),
            connection.next_is_signaled(),
            entries,
            plan.remote,
            plan.immediate,
        )
    }

    /// Gives back what the path lent to `request`. The device must not use it any more.
    fn release(slots: &TagSlots, request: &mut Request) {
        request.unmap();
        request.registered = false;
        if let Some(resources) = request.resources.take() {
            resources.region.release();
            // The slot was emptied for this request.
            drop(slots.resources.put(resources));
        }
    }

    /// The server answered request `tag`; `invalidated` is the key of the registration that the
    /// device has invalidated for it just before. Completion context.
    pub(crate) fn answered(
        &self,
        queue_pair: &QueuePair<ConnectionHandler>,
        tag: u32,
        answer: Result,
        invalidated: Option<u32>,
    ) -> Answered {
        let Some(slots) = self.slots.get(tag as usize) else {
            return Answered::Unknown;
        };
        let Some(mut request) = slots.in_flight.take() else {
            return Answered::Unknown;
        };
        self.count(request.connection, -1);
        request.answer = answer;
        if request.bounced && answer.is_ok() {
            request.answer = self.deliver(&mut request);
        }
        let rkey = request.resources.as_ref().map(|r| r.region.rkey());
        let (true, Some(rkey)) = (request.registered, rkey) else {
            Self::release(slots, &mut request);
            return Answered::Finished(request);
        };
        // That the server says so is not enough: it must not be able to write to this memory
        // once the request is finished.
        if invalidated == Some(rkey) {
            Self::release(slots, &mut request);
            return Answered::Finished(request);
        }
        drop(slots.invalidating.put(request));
        // Service requests are on a connection of their own, whatever their tag.
        let kind = if tag.checked_add(1) == Some(u32::from(self.accept.queue_depth)) {
            WorkKind::InvalidateService
        } else {
            WorkKind::Invalidate(tag)
        };
        let mut chain = SendChain::<1>::new();
        let posted = chain
            .local_invalidate(kind.id(), true, rkey)
            .and_then(|()| queue_pair.post(chain));
        match posted {
            Ok(()) => Answered::Invalidating,
            Err(_) => Answered::Failed,
        }
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

    /// The registration of request `tag` is invalid now. Completion context.
    pub(crate) fn invalidated(&self, tag: u32) -> Option<KBox<Request>> {
        let slots = self.slots.get(tag as usize)?;
        let mut request = slots.invalidating.take()?;
        Self::release(slots, &mut request);
        Some(request)
    }

    /// Takes one more request that was never finished, beginning with tag `from`.
    ///
    /// Only for the teardown, after the queue pairs are drained, so that the device uses nothing
    /// of it any more.
    pub(crate) fn take_outstanding(&self, from: &mut usize) -> Option<Outstanding> {
        while let Some(slots) = self.slots.get(*from) {
            if let Some(mut request) = slots.in_flight.take() {
                self.count(request.connection, -1);
                Self::release(slots, &mut request);
                return Some(Outstanding::Unanswered(request));
            }
            if let Some(mut request) = slots.invalidating.take() {
                Self::release(slots, &mut request);
                return Some(Outstanding::Answered(request));
            }
            *from = from.saturating_add(1);
        }
        None
    }
}

/// A request that a failed path leaves behind.
pub(crate) enum Outstanding {
    /// May be sent on another path.
    Unanswered(KBox<Request>),
    /// The server has answered; only its registration was left to invalidate.
    Answered(KBox<Request>),
}

/// Writes the user's header and the transport's message behind it; returns their length.
///
/// Of `message` only the length counts unless `kind` is a read.
fn write_message(buffer: &mut [u8], header: &[u8], kind: Kind, message: &ReadMsg) -> Result<usize> {
    let (user, rest) = buffer.split_at_mut_checked(header.len()).ok_or(EMSGSIZE)?;
    user.copy_from_slice(header);
    let len = if kind == Kind::Read {
        message.write(rest).map_err(|_| EMSGSIZE)?
    } else {
        let usr_len = message.usr_len;
        let message = WriteMsg { usr_len }.to_bytes();
        rest.get_mut(..message.len())
            .ok_or(EMSGSIZE)?
            .copy_from_slice(&message);
        message.len()
    };
    header.len().checked_add(len).ok_or(EMSGSIZE)
}
