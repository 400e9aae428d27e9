// SPDX-License-Identifier: GPL-2.0

//! The requests of one incarnation of a path's connections: how they are sent, how they end, and
//! which of them are left when the path fails.
//!
//! [`PathRequests`] is made while the connections are established, and goes with them. So nothing
//! of an old connection can be mistaken for something of a new one. The requests themselves belong
//! to the session: [`tags`] has their owners and the states of a tag.

use kernel::sync::Arc;
use kernel_ext::{
    page::send::SendPages,
    prelude::*,
    rdma::{
        message_buffers::{
            MessageBuffer,
            MessageBuffers,
            Outgoing, //
        },
        send_pages::MappedSendPages,
        Handler,
        MemoryRegion,
        ProtectionDomain,
        QueuePairRef,
        Sge, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    }, //
};
use proto::rtrs::{
    ChunkLayout,
    ConnAccept,
    FEATURE_COALESCED_RESPONSES,
    FEATURE_DOORBELL,
    FEATURE_PATH_END,
    FEATURE_SHORT_RESPONSES, //
};
use rtrs_core::connection::SERVICE_CID;

use bounce::{
    BounceBuffer,
    BounceBuffers, //
};
use request::{
    Request,
    HEADER_BUFFER_SIZE, //
};
use tags::{
    IncarnationNumber,
    Phase,
    Tags,
    FLAGS,
    FREE, //
};

use crate::stats::Stats;

pub(crate) mod abandon;
mod bounce;
pub(crate) mod outstanding;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod service;
pub(crate) mod submit;
pub(crate) mod tags;

/// The requests of one incarnation of a path's connections.
pub(crate) struct PathRequests {
    pub(crate) accept: ConnAccept,
    pub(crate) layout: ChunkLayout,
    tags: Arc<Tags>,
    stats: Arc<Stats>,
    /// The number of these requests' incarnation in the states of tags.
    incarnation: IncarnationNumber,
    /// By tag: one for each of the server's chunks that is used.
    chunks: KVVec<Chunk>,
    /// Nothing if there is no memory for it. Then all reads are registered, and writes are sent
    /// from their own memory.
    bounce: Option<BounceBuffers>,
    /// By tag: the pages that the session shares with other sessions, if it does.
    shared: SetOnce<MappedSendPages>,
    /// By connection.
    sent_by_policy: KVec<SentByPolicy>,
}

/// The memory that a path keeps for a tag: the server's chunk, and this end's memory for requests.
#[repr(align(64))]
struct Chunk {
    /// The address by which this path reaches the chunk.
    address: Atomic<u64>,
    /// Changes with every response if the server always invalidates. Only the owner of the tag
    /// reads the key, and only after the response that changed it.
    rkey: Atomic<u32>,
    /// The errno of the server's response, kept while the device still uses the data.
    result: Atomic<i32>,
    /// The user's header and the transport's message, as they are sent.
    message: MessageBuffer<Outgoing>,
    /// Maps the data. Registers it for the server, or for a write with more segments than the queue
    /// pair takes.
    region: MemoryRegion,
}

/// The requests in flight on one connection that [`Submission::add_by_policy`] has sent there.
///
/// Other requests are not counted: while a session has one path, no policy looks at the count, and
/// counting would cost each request two atomic operations.
///
/// Has a cache line of its own, as mostly the CPUs whose requests the connection carries touch it.
///
/// [`Submission::add_by_policy`]: crate::Submission::add_by_policy
#[repr(align(64))]
struct SentByPolicy(Atomic<i32>);

impl PathRequests {
    /// Allocates everything that the requests of a path need. Sleeps.
    ///
    /// `queue_depth` of the server's chunks are used. The data of a request touches at most
    /// `max_pages` pages of 4 KiB. The counters of the path are `stats`.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        tags: Arc<Tags>,
        accept: ConnAccept,
        queue_depth: u16,
        max_pages: u32,
        stats: Arc<Stats>,
    ) -> Result<Self> {
        let num_connections = stats.num_connections();
        let mut sent_by_policy = KVec::with_capacity(num_connections, GFP_KERNEL)?;
        for _ in 0..num_connections {
            sent_by_policy.push(SentByPolicy(Atomic::new(0)), GFP_KERNEL)?;
        }
        let depth = usize::from(queue_depth);
        let mut chunks = KVVec::with_capacity(depth, GFP_KERNEL)?;
        let messages = MessageBuffers::allocate(domain, depth, HEADER_BUFFER_SIZE)?;
        for (tag, message) in (0..u32::from(queue_depth)).zip(messages) {
            let chunk = Chunk {
                address: Atomic::new(0),
                rkey: Atomic::new(0),
                result: Atomic::new(0),
                message,
                region: MemoryRegion::new(domain, max_pages, tag)?,
            };
            chunks.push(chunk, GFP_KERNEL)?;
        }
        let bounce = BounceBuffers::new(domain, depth).ok();
        Ok(Self {
            layout: accept.layout().map_err(|_| ECONNRESET)?,
            accept,
            incarnation: tags.new_incarnation(),
            tags,
            stats,
            chunks,
            bounce,
            shared: SetOnce::new(),
            sent_by_policy,
        })
    }

    /// The most requests at a time, including service requests.
    pub(crate) fn queue_depth(&self) -> u32 {
        // `new` was asked for that many, which fits.
        self.chunks.len() as u32
    }

    /// Whether the server may respond to several requests in one message.
    pub(crate) fn takes_coalesced_responses(&self) -> bool {
        self.accept.features & FEATURE_COALESCED_RESPONSES != 0
    }

    /// Whether the server leaves the invalidation of registrations to the client. The client
    /// invalidates for less than a message.
    fn leaves_invalidation(&self) -> bool {
        self.accept.features & FEATURE_SHORT_RESPONSES != 0
    }

    /// Whether the server ends another path when it is asked on this path.
    pub(crate) fn ends_other_paths(&self) -> bool {
        self.accept.features & FEATURE_PATH_END != 0
    }

    /// Whether the server may send doorbells.
    pub(crate) fn takes_doorbells(&self) -> bool {
        self.accept.features & FEATURE_DOORBELL != 0
    }

    /// The requests in flight on `connection` that a policy has sent there. Any context.
    pub(crate) fn sent_by_policy_on(&self, connection: usize) -> i32 {
        self.sent_by_policy
            .get(connection)
            .map_or(0, |sent| sent.0.load(ordering::Relaxed))
    }

    /// The number by which the states of tags name this object.
    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation.number()
    }

    /// The requests in flight on all connections: the server has not responded to them, and the
    /// user has not abandoned them. Looks at every tag. Any context.
    pub(crate) fn in_flight(&self) -> usize {
        let states = self.tags.iter().map(|cell| cell.state());
        states
            .filter(|state| {
                let phase = self.incarnation.phase_of(*state);
                phase.is_some_and(Phase::awaits_response)
            })
            .count()
    }

    /// Changes the policy's count of a connection.
    #[inline(never)]
    fn change_policy_count(&self, connection: u16, change: i32) {
        if let Some(sent) = self.sent_by_policy.get(usize::from(connection & !FLAGS)) {
            sent.0.add(change, ordering::Relaxed);
        }
    }

    /// Adds `request`, which a policy sends here, to the policy's count. [`Self::left`] takes it
    /// out. Any context.
    pub(crate) fn add_to_policy_count(&self, request: &mut Request) {
        request.is_in_policy_count = true;
        self.change_policy_count(request.connection, 1);
    }

    /// Connection `cid` with the [`FLAGS`] of request `number`, which that connection carries: the
    /// form in which the state of the tag names it.
    fn cid_and_flags(&self, number: u32, cid: u16) -> u16 {
        let state = self.tags.get(number).map_or(FREE, |cell| cell.state());
        match self.incarnation.phase_of(state) {
            Some(_) => cid | (IncarnationNumber::connection_of(state) & FLAGS),
            None => cid,
        }
    }

    /// Lets the server write to the bounce buffers. The server can do so as soon as it gets
    /// anything that `queue_pair` sends afterwards.
    pub(crate) fn register_bounce_buffers<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
    ) -> Result {
        match &self.bounce {
            Some(bounce) => bounce.register(queue_pair),
            None => Ok(()),
        }
    }

    /// The buffer for the data of `request`, which has `len` bytes. Nothing if the data goes to or
    /// from its own memory.
    #[inline(always)]
    fn bounce(&self, request: &Request, len: usize) -> Option<&BounceBuffer> {
        self.bounce
            .as_ref()
            .filter(|_| request.connection != SERVICE_CID)?
            .get(request.tag(), len)
    }

    /// Maps `pages`, one for each tag, for the requests of the tags, unless pages are mapped
    /// already. Without memory for the mapping each request maps its page. Sleeps.
    pub(crate) fn share(&self, pages: &Arc<SendPages>) {
        let domain = self.chunks.first().map(|chunk| chunk.region.domain());
        if let (Some(domain), None) = (domain, self.shared.as_ref()) {
            if let Ok(mapped) = MappedSendPages::new(domain, pages) {
                self.shared.populate(mapped);
            }
        }
    }

    /// The tag's shared page with the data of `request`, if the data lies there.
    #[inline]
    pub(crate) fn shared_page(&self, request: &Request) -> Option<Sge> {
        let pages = self.shared.as_ref()?;
        let page = pages.sge(request.tag() as usize, &request.data)?;
        (request.data_len() <= self.accept.max_io_size as usize).then_some(page)
    }

    /// Notes the address and the key of chunk `index`. `EINVAL` beyond the queue depth.
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
}
