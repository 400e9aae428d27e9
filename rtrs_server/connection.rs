// SPDX-License-Identifier: GPL-2.0

//! One connection of a path: what its events and completions mean.

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
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    rdma::{
        cm,
        Handler,
        QueuePairRef,
        SendBatch,
        SendRoom,
        Status,
        WorkCompletion, //
    },
    sync::{
        box_slot::{
            BoxList,
            Linked, //
        },
        gate::Entered, //
    },
    workqueue::QueueHandle, //
};
use proto::rtrs::{
    Imm,
    FEATURE_COALESCED_RESPONSES,
    FEATURE_PATH_END, //
};

use crate::{
    path_core::{
        PathCore,
        PathEvents, //
    },
    send_queue::SendQueue,
    wr_kind::WrKind, //
};

/// After this many requests responses are sent and receives are posted, even if the burst goes on.
pub(crate) const MAX_BURST: u32 = 16;

/// What a connection hands on to the requests of its path. [`Self::received()`] is called only
/// where completions are handled, the other methods in any context; none may sleep.
pub(crate) trait PathRequests: Sized + Send + Sync + 'static {
    /// A request in flight.
    type Chunk: Send;

    /// A request came by connection `cid`; `payload` is the payload of its immediate.
    fn received(io: &Entered<Self>, cid: u16, payload: u32);

    /// The client has no access to chunk `id` any more.
    fn invalidated(io: &Entered<Self>, id: u32);

    /// Sends what `chunk` has waited to send: there is room, and a credit was taken.
    fn send(io: &Entered<Self>, queue_pair: &ConnectionRef<Self>, chunk: KBox<Linked<Self::Chunk>>);

    /// The queue pair of connection `cid`.
    fn queue_pair(&self, cid: u16) -> Option<&ConnectionRef<Self>>;

    /// Sends the responses to `chunks`, each of which only says that the request was carried out.
    fn send_collected(
        io: &Entered<Self>,
        queue_pair: &ConnectionRef<Self>,
        chunks: BoxList<Self::Chunk>,
    );
}

/// The queue pair of a connection, as handlers have it.
pub(crate) type ConnectionRef<R> = QueuePairRef<Connection<R>>;

/// The state of a burst, from its first completion to its end.
pub(crate) struct Burst<R: Send + Sync + 'static> {
    /// What requests need, from the first request on.
    entered: Option<Entered<R>>,
    /// Receives that have completed and are to be posted again.
    used_receives: u32,
}

impl<R: Send + Sync + 'static> Default for Burst<R> {
    fn default() -> Self {
        Self {
            entered: None,
            used_receives: 0,
        }
    }
}

/// Handles the events and completions of a connection's queue pair.
///
/// The connection holds its path, the path holds the queue pair, and the queue pair holds the
/// connection. Taking the path down breaks the cycle.
#[pin_data]
pub(crate) struct Connection<R: PathRequests> {
    path: Arc<PathCore<R>>,
    events: Arc<dyn PathEvents>,
    /// The number of the connection.
    cid: u16,
    /// The entries of the send queue that responses and invalidations may use.
    send_entries: u32,
    /// Receives posted. Those used in a burst are posted again only at its end, so `MAX_BURST`
    /// extra are posted.
    receives: u32,
    #[pin]
    send_queue: SendQueue<R::Chunk>,
    /// Sends the responses that a worker has collected.
    #[pin]
    send_work: Work<Self>,
}

impl_has_work! {
    impl{R: PathRequests} HasWork<Self> for Connection<R> { self.send_work }
}

impl<R: PathRequests> Connection<R> {
    /// Makes connection `cid` of a path: its queue pair has `send_entries` entries for responses
    /// and room for `receives` receives. The send queue is opened later. Sleeps.
    pub(crate) fn new(
        path: &Arc<PathCore<R>>,
        events: Arc<dyn PathEvents>,
        cid: u16,
        send_entries: u32,
        receives: u32,
    ) -> Result<Arc<Self>> {
        let coalesces = path.features() & FEATURE_COALESCED_RESPONSES != 0;
        Arc::pin_init(
            pin_init!(Self {
                path: path.clone(),
                events,
                cid,
                send_entries,
                receives,
                send_queue <- SendQueue::new(coalesces),
                send_work <- new_work!("rtrs_server::Connection::send_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The entries of the send queue that responses and invalidations may use.
    pub(crate) fn send_entries(&self) -> u32 {
        self.send_entries
    }

    /// Receives posted.
    pub(crate) fn receives(&self) -> u32 {
        self.receives
    }

    /// The path.
    #[inline]
    pub(crate) fn path(&self) -> &PathCore<R> {
        &self.path
    }

    /// The number of the connection.
    #[inline]
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// The send queue.
    #[inline]
    pub(crate) fn send_queue(&self) -> &SendQueue<R::Chunk> {
        &self.send_queue
    }

    /// Closes the path, in the background; false if it was being closed already. Any context.
    pub(crate) fn close(&self) -> bool {
        self.events.clone().close_path()
    }

    /// Closes the path since sending `what` failed.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_failed(&self, what: &str, error: Error) {
        pr_err_ratelimited!("<{}>: sending {} failed: {:?}\n", self.path, what, error);
        self.close();
    }

    /// Closes the path for a reason that is no error, and logs the reason once.
    fn close_because(&self, why: &str) {
        if self.close() {
            pr_info_ratelimited!(
                "<{}>: closing, connection {}: {}\n",
                self.path,
                self.cid,
                why
            );
        }
    }

    /// Sends the responses and invalidations that wait for room, as far as there is room. Any
    /// context.
    pub(crate) fn send_waiting(&self, io: &Entered<R>, queue_pair: &ConnectionRef<R>) {
        while let Some(chunk) = self.send_queue.next_waiting() {
            R::send(io, queue_pair, chunk);
        }
    }

    /// Sends an immediate that is no response, if there is room. Any context.
    ///
    /// Without room nothing is sent: the peer does not take earlier messages. So the peer gets no
    /// heartbeat either, and notices. If it asked for the end of a path, it asks again.
    pub(crate) fn send_immediate(&self, queue_pair: &ConnectionRef<R>, immediate: Imm) {
        if !self.send_queue.take_credit() {
            return;
        }
        let mut room = SendRoom::<1, 0>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        let signaled = self.send_queue.next_is_signaled();
        let sent = batch
            .imm_only(WrKind::Response.id(), signaled, immediate.encode())
            .and_then(|()| Ok(queue_pair.post(&mut batch)?));
        if let Err(error) = sent {
            self.send_failed("an immediate", error);
        }
    }

    /// Posts `used_receives` receives again, and sends the collected responses.
    #[inline(never)]
    fn catch_up(&self, queue_pair: &ConnectionRef<R>, io: &Entered<R>, used_receives: u32) {
        if let Err(error) = queue_pair.post_empty_recvs(WrKind::Receive.id(), used_receives) {
            pr_err_ratelimited!("<{}>: posting receives failed: {:?}\n", self.path, error);
            self.close();
        }
        self.send_collected(io, queue_pair);
    }

    /// Sends the collected responses. Any context.
    pub(crate) fn send_collected(&self, io: &Entered<R>, queue_pair: &ConnectionRef<R>) {
        if self.send_queue.has_collected() {
            R::send_collected(io, queue_pair, self.send_queue.take_collected());
        }
    }

    /// Collects responses until the calling work item ends or sleeps. That work item runs on
    /// `queue`, or on another queue of the same priority. Both queues run their work on the CPU
    /// where it is queued.
    ///
    /// A CPU takes up the next work item of such queues when the previous one has ended, or as soon
    /// as that one sleeps.
    pub(crate) fn collect_for_now(self: &Arc<Self>, queue: &QueueHandle) {
        if !self.send_queue.is_collecting() && self.send_queue.begin_burst() {
            // If the work is queued already, it is still to run. Queueing cannot fail otherwise:
            // the queue outlives all paths.
            let _ = queue.enqueue::<Self, 0>(self.clone());
        }
    }

    /// Handles an immediate.
    #[inline]
    fn immediate(&self, queue_pair: &ConnectionRef<R>, immediate: u32, burst: &mut Burst<R>) {
        self.path.heartbeat().received();
        if burst.entered.is_none() {
            burst.entered = self.path.enter();
        }
        let Some(io) = &burst.entered else {
            // The client was not yet told where to write, or the path is being taken down.
            self.close();
            return;
        };
        burst.used_receives = burst.used_receives.wrapping_add(1);
        if burst.used_receives >= MAX_BURST {
            self.catch_up(queue_pair, io, burst.used_receives);
            burst.used_receives = 0;
        }
        match Imm::decode(immediate) {
            Imm::IoReq { payload } => R::received(io, self.cid, payload),
            other => self.other_immediate(queue_pair, other),
        }
    }

    /// Handles an immediate that is no request.
    #[cold]
    #[inline(never)]
    fn other_immediate(&self, queue_pair: &ConnectionRef<R>, immediate: Imm) {
        match immediate {
            Imm::HbMsg => self.send_immediate(queue_pair, Imm::HbAck),
            Imm::HbAck => self.path.heartbeat().acknowledged(),
            Imm::PathEnd { path } if self.path.features() & FEATURE_PATH_END != 0 => {
                self.events.clone().end_of_path(path);
            }
            _ => pr_err_ratelimited!("<{}>: unknown immediate received\n", self.path),
        }
    }

    /// Sends waiting requests, since the send queue has room again.
    fn send_with_new_credits(&self, queue_pair: &ConnectionRef<R>) {
        if self.send_queue.has_waiting() {
            if let Some(io) = self.path.enter() {
                self.send_waiting(&io, queue_pair);
            }
        }
    }

    /// Closes the path, since a work request failed.
    #[cold]
    #[inline(never)]
    fn failed(&self, kind: WrKind, status: Status) {
        match status {
            Status::Success => {}
            // Closing a path flushes its queues, too. But a device may also stop a queue pair
            // without any other error.
            Status::Flushed => self.close_because("the queue pair has failed"),
            Status::Error(error) => {
                pr_err_ratelimited!(
                    "<{}>: {} failed: {}\n",
                    self.path,
                    kind.as_str(),
                    error.text()
                );
                self.close();
            }
        }
    }

    /// Closes the path: no client sends such a message.
    #[cold]
    #[inline(never)]
    fn unexpected_message(&self) {
        pr_err_ratelimited!("<{}>: unexpected message received\n", self.path);
        self.close();
    }
}

impl<R: PathRequests> WorkItem for Connection<R> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.send_queue.end_burst();
        // If the path is being taken down, `Path::take_down()` releases the responses.
        if let Some(io) = this.path.enter() {
            if let Some(queue_pair) = io.queue_pair(this.cid) {
                this.send_collected(&io, queue_pair);
            }
        }
    }
}

impl<R: PathRequests> cm::EventHandler for Connection<R> {
    fn event(&self, event: cm::Event<'_>) {
        let (what, status) = match event {
            cm::Event::Disconnected => return self.close_because("disconnected"),
            cm::Event::AddressChange => return self.close_because("the address changed"),
            cm::Event::TimewaitExit => return self.close_because("the connection has ended"),
            cm::Event::DeviceRemoval => {
                return self.close_because("the RDMA device is being removed");
            }
            cm::Event::Rejected { status, .. } => ("rejected", status),
            cm::Event::ConnectError { status } => ("connect error", status),
            cm::Event::Unreachable { status } => ("unreachable", status),
            cm::Event::Established { .. } => return self.events.confirmed(),
            _ => return,
        };
        pr_err_ratelimited!(
            "<{}>: connection {} failed: {}, status {}\n",
            self.path,
            self.cid,
            what,
            status
        );
        self.close();
    }
}

impl<R: PathRequests> Handler for Connection<R> {
    type Burst = Burst<R>;

    #[inline]
    fn burst_begins(&self) {
        self.send_queue.begin_burst();
    }

    #[inline(always)]
    fn completion(
        &self,
        queue_pair: &QueuePairRef<Self>,
        wc: &WorkCompletion<'_>,
        burst: &mut Burst<R>,
    ) {
        let kind = WrKind::of(wc.wr_id());
        if !wc.is_success() {
            return self.failed(kind, wc.status());
        }
        match kind {
            WrKind::Receive => match wc.written_imm() {
                Some(immediate) => self.immediate(queue_pair, immediate, burst),
                None => self.unexpected_message(),
            },
            WrKind::InfoRequest => self.events.clone().info_received(wc.byte_len()),
            WrKind::Response => {
                self.send_queue.responses_sent();
                self.send_with_new_credits(queue_pair);
            }
            WrKind::Invalidate(chunk) => {
                self.send_queue.give_credits(1);
                self.send_with_new_credits(queue_pair);
                if let Some(io) = self.path.enter() {
                    R::invalidated(&io, chunk);
                }
            }
            WrKind::AuthRequest => self.events.clone().auth_received(wc.byte_len()),
            WrKind::AuthResponse | WrKind::InfoResponse => self.events.clone().answered(),
            WrKind::Registration => self.events.clone().registered(),
            WrKind::Unsignaled => {}
        }
    }

    #[inline]
    fn burst_ends(&self, queue_pair: &QueuePairRef<Self>, burst: Burst<R>) {
        self.send_queue.end_burst();
        if burst.used_receives == 0 && !self.send_queue.has_collected() {
            return;
        }
        // If the path is being taken down, no client waits for receives or responses.
        if let Some(io) = burst.entered.or_else(|| self.path.enter()) {
            self.catch_up(queue_pair, &io, burst.used_receives);
        }
    }
}
