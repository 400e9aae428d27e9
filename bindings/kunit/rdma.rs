// SPDX-License-Identifier: GPL-2.0

//! Two ends on one machine: needs an RDMA device with an IPv4 address.

use super::{
    client,
    cm::{
        ConnectionParameters,
        Event,
        Handler,
        Id,
        NewId,
        PortSpace, //
    },
    *,
};
use crate::{
    bindings,
    net::{
        socket_address::SocketAddress,
        Namespace, //
    },
    page::buffer::PageBuffer,
    rdma::{
        chunk::{
            ChunkSet,
            MappedChunks, //
        },
        message_buffers::MessageBuffers, //
    },
    scatterlist::ScatterTable,
    sync::{
        box_slot::BoxSlot,
        completion::Completion,
        set_once::SetOnce, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// What resources are listed under.
const OWNER: &CStr = c"rtrs_test";

/// A port that nobody else uses.
const PORT: u16 = 54321;

/// How long anything may take, in milliseconds; debug kernels are slow.
const PATIENCE: u32 = 20_000;

/// Enough for what is in flight below.
const CAPABILITIES: Capabilities = Capabilities {
    max_send_wr: 32,
    max_recv_wr: 32,
    max_send_sge: 8,
    max_recv_sge: 1,
};

/// Entries of a completion queue: both queues of a queue pair.
const COMPLETIONS: u32 = CAPABILITIES.max_send_wr + CAPABILITIES.max_recv_wr;

const WORK_IDS: u32 = 64;
const RECEIVE: WrId = WrId(63);
const REQUEST: WrId = WrId(62);

/// One end of a connection: counts what happens and keeps the last of it.
#[pin_data]
struct Peer {
    #[pin]
    progress: Completion,
    #[pin]
    received: Completion,
    #[pin]
    finished: Completion,
    #[pin]
    disconnected: Completion,
    /// The errno of a connection that failed, or 0.
    error: Atomic<i32>,
    /// The first byte of what came with the end of the handshake.
    answer: Atomic<u32>,
    imm: Atomic<u32>,
    length: Atomic<u32>,
    invalidated: Atomic<u32>,
    last: Atomic<u32>,
    failed: Atomic<u32>,
    flushed: Atomic<u32>,
    /// Whether to keep on posting in the completion handler.
    noisy: Atomic<bool>,
    /// The queue pair of this end, for a completion handler that ends it.
    own: BoxSlot<QueuePair<Self>>,
    queue: SetOnce<Arc<CompletionQueue>>,
}

impl Peer {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                progress <- Completion::new(),
                received <- Completion::new(),
                finished <- Completion::new(),
                disconnected <- Completion::new(),
                error: Atomic::new(0),
                answer: Atomic::new(0),
                imm: Atomic::new(0),
                length: Atomic::new(0),
                invalidated: Atomic::new(0),
                last: Atomic::new(0),
                failed: Atomic::new(0),
                flushed: Atomic::new(0),
                noisy: Atomic::new(false),
                own: BoxSlot::empty(),
                queue: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn fail(&self, error: i32) {
        self.error.store(error, ordering::Relaxed);
        self.progress.complete();
    }

    /// Waits for the next step of the handshake.
    fn progress(&self) -> Result {
        self.progress
            .wait_timeout(PATIENCE)
            .map_err(|_| ETIMEDOUT)?;
        match self.error.load(ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Error::from_errno(error)),
        }
    }
}

impl Handler for Peer {
    type Burst = ();

    fn event(&self, event: Event<'_>) {
        match event {
            Event::AddressResolved | Event::RouteResolved => self.progress.complete(),
            Event::Established { private_data } => {
                let answer = private_data.first().copied().unwrap_or(0);
                self.answer.store(u32::from(answer), ordering::Relaxed);
                self.progress.complete();
            }
            Event::Rejected { private_data, .. } => {
                let answer = private_data.first().copied().unwrap_or(0);
                self.answer.store(u32::from(answer), ordering::Relaxed);
                self.fail(ECONNREFUSED.to_errno());
            }
            Event::AddressError { status }
            | Event::RouteError { status }
            | Event::ConnectError { status }
            | Event::Unreachable { status } => self.fail(status.min(-1)),
            Event::Disconnected => self.disconnected.complete_all(),
            _ => {}
        }
    }

    fn completion(
        &self,
        queue_pair: &QueuePairRef<Self>,
        completion: &WorkCompletion<'_>,
        _burst: &mut (),
    ) {
        self.last.store(completion.wr_id().0, ordering::Relaxed);
        if let Some(own) = self.own.take() {
            // Does nothing, in here.
            own.drain();
            drop(self.own.put(own));
        }
        let is_receive = match completion.status() {
            Status::Success => matches!(
                completion.opcode(),
                Some(Opcode::Receive | Opcode::ReceiveRdmaWithImm)
            ),
            Status::Flushed => {
                self.flushed.add(1, ordering::Relaxed);
                if self.noisy.load(ordering::Relaxed) {
                    let _ = queue_pair.post_empty_recvs(RECEIVE, 1);
                }
                return;
            }
            Status::Error(_) => {
                self.failed.add(1, ordering::Relaxed);
                false
            }
        };
        if !is_receive {
            return self.finished.complete();
        }
        self.imm
            .store(completion.imm().unwrap_or(0), ordering::Relaxed);
        self.length.store(completion.byte_len(), ordering::Relaxed);
        self.invalidated.store(
            completion.invalidated_rkey().unwrap_or(0),
            ordering::Relaxed,
        );
        if self.noisy.load(ordering::Relaxed) {
            let mut chain = SendChain::<1>::new();
            let _ = queue_pair.post_empty_recvs(RECEIVE, 1);
            let _ = chain.imm_only(REQUEST, true, 7);
            let _ = queue_pair.post(chain);
        }
        self.received.complete();
    }
}

/// What a listener does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Accept,
    Refuse,
    Ignore,
    DropInside,
    AskItself,
}

#[pin_data]
struct Listener {
    reaction: Reaction,
    #[pin]
    accepted: Mutex<Option<QueuePair<Peer>>>,
    /// The listening id, for a handler that asks for its address.
    own: BoxSlot<Id<Self>>,
    /// What it was told.
    asked: Atomic<bool>,
}

impl Listener {
    fn new(reaction: Reaction) -> Result<(Arc<Self>, Id<Self>)> {
        let this = Arc::pin_init(
            pin_init!(Self {
                reaction,
                accepted <- new_mutex!(None),
                own: BoxSlot::empty(),
                asked: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        let mut id = Id::new(this.clone(), Namespace::init(), PortSpace::Tcp, OWNER)?;
        id.bind(&SocketAddress::v6([0; 16], PORT))?;
        id.listen(8)?;
        Ok((this, id))
    }

    fn request(&self, id: NewId<'_>) -> Result {
        match self.reaction {
            Reaction::Refuse => return id.reject(b"R"),
            Reaction::Ignore => return Ok(()),
            Reaction::AskItself => {
                let own = self.own.take().ok_or(EINVAL)?;
                let asked = own.local_address().host().is_some();
                self.asked.store(asked, ordering::Relaxed);
                drop(self.own.put(own));
                return Ok(());
            }
            Reaction::Accept | Reaction::DropInside => {}
        }
        let domain = ProtectionDomain::new(id.device(), OWNER)?;
        let completions =
            CompletionQueue::new(id.device(), OWNER, COMPLETIONS, 1, PollContext::Softirq)?;
        let mut queue_pair = id
            .take(Peer::new()?)?
            .create_queue_pair(&domain, &completions, &CAPABILITIES, WORK_IDS)
            .map_err(|(_, error)| error)?;
        queue_pair.post_empty_recvs(RECEIVE, 16)?;
        if self.reaction == Reaction::Accept {
            // Who connects may be told before this goes on, and then waits for it.
            let mut accepted = self.accepted.lock();
            queue_pair.accept(b"A", &ConnectionParameters::default())?;
            *accepted = Some(queue_pair);
        }
        Ok(())
    }
}

impl Handler for Listener {
    type Burst = ();

    fn event(&self, event: Event<'_>) {
        if let Event::ConnectRequest { id, .. } = event {
            if let Err(error) = self.request(id) {
                pr_err!("a request failed: {}\n", error.to_errno());
            }
        }
    }
}

/// Finds the address of a device.
struct Finder(Atomic<u32>);

crate::rdma_client!(Finder);

impl client::Client for Finder {
    const NAME: &'static CStr = c"rtrs_test";

    fn add(&self, device: &Device) -> Result {
        for index in 0..16 {
            let mut gid = bindings::ib_gid::default();
            // SAFETY: The device is valid; others than existing indices are refused.
            let error = unsafe { bindings::rdma_query_gid(device.as_raw(), 1, index, &mut gid) };
            // SAFETY: All views of a GID are plain bytes.
            let raw = unsafe { gid.raw };
            if let ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d], 0) = (*raw, error) {
                self.0
                    .store(u32::from_be_bytes([a, b, c, d]), ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn remove(&self, _device: &Device) {}
}

fn address(port: u16) -> Result<SocketAddress> {
    let finder = Arc::new(Finder(Atomic::new(0)), GFP_KERNEL)?;
    drop(client::Registration::new(finder.clone())?);
    let address = finder.0.load(ordering::Relaxed);
    if address == 0 {
        pr_err!("there is no RDMA device with an IPv4 address\n");
        return Err(ENODEV);
    }
    Ok(SocketAddress::v4(address.to_be_bytes(), port))
}

/// Connects; with the failure comes the first byte of the peer's reason.
fn connect(port: u16, context: PollContext) -> Result<QueuePair<Peer>, (Error, u32)> {
    let peer = Peer::new().map_err(|error| (error, 0))?;
    let connect = || {
        let mut id = Id::new(peer.clone(), Namespace::init(), PortSpace::Tcp, OWNER)?;
        id.resolve_address(None, &address(port)?, PATIENCE)?;
        peer.progress()?;
        let device = id.device().ok_or(ENODEV)?;
        let domain = ProtectionDomain::new(device, OWNER)?;
        let completions = CompletionQueue::new(device, OWNER, COMPLETIONS, 0, context)?;
        peer.queue.populate(completions.clone());
        id.resolve_route(PATIENCE)?;
        peer.progress()?;
        let mut queue_pair = id
            .create_queue_pair(&domain, &completions, &CAPABILITIES, WORK_IDS)
            .map_err(|(_, error)| error)?;
        queue_pair.connect(b"C", &ConnectionParameters::default())?;
        peer.progress()?;
        Ok(queue_pair)
    };
    connect().map_err(|error| (error, peer.answer.load(ordering::Relaxed)))
}

/// A connection with a server that takes part by itself.
fn pair(context: PollContext) -> Result<(QueuePair<Peer>, QueuePair<Peer>)> {
    let (listener, _id) = Listener::new(Reaction::Accept)?;
    let near = connect(PORT, context).map_err(|(error, _)| error)?;
    let far = listener.accepted.lock().take().ok_or(ENOTCONN)?;
    far.handler().progress()?;
    Ok((near, far))
}

/// Waits for `event` on an end, polling if that is what its queue needs.
fn wait(queue_pair: &QueuePair<Peer>, event: impl Fn(&Peer) -> &Completion) -> Result {
    let queue = queue_pair.completion_queue();
    let event = event(queue_pair.handler());
    if queue.context() == PollContext::Direct {
        for _ in 0..PATIENCE * 10 {
            if event.is_done() {
                break;
            }
            queue.process_direct(16);
            fsleep(Delta::from_micros(100));
        }
    }
    event.wait_timeout(PATIENCE).map_err(|_| ETIMEDOUT)
}

/// Posts `chain`, whose last request is signaled, and waits for it.
fn run<const N: usize>(queue_pair: &QueuePair<Peer>, chain: SendChain<'_, N>) -> Result {
    queue_pair.post(chain)?;
    wait(queue_pair, |peer| &peer.finished)
}

const CONTEXTS: [PollContext; 2] = [PollContext::Softirq, PollContext::Direct];

/// Registers the chunks of `set` at one end and writes to chunk 1 from scattered pieces of the
/// other's.
fn write(near: &QueuePair<Peer>, far: &QueuePair<Peer>) -> Result {
    let size = 17 * 4096;
    let set = ChunkSet::new(2, size, -1, None)?;
    let chunks = MappedChunks::new(far.domain(), &set)?;
    let region = chunks.region(0, 2)?;
    let mut chain = SendChain::<1>::new();
    chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
    run(far, chain)?;

    let source = ChunkSet::new(2, size, -1, None)?;
    let pieces = [(0, 100, 5000), (1, 60_000, 9000), (0, 50_000, 1)];
    let mapped = MappedChunks::new(near.domain(), &source)?;
    let mut sges = SgeList::<8>::new();
    let mut expected = KVec::new();
    for (i, (index, offset, len)) in pieces.into_iter().enumerate() {
        let bytes = KVec::from_elem(i as u8 + 1, len, GFP_KERNEL)?;
        source.copy_in(index, offset, &bytes)?;
        mapped.sync_for_device(index, offset, len)?;
        assert_eq!(mapped.add_sges(index, offset, len, &mut sges, 8), Ok(len));
        assert_eq!(chunks.add_sges(index, 0, 1, &mut sges, 8), Err(EINVAL));
        expected.extend_from_slice(&bytes, GFP_KERNEL)?;
    }
    let remote = RemoteMemory {
        address: region.iova() + size as u64 + 3,
        rkey: region.rkey(),
    };
    let mut chain = SendChain::<1>::new();
    chain.rdma_write_with_imm(REQUEST, true, &sges, remote, 0xfeed_beef)?;
    run(near, chain)?;
    wait(far, |peer| &peer.received)?;
    assert_eq!(far.handler().imm.load(ordering::Relaxed), 0xfeed_beef);
    assert_eq!(
        far.handler().length.load(ordering::Relaxed) as usize,
        expected.len()
    );

    chunks.sync_for_cpu(1, 3, expected.len())?;
    let mut found = KVec::from_elem(9u8, expected.len() + 4, GFP_KERNEL)?;
    set.copy_out(1, 0, &mut found)?;
    assert!(found[3..expected.len() + 3] == expected[..]);
    assert!(found[..3] == [0; 3] && found[expected.len() + 3] == 0);

    // With the key gone, so is the access.
    let mut chain = SendChain::<1>::new();
    chain.local_invalidate(REQUEST, true, region.rkey())?;
    run(far, chain)?;
    sges.truncate(1);
    let mut chain = SendChain::<1>::new();
    chain.rdma_write(REQUEST, true, &sges, remote)?;
    assert_eq!(far.post(chain), Err(EINVAL));
    let mut chain = SendChain::<1>::new();
    chain.rdma_write(REQUEST, true, &sges, remote)?;
    run(near, chain)?;
    assert_eq!(near.handler().failed.load(ordering::Relaxed), 1);
    Ok(())
}

#[kunit_tests(rnbd_rdma)]
mod cases {
    use super::*;

    #[test]
    fn write_from_pieces() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            write(&near, &far)?;
        }
        Ok(())
    }

    #[test]
    fn read_into_a_page_and_invalidate() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let mut table = ScatterTable::new(2)?;
            table.set_buffer(PageBuffer::new()?, 4096)?;
            let region = MemoryRegion::new(near.domain(), 2)?;
            assert_eq!(region.map(&table), Err(EINVAL));
            table.map(near.domain(), Direction::FromDevice)?;
            assert_eq!(table.map(near.domain(), Direction::FromDevice), Err(EBUSY));
            // What the device may use stays.
            table.clear();
            assert!(table.take_buffer().is_none());
            assert_eq!(table.set_buffer(PageBuffer::new()?, 1), Err(EBUSY));
            assert!(table.is_mapped());
            region.map(&table)?;
            assert_eq!(region.map(&table), Err(EBUSY));
            let receives = MessageBuffers::allocate(near.domain(), 2, 100)?;
            for (i, buffer) in receives.iter().enumerate() {
                near.post_recv(WrId(i as u32), buffer)?;
                assert_eq!(far.post_recv(WrId(i as u32), buffer), Err(EINVAL));
            }
            let mut chain = SendChain::<1>::new();
            chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
            run(&near, chain)?;

            let messages = MessageBuffers::allocate(far.domain(), 2, 100)?;
            messages[1].copy_in(0, &[0x55; 100])?;
            assert_eq!(messages[1].copy_in(8, &[0; 93]), Err(EINVAL));
            assert_eq!(messages[1].copy_in(usize::MAX, &[0; 2]), Err(EINVAL));
            assert_eq!(messages[1].sge(101).map(|_| ()), Err(EINVAL));
            let data = SgeList::from(messages[1].sge(100)?);
            let text = SgeList::from(messages[1].sge(10)?);
            let remote = RemoteMemory {
                address: region.iova() + 4000 - 4,
                rkey: region.rkey(),
            };
            let mut chain = SendChain::<3>::new();
            chain.rdma_write(REQUEST, false, &data, remote)?;
            chain.send_with_invalidate(REQUEST, false, region.rkey())?;
            chain.send_with_imm(REQUEST, true, &text, 5)?;
            run(&far, chain)?;
            wait(&near, |peer| &peer.received)?;
            wait(&near, |peer| &peer.received)?;

            let peer = near.handler();
            assert_eq!(peer.imm.load(ordering::Relaxed), 5);
            assert_eq!(peer.length.load(ordering::Relaxed), 10);
            assert_eq!(peer.last.load(ordering::Relaxed), 1);
            let mut bytes = [0; 10];
            receives[1].copy_out(&mut bytes)?;
            assert_eq!(bytes, [0x55; 10]);
            assert_eq!(table.unmap(far.domain()), Err(EINVAL));
            table.unmap(near.domain())?;
            assert!(!table.is_mapped());
            let page = table.take_buffer().ok_or(EINVAL)?;
            let mut bytes = [0; 100];
            page.read(3996, &mut bytes)?;
            assert_eq!(bytes, [0x55; 100]);
            region.release();
            // The device may still know the page, which is not the region's any more.
            let mut chain = SendChain::<1>::new();
            let again = chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite);
            assert_eq!(again, Err(EINVAL));
            assert!(region.is_empty() && region.sge().is_err());
        }
        Ok(())
    }

    #[test]
    fn refused_with_a_reason() -> Result {
        for (reaction, answer) in [(Reaction::Refuse, b'R'), (Reaction::Ignore, 0)] {
            let (_listener, _id) = Listener::new(reaction)?;
            let result = connect(PORT, PollContext::Softirq).map(|_| ());
            assert!(result == Err((ECONNREFUSED, u32::from(answer))));
        }
        Ok(())
    }

    #[test]
    fn nobody_listens() {
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
    }

    #[test]
    fn dropped_in_its_own_event_handler() -> Result {
        let (_listener, _id) = Listener::new(Reaction::DropInside)?;
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
        Ok(())
    }

    #[test]
    fn a_listener_may_ask_for_its_address_in_its_own_handler() -> Result {
        let (listener, id) = Listener::new(Reaction::AskItself)?;
        assert!(listener.own.put(KBox::new(id, GFP_KERNEL)?).is_none());
        let result = connect(PORT, PollContext::Softirq).map(|_| ());
        assert!(result == Err((ECONNREFUSED, 0)));
        assert!(listener.asked.load(ordering::Relaxed));
        drop(listener.own.take());
        Ok(())
    }

    #[test]
    fn a_handler_that_waits_for_itself_does_not_wait() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            let peer = near.handler().clone();
            near.post_empty_recvs(RECEIVE, 1)?;
            assert!(peer.own.put(KBox::new(near, GFP_KERNEL)?).is_none());
            let mut chain = SendChain::<1>::new();
            chain.imm_only(REQUEST, true, 1)?;
            far.post(chain)?;
            if context == PollContext::Direct {
                let queue = peer.queue.as_ref().ok_or(EINVAL)?;
                while !peer.received.is_done() {
                    queue.process_direct(16);
                    fsleep(Delta::from_micros(100));
                }
            } else {
                peer.received
                    .wait_timeout(PATIENCE)
                    .map_err(|_| ETIMEDOUT)?;
            }
            drop(peer.own.take());
        }
        Ok(())
    }

    #[test]
    fn the_other_end_notices() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        drop(far);
        near.handler()
            .disconnected
            .wait_timeout(PATIENCE)
            .map_err(|_| ETIMEDOUT)
    }

    #[test]
    fn everything_in_flight_completes() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            near.post_empty_recvs(RECEIVE, 10)?;
            let peer = near.handler().clone();
            drop(near);
            assert_eq!(peer.flushed.load(ordering::Relaxed), 10);
            drop(far);
        }
        Ok(())
    }

    #[test]
    fn handlers_that_post_while_draining() -> Result {
        for context in CONTEXTS {
            let (near, far) = pair(context)?;
            for end in [&near, &far] {
                end.handler().noisy.store(true, ordering::Relaxed);
            }
            near.post_empty_recvs(RECEIVE, 16)?;
            for _ in 0..8 {
                let mut chain = SendChain::<1>::new();
                chain.imm_only(REQUEST, true, 1)?;
                near.post(chain)?;
            }
            wait(&far, |peer| &peer.received)?;
            wait(&near, |peer| &peer.received)?;
            drop(near);
            drop(far);
        }
        Ok(())
    }

    #[test]
    fn full_queues_are_drained() -> Result {
        for context in CONTEXTS {
            let (near, _far) = pair(context)?;
            near.disconnect();
            let mut posted = 0;
            // Until the driver has no room, or the completion queue may have none for what nobody
            // has polled.
            while near.post_empty_recvs(RECEIVE, 1).is_ok() {
                posted += 1;
                let flushed = near.handler().flushed.load(ordering::Relaxed);
                if flushed > 1000 || posted - flushed >= COMPLETIONS {
                    break;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn regions_stay_with_their_domain() -> Result {
        let (near, far) = pair(PollContext::Softirq)?;
        let chunks = MappedChunks::new(near.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let region = chunks.region(0, 1)?;
        let other = MappedChunks::new(far.domain(), &ChunkSet::new(1, 4096, -1, None)?)?;
        let other = other.region(0, 1)?;
        let mut chain = SendChain::<2>::new();
        chain.reg_mr(REQUEST, true, &region, Access::RemoteWrite)?;
        let wrong = chain.reg_mr(REQUEST, true, &other, Access::RemoteWrite);
        assert_eq!(wrong, Err(EINVAL));
        assert_eq!(far.post(chain), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn memory_is_used_one_way() -> Result {
        let (near, _far) = pair(PollContext::Softirq)?;
        let domain = near.domain();
        let chunks = MappedChunks::new(domain, &ChunkSet::new(1, 4096, -1, None)?)?;
        let region = MemoryRegion::new(domain, 2)?;
        for (permitted, other) in [
            (Direction::ToDevice, Direction::FromDevice),
            (Direction::FromDevice, Direction::ToDevice),
        ] {
            let is_sent = permitted == Direction::ToDevice;
            let mut table = ScatterTable::new(2)?;
            table.set_buffer(PageBuffer::new()?, 4096)?;
            table.permit(permitted);
            assert_eq!(table.copy_to_chunk(&chunks, 0).is_ok(), is_sent);
            assert_eq!(table.copy_from_chunk(&chunks, 0).is_ok(), !is_sent);
            assert_eq!(table.map(domain, other), Err(EINVAL));
            assert_eq!(table.map(domain, Direction::Bidirectional), Err(EINVAL));
            table.map(domain, permitted)?;
            let mut sges = SgeList::<2>::new();
            assert_eq!(table.add_sges(domain, &mut sges, 2), is_sent);
            region.map(&table)?;
            assert_eq!(region.len(), 4096);
            assert_eq!(region.sge().is_ok(), is_sent);
            let mut chain = SendChain::<3>::new();
            let mut give = |access| chain.reg_mr(REQUEST, false, &region, access);
            assert_eq!(give(Access::RemoteWrite).is_ok(), !is_sent);
            assert_eq!(give(Access::RemoteRead).is_ok(), is_sent);
            assert_eq!(give(Access::Local), Ok(()));
            region.release();
            table.unmap(domain)?;
        }
        Ok(())
    }

    #[test]
    fn completion_queues_do_not_overflow() -> Result {
        let peer = Peer::new()?;
        let mut id = Id::new(peer.clone(), Namespace::init(), PortSpace::Tcp, OWNER)?;
        assert!(id.device().is_none());
        id.resolve_address(None, &address(PORT)?, PATIENCE)?;
        peer.progress()?;
        let device = id.device().ok_or(ENODEV)?;
        let domain = ProtectionDomain::new(device, OWNER)?;
        let small = CompletionQueue::new(device, OWNER, COMPLETIONS - 1, 0, PollContext::Softirq)?;
        let Err((id, error)) = id.create_queue_pair(&domain, &small, &CAPABILITIES, WORK_IDS)
        else {
            return Err(EINVAL);
        };
        assert_eq!(error, EINVAL);
        let device = id.device().ok_or(ENODEV)?;
        let large = CompletionQueue::new(device, OWNER, COMPLETIONS, 0, PollContext::Softirq)?;
        assert!(id
            .create_queue_pair(&domain, &large, &CAPABILITIES, WORK_IDS)
            .is_ok());
        Ok(())
    }
}
