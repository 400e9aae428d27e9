// SPDX-License-Identifier: GPL-2.0

//! Connections with both ends on one machine. The tests need an RDMA device with an IPv4 address.

#[path = "rdma/completion.rs"]
mod completion;
#[path = "rdma/connection.rs"]
mod connection;
#[path = "rdma/memory.rs"]
mod memory;

use super::{
    client,
    cm::{
        ConnectionParameters,
        Event,
        EventHandler,
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
    prelude::*,
    sync::{
        box_slot::BoxSlot,
        completion::Completion,
        set_once::SetOnce, //
    }, //
};
use kernel::{
    new_mutex,
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

/// The name under which resources are listed.
const OWNER: &CStr = c"rtrs_test";

/// A port that no other program uses.
const PORT: u16 = 54321;

/// The time limit of each step, in milliseconds; debug kernels are slow.
const PATIENCE: u32 = 20_000;

/// Enough for the requests of all tests.
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

/// One end of a connection: counts its events and completions, and keeps data of the last one.
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
    /// The first byte of the private data at the end of the handshake.
    answer: Atomic<u32>,
    imm: Atomic<u32>,
    length: Atomic<u32>,
    invalidated: Atomic<u32>,
    last: Atomic<u32>,
    /// The key of the region whose request has completed last.
    region: Atomic<u32>,
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
                region: Atomic::new(0),
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

impl EventHandler for Peer {
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
}

impl Handler for Peer {
    type Burst = ();

    fn completion(
        &self,
        queue_pair: &QueuePairRef<Self>,
        completion: &WorkCompletion<'_>,
        _burst: &mut (),
    ) {
        self.last.store(completion.wr_id().0, ordering::Relaxed);
        if let Some(own) = self.own.take() {
            // In a handler this does nothing.
            assert_eq!(own.drain(), Err(EDEADLK));
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
        queue_pair.note_invalidation(completion);
        if self.noisy.load(ordering::Relaxed) {
            let _ = queue_pair.post_empty_recvs(RECEIVE, 1);
            let _ = post(queue_pair, |batch| batch.imm_only(REQUEST, true, 7));
        }
        self.received.complete();
    }

    fn region_completed(&self, _: &QueuePairRef<Self>, key: u32, completion: &WorkCompletion<'_>) {
        if completion.is_success() {
            self.region.store(key, ordering::Relaxed);
            self.finished.complete();
        }
    }
}

/// The reaction of a listener to a request.
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
    /// The listening id, for a handler that asks for the id's address.
    own: BoxSlot<Id<Self>>,
    /// Whether the handler got the address.
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
            // The connecting end may learn of the connection before `accepted` is set, so it waits
            // for the lock.
            let mut accepted = self.accepted.lock();
            queue_pair.accept(b"A", &ConnectionParameters::default())?;
            *accepted = Some(queue_pair);
        }
        Ok(())
    }
}

impl EventHandler for Listener {
    fn event(&self, event: Event<'_>) {
        if let Event::ConnectRequest { id, .. } = event {
            if let Err(error) = self.request(id) {
                pr_err!("a request failed: {}\n", error.to_errno());
            }
        }
    }
}

/// A client that finds the address of a device.
struct Finder(Atomic<u32>);

crate::rdma_client!(Finder);

impl client::Client for Finder {
    const NAME: &'static CStr = c"rtrs_test";

    fn add(&self, device: &Device) -> Result {
        for index in 0..16 {
            let mut gid = bindings::ib_gid::default();
            // SAFETY: The device is valid. The function refuses an index that does not exist.
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

/// Connects. A failure comes with the first byte of the peer's reason.
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

/// Both ends of a connection; a listener accepts it.
fn pair(context: PollContext) -> Result<(QueuePair<Peer>, QueuePair<Peer>)> {
    let (listener, _id) = Listener::new(Reaction::Accept)?;
    let near = connect(PORT, context).map_err(|(error, _)| error)?;
    let far = listener.accepted.lock().take().ok_or(ENOTCONN)?;
    far.handler().progress()?;
    Ok((near, far))
}

/// Waits for `event` on an end. Polls the completion queue if it is a [`PollContext::Direct`] one.
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

/// Posts the requests that `add` adds to an empty batch.
fn post(
    queue_pair: &QueuePairRef<Peer>,
    add: impl FnOnce(&mut SendBatch<'_, 3, 8>) -> Result,
) -> Result {
    let mut room = SendRoom::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    add(&mut batch)?;
    Ok(queue_pair.post(&mut batch)?)
}

/// As [`post()`], and waits for the last request, which must be signalled.
fn run(
    queue_pair: &QueuePair<Peer>,
    add: impl FnOnce(&mut SendBatch<'_, 3, 8>) -> Result,
) -> Result {
    post(queue_pair, add)?;
    wait(queue_pair, |peer| &peer.finished)
}

const CONTEXTS: [PollContext; 2] = [PollContext::Softirq, PollContext::Direct];
