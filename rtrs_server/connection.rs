// SPDX-License-Identifier: GPL-2.0

//! One connection of a path: what its events and completions mean.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    rdma::{
        cm,
        Opcode,
        QueuePairRef,
        SendChain,
        Status,
        WorkCompletion, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        box_slot::{
            BoxList,
            BoxStack, //
        },
        gate::{
            Entered,
            EnteredSlot, //
        }, //
    },
    time, //
};
use proto::rtrs::{
    Imm,
    FEATURE_COALESCED_RESPONSES,
    FEATURE_PATH_END,
    FEATURE_SHORT_RESPONSES, //
};
use rtrs_core::connection::SignalInterval;

use crate::{
    path::Path,
    path_chunk::{
        ChunkBox,
        PathChunk, //
    },
    path_io::PathIo,
    waiting::Waiting,
    work::WorkKind, //
};

/// What the queue pair of a connection reports to.
///
/// It holds the path, and the path holds the queue pair, which holds this: the path breaks the
/// cycle when it is closed.
#[pin_data]
pub(crate) struct Connection {
    path: Arc<Path>,
    cid: u16,
    signals: SignalInterval,
    /// How many receives are posted, some of them for those of a burst, which are posted again when
    /// answers may have gone out already.
    receives: u32,
    /// How many answers or invalidations the send queue still has room for.
    credits: Atomic<i32>,
    /// How many requests wait for room. Changed with `waiting` locked.
    num_waiting: Atomic<u32>,
    /// Requests whose answer or invalidation found no room in the send queue; there is room for
    /// all chunks.
    #[pin]
    waiting: SpinLockIrq<Waiting>,
    /// Whether the client takes joint answers.
    joins: bool,
    /// Whether the client is told a chunk's key by each answer, if the chunk has one.
    tells_keys: bool,
    /// Completions are being handled: answers are collected until all of them are.
    in_burst: Atomic<bool>,
    /// What requests need, from the first one of a burst until its end; it would have to be entered
    /// for each otherwise.
    burst_io: EnteredSlot<PathIo>,
    /// The answers that were collected.
    joint: BoxStack<PathChunk>,
    /// When the last request was handed over, in jiffies. Its user may sleep, in the middle of a
    /// burst.
    handed_over: Atomic<u64>,
    /// The receives that were used and are to be posted again. Only used where completions are
    /// handled, one at a time.
    used_receives: Atomic<u32>,
}

/// After how many requests answers are sent and receives are posted, even if there are more to be
/// worked off.
pub(crate) const MAX_BURST: u32 = 16;

impl Connection {
    /// The connection `cid` of `path`, with room for `answers` in its send queue, and for `receives`.
    /// Sleeps.
    pub(crate) fn new(path: Arc<Path>, cid: u16, answers: u32, receives: u32) -> Result<Arc<Self>> {
        let queue_depth = path.session().queue_depth();
        let waiting = Waiting::new(queue_depth as usize)?;
        // At least two completions are under way when the queue is full.
        let signals = SignalInterval::for_queue_depth(queue_depth.min(answers / 2));
        let joins = path.features() & FEATURE_COALESCED_RESPONSES != 0;
        let tells_keys = path.features() & FEATURE_SHORT_RESPONSES == 0;
        Arc::pin_init(
            pin_init!(Self {
                path,
                cid,
                signals,
                receives,
                credits: Atomic::new(i32::try_from(answers).unwrap_or(i32::MAX)),
                num_waiting: Atomic::new(0),
                waiting <- new_spinlock_irq!(waiting, "rtrs_server::Connection::waiting"),
                joins,
                tells_keys,
                in_burst: Atomic::new(false),
                burst_io: EnteredSlot::empty(),
                joint: BoxStack::new(),
                handed_over: Atomic::new(0),
                used_receives: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// How many receives are posted.
    pub(crate) fn receives(&self) -> u32 {
        self.receives
    }

    /// The path it belongs to.
    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Whether each answer tells the key of its chunk, not only those with a new one.
    #[inline]
    pub(crate) fn tells_keys(&self) -> bool {
        self.tells_keys
    }

    /// Its number.
    pub(crate) fn cid(&self) -> u16 {
        self.cid
    }

    /// Takes room for an answer or an invalidation.
    #[inline]
    pub(crate) fn take_credit(&self) -> bool {
        let mut credits = self.credits.load(ordering::Relaxed);
        while credits > 0 {
            let less = credits.saturating_sub(1);
            // Never less than there are, not even for a moment: somebody else would give up.
            match self.credits.cmpxchg(credits, less, ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => credits = now,
            }
        }
        false
    }

    fn give_credit_back(&self) {
        self.credits.fetch_add(1, ordering::Full);
    }

    /// Whether the answer that is posted next shall ask for a completion.
    #[inline]
    pub(crate) fn next_is_signaled(&self) -> bool {
        self.signals.next_is_signaled()
    }

    /// How answers are signaled.
    pub(crate) fn signals(&self) -> &SignalInterval {
        &self.signals
    }

    /// Keeps a chunk that is answered, or to be invalidated, until the send queue has room. Any
    /// context.
    pub(crate) fn wait(&self, io: &Entered<PathIo>, chunk: ChunkBox) {
        let mut waiting = self.waiting.lock();
        let pushed = waiting.push(chunk);
        if pushed.is_ok() {
            // Before the look for credits below: either that finds those of the completion that
            // comes now, or the completion finds this.
            self.num_waiting.fetch_add(1, ordering::Full);
        }
        drop(waiting);
        if let Err(refused) = pushed {
            // There is room for all chunks, and each is there once.
            io.release(refused);
            self.path.close();
            return;
        }
        self.send_waiting(io);
    }

    /// Sends what waits, as far as there is room.
    fn send_waiting(&self, io: &Entered<PathIo>) {
        while self.num_waiting.load(ordering::Relaxed) != 0 && self.take_credit() {
            match self.take_waiting() {
                Some(chunk) if chunk.is_to_be_invalidated() => {
                    crate::request::send_invalidation(io, self, chunk);
                }
                Some(chunk) => match crate::answer::unless_awaited(io, chunk) {
                    Some(chunk) => crate::answer::send(io, self, chunk),
                    None => self.give_credit_back(),
                },
                // Somebody else was faster; look again for who was not sent for lack of this
                // credit.
                None => self.give_credit_back(),
            }
        }
    }

    /// Takes out the one that has waited longest. Any context.
    pub(crate) fn take_waiting(&self) -> Option<ChunkBox> {
        let mut waiting = self.waiting.lock();
        let chunk = waiting.pop()?;
        self.num_waiting.fetch_sub(1, ordering::Relaxed);
        Some(chunk)
    }

    /// Whether answers are being collected.
    #[inline]
    pub(crate) fn joins_answers(&self) -> bool {
        self.joins && self.in_burst.load(ordering::Relaxed)
    }

    /// Collects an answer, if that still goes on.
    pub(crate) fn join(&self, io: &Entered<PathIo>, chunk: ChunkBox) {
        self.joint.push(chunk);
        // A full barrier, as is the end of the burst: if it is not seen here, it sees the answer.
        // A burst that has stood still since the last tick may be one that sleeps.
        if !self.in_burst.load(ordering::Relaxed)
            || self.handed_over.load(ordering::Relaxed) != time::now()
        {
            self.send_collected(io);
        }
    }

    /// Sends what was collected, if that is anything.
    pub(crate) fn send_collected(&self, io: &Entered<PathIo>) {
        if !self.joint.is_empty() {
            crate::answer::send_joint(io, self, &mut self.joint.take_all());
        }
    }

    /// Takes out what was collected, when the path is closed.
    pub(crate) fn take_joint(&self) -> BoxList<PathChunk> {
        self.joint.take_all()
    }

    /// Posts the receives again that were used, and sends what was collected.
    #[inline(never)]
    fn catch_up(&self, io: &Entered<PathIo>, queue_pair: &QueuePairRef<Connection>) {
        let used = self.used_receives.load(ordering::Relaxed);
        self.used_receives.store(0, ordering::Relaxed);
        if let Err(error) = queue_pair.post_empty_recvs(WorkKind::Receive.id(), used) {
            pr_err_ratelimited!("<{}>: posting receives failed: {:?}\n", self.path, error);
            self.path.close();
        }
        self.send_collected(io);
    }

    /// A work request failed.
    #[cold]
    #[inline(never)]
    fn failed(&self, kind: WorkKind, status: Status) {
        match status {
            Status::Success => {}
            // Closing flushes the queues; but a device may also stop a queue pair without another
            // error than this.
            Status::Flushed => self.close("the queue pair has failed"),
            Status::Error(error) => {
                pr_err_ratelimited!(
                    "<{}>: {} failed: {}\n",
                    self.path,
                    kind.as_str(),
                    error.text()
                );
                self.path.close();
            }
        }
    }

    /// Something came that no client sends.
    #[cold]
    #[inline(never)]
    fn unexpected(&self, what: &str) {
        pr_err_ratelimited!("<{}>: unexpected {} received\n", self.path, what);
        self.path.close();
    }

    /// Closes the path for something that is no error, and says so once.
    fn close(&self, why: &str) {
        if self.path.close() {
            pr_info_ratelimited!(
                "<{}>: closing, connection {}: {}\n",
                self.path,
                self.cid,
                why
            );
        }
    }

    /// Sends an immediate that is no answer, if there is room.
    ///
    /// If there is none, the peer does not take what we send; then it can do without heartbeats,
    /// too, and notices.
    pub(crate) fn send_immediate(
        &self,
        queue_pair: &QueuePairRef<Connection>,
        immediate: Imm,
    ) -> Result {
        if !self.take_credit() {
            return Ok(());
        }
        let mut chain = SendChain::<1>::new();
        chain.imm_only(
            WorkKind::Answer.id(),
            self.next_is_signaled(),
            immediate.encode(),
        )?;
        queue_pair.post(chain)
    }

    /// An immediate came.
    #[inline]
    fn immediate(&self, queue_pair: &QueuePairRef<Connection>, wc: &WorkCompletion<'_>) {
        self.path.heartbeat().received();
        let Some(io) = self.burst_io.take().or_else(|| self.path.io()) else {
            // Nobody was told where to write yet.
            self.path.close();
            return;
        };
        let used = self.used_receives.load(ordering::Relaxed).saturating_add(1);
        self.used_receives.store(used, ordering::Relaxed);
        if used >= MAX_BURST {
            self.catch_up(&io, queue_pair);
        }
        match Imm::decode(wc.imm().unwrap_or(u32::MAX)) {
            Imm::IoReq { payload } => {
                self.handed_over.store(time::now(), ordering::Relaxed);
                crate::request::received(&io, self, payload);
            }
            other => self.other_immediate(queue_pair, other),
        }
        if self.in_burst.load(ordering::Relaxed) {
            // There may be more.
            self.burst_io.put(io);
        }
    }

    /// An immediate came that is no request.
    #[cold]
    #[inline(never)]
    fn other_immediate(&self, queue_pair: &QueuePairRef<Connection>, immediate: Imm) {
        match immediate {
            Imm::HbMsg => {
                if let Err(error) = self.send_immediate(queue_pair, Imm::HbAck) {
                    pr_err_ratelimited!(
                        "<{}>: sending a heartbeat acknowledgement failed: {:?}\n",
                        self.path,
                        error
                    );
                    self.path.close();
                }
            }
            Imm::HbAck => self.path.heartbeat().acknowledged(),
            Imm::PathEnd { path } if self.path.features() & FEATURE_PATH_END != 0 => {
                crate::path_end::asked(&self.path, path);
            }
            _ => pr_err_ratelimited!("<{}>: unknown immediate received\n", self.path),
        }
    }

    /// A signaled answer was sent, and so were those before it.
    fn answers_sent(&self) {
        self.give_credits(i32::try_from(self.signals.interval()).unwrap_or(i32::MAX));
    }

    /// The send queue has room again.
    fn give_credits(&self, count: i32) {
        // Before the look for requests that wait; see `wait()`.
        self.credits.fetch_add(count, ordering::Full);
        if self.num_waiting.load(ordering::Relaxed) != 0 {
            if let Some(io) = self.path.io() {
                self.send_waiting(&io);
            }
        }
    }
}

impl cm::Handler for Connection {
    fn event(&self, event: cm::Event<'_>) {
        let (what, status) = match event {
            cm::Event::Disconnected => {
                self.close("disconnected");
                return;
            }
            cm::Event::AddressChange => {
                self.close("the address changed");
                return;
            }
            cm::Event::TimewaitExit => {
                self.close("the connection has ended");
                return;
            }
            cm::Event::DeviceRemoval => {
                self.close("the RDMA device is being removed");
                return;
            }
            cm::Event::Rejected { status, .. } => ("rejected", status),
            cm::Event::ConnectError { status } => ("connect error", status),
            cm::Event::Unreachable { status } => ("unreachable", status),
            _ => return,
        };
        pr_err_ratelimited!(
            "<{}>: connection {} failed: {}, status {}\n",
            self.path,
            self.cid,
            what,
            status
        );
        self.path.close();
    }

    fn burst_begins(&self, _queue_pair: &QueuePairRef<Self>) {
        self.in_burst.store(true, ordering::Relaxed);
    }

    fn burst_ends(&self, queue_pair: &QueuePairRef<Self>) {
        self.in_burst.xchg(false, ordering::Full);
        let entered = self.burst_io.take();
        if self.used_receives.load(ordering::Relaxed) == 0 && self.joint.is_empty() {
            return;
        }
        // If the path is being closed, nobody waits for either.
        if let Some(io) = entered.or_else(|| self.path.io()) {
            self.catch_up(&io, queue_pair);
        }
    }

    #[inline]
    fn completion(&self, queue_pair: &QueuePairRef<Self>, wc: &WorkCompletion<'_>) {
        let kind = WorkKind::of(wc.wr_id());
        if !wc.is_success() {
            return self.failed(kind, wc.status());
        }
        match kind {
            WorkKind::Receive => match wc.opcode() {
                Some(Opcode::ReceiveRdmaWithImm) => self.immediate(queue_pair, wc),
                _ => self.unexpected("message"),
            },
            WorkKind::InfoRequest => self.path.info_received(wc.byte_len()),
            WorkKind::Answer => self.answers_sent(),
            WorkKind::Invalidate(chunk) => {
                self.give_credits(1);
                if let Some(io) = self.path.io() {
                    crate::request::invalidated(&io, self, chunk);
                }
            }
            WorkKind::InfoResponse | WorkKind::Unsignaled => {}
        }
    }
}
