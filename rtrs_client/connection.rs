// SPDX-License-Identifier: GPL-2.0

//! One connection of a path: its queue pair, and what its events and completions mean.

use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    atomic::{
        ordering,
        Atomic, //
    },
    cpu,
    message_buffers::MessageBuffer,
    once::SetOnce,
    pr_info_ratelimited,
    pr_warn_ratelimited,
    rdma::{
        cm,
        Opcode,
        QueuePair,
        SendChain,
        Status,
        WorkCompletion,
        WorkId, //
    }, //
};
use proto::rtrs::{
    answers::{
        self,
        MAX_ANSWERS_SIZE, //
    },
    ConnAccept,
    Imm,
    RkeyRsp, //
};
use rtrs_core::{
    connection::SignalInterval,
    error::from_errno, //
};

use crate::{
    incarnation::Incarnation,
    transfer::{
        Answered,
        Transfer, //
    }, //
};

/// What a completion is for; encoded in the work request's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A request, a heartbeat or another write whose completion only frees the send queue.
    Send,
    /// The registration of a request's data.
    Registration,
    /// The information request of the first connection.
    InfoSend,
    /// Its answer.
    InfoReceive,
    /// The invalidation of the registration of the service request.
    InvalidateService,
    /// The invalidation of a tag's registration.
    Invalidate(u32),
    /// A posted receive, by index.
    Receive(u32),
}

/// The ids that are neither of a tag nor of a receive; those of the two follow alternately.
const FIXED_IDS: u32 = 5;

impl WorkKind {
    /// How many ids a connection needs that carries so many tags and receives.
    pub(crate) fn count(tags: u32, receives: u32) -> u32 {
        tags.max(receives)
            .saturating_mul(2)
            .saturating_add(FIXED_IDS)
    }

    /// Its id.
    pub(crate) fn id(self) -> WorkId {
        let above = |index: u32, odd| {
            index
                .saturating_mul(2)
                .saturating_add(odd)
                .saturating_add(FIXED_IDS)
        };
        WorkId(match self {
            WorkKind::Send => 0,
            WorkKind::Registration => 1,
            WorkKind::InfoSend => 2,
            WorkKind::InfoReceive => 3,
            WorkKind::InvalidateService => 4,
            WorkKind::Receive(index) => above(index, 0),
            WorkKind::Invalidate(tag) => above(tag, 1),
        })
    }

    /// The kind that `id` was made of.
    pub(crate) fn of(id: WorkId) -> Self {
        let above = id.0.saturating_sub(FIXED_IDS);
        match id.0 {
            0 => WorkKind::Send,
            1 => WorkKind::Registration,
            2 => WorkKind::InfoSend,
            3 => WorkKind::InfoReceive,
            4 => WorkKind::InvalidateService,
            _ if above & 1 == 0 => WorkKind::Receive(above >> 1),
            _ => WorkKind::Invalidate(above >> 1),
        }
    }
}

/// Room for each message of the server beside an immediate, in bytes.
pub(crate) const RECEIVE_SIZE: usize = if RkeyRsp::SIZE > MAX_ANSWERS_SIZE {
    RkeyRsp::SIZE
} else {
    MAX_ANSWERS_SIZE
};

/// How far the establishment of a connection has come.
#[derive(Clone, Copy)]
pub(crate) enum Progress {
    /// Nothing was heard since the last step was asked for.
    Waiting,
    /// The address was resolved, so that the device is known.
    AddressResolved,
    /// The route was resolved.
    RouteResolved,
    /// The connection stands; the server's answer, as long as it is.
    Established(Answer),
    /// It failed.
    Failed(Error),
}

/// The private data of the server's answer.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    bytes: [u8; Answer::MAX_LEN],
    len: usize,
}

impl Answer {
    /// What is kept of it, in bytes; nothing is expected behind.
    const MAX_LEN: usize = ConnAccept::SIZE;

    fn new(private_data: &[u8]) -> Self {
        let len = private_data.len().min(Self::MAX_LEN);
        let mut bytes = [0; Self::MAX_LEN];
        for (to, from) in bytes.iter_mut().zip(private_data) {
            *to = *from;
        }
        Self { bytes, len }
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The buffers of the information exchange on the first connection.
pub(crate) struct InfoBuffers {
    /// The client's half.
    pub(crate) request: MessageBuffer,
    /// The server's half, in pages.
    pub(crate) answer: KVec<MessageBuffer>,
}

/// What events and completions of a connection are given to.
#[pin_data]
pub(crate) struct ConnectionHandler {
    pub(crate) incarnation: Arc<Incarnation>,
    /// The number of the connection on its path.
    pub(crate) cid: u16,
    #[pin]
    progress: Mutex<Progress>,
    /// The buffers of the posted receives, if the server sends keys with its answers.
    receive_buffers: SetOnce<KVec<MessageBuffer>>,
    /// Kept until the queue pair is gone, which may write to them until then.
    info_buffers: SetOnce<InfoBuffers>,
    /// The key that the device has invalidated last at the server's request. Completions of a
    /// connection come one at a time, so the answer that follows finds it here.
    invalidated_rkey: Atomic<u32>,
    /// The length of the information that came; zero before.
    info_len: Atomic<u32>,
}

impl ConnectionHandler {
    /// Makes the handler of connection `cid`.
    pub(crate) fn new(incarnation: Arc<Incarnation>, cid: u16) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                incarnation,
                cid,
                progress <- new_mutex!(Progress::Waiting),
                receive_buffers: SetOnce::new(),
                info_buffers: SetOnce::new(),
                invalidated_rkey: Atomic::new(0),
                info_len: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the progress that was made since the last call. May sleep.
    pub(crate) fn take_progress(&self) -> Progress {
        core::mem::replace(&mut *self.progress.lock(), Progress::Waiting)
    }

    /// The length of the server's information, once it is there.
    pub(crate) fn info_len(&self) -> Option<u32> {
        match self.info_len.load(ordering::Acquire) {
            0 => None,
            len => Some(len),
        }
    }

    /// The receive buffers, which have to be set before receives with buffers are posted.
    pub(crate) fn set_receive_buffers(&self, buffers: KVec<MessageBuffer>) {
        self.receive_buffers.populate(buffers);
    }

    /// Sets the buffers of the information exchange; `EEXIST` the second time.
    pub(crate) fn set_info_buffers(
        &self,
        request: MessageBuffer,
        answer: KVec<MessageBuffer>,
    ) -> Result<&InfoBuffers> {
        if !self.info_buffers.populate(InfoBuffers { request, answer }) {
            return Err(EEXIST);
        }
        self.info_buffers.as_ref().ok_or(EINVAL)
    }

    fn report(&self, progress: Progress) {
        *self.progress.lock() = progress;
        self.incarnation.path.wake();
    }

    /// The connection is of no use any more; says so unless the path failed already.
    /// Any context.
    fn fail(&self, why: impl fmt::Display) {
        let path = &self.incarnation.path;
        if path.connection_failed() {
            pr_info_ratelimited!("{}: connection {}: {}\n", path.name_text(), self.cid, why);
        }
    }

    /// Posts receive `index`. Any context.
    pub(crate) fn post_receive(&self, queue_pair: &QueuePair<Self>, index: u32) -> Result {
        let id = WorkKind::Receive(index).id();
        match self.receive_buffers.as_ref() {
            Some(buffers) => {
                let buffer = buffers.get(index as usize).ok_or(EINVAL)?;
                queue_pair.post_recv(id, &[buffer.sge(RECEIVE_SIZE)?])
            }
            None => queue_pair.post_recv(id, &[]),
        }
    }

    /// Something came from the server into receive `index`.
    fn received(&self, queue_pair: &QueuePair<Self>, index: u32, completion: &WorkCompletion<'_>) {
        let path = &self.incarnation.path;
        path.heartbeat.received();
        path.stats
            .completed_on(u32::from(self.cid.saturating_sub(1)), cpu::current_cpu());
        match (completion.opcode(), completion.imm()) {
            (Some(Opcode::ReceiveRdmaWithImm), Some(immediate)) => {
                self.immediate(queue_pair, Imm::decode(immediate))
            }
            (Some(Opcode::Receive), Some(immediate)) => {
                let immediate = Imm::decode(immediate);
                if let Imm::IoRsps { count } = immediate {
                    if !self.joint_answers(queue_pair, index, completion, count) {
                        return self.fail("malformed answers");
                    }
                } else if !self.new_key(index, completion, immediate) {
                    return self.fail("answer with a malformed key");
                } else {
                    self.immediate(queue_pair, immediate);
                }
            }
            (Some(Opcode::Receive), None) => match completion.invalidated_rkey() {
                // The answer to the request that used the key follows.
                Some(rkey) => self.invalidated_rkey.store(rkey, ordering::Relaxed),
                None => return self.fail("message of the server without a meaning"),
            },
            _ => return self.fail("completion of an unknown kind"),
        }
        if self.post_receive(queue_pair, index).is_err() {
            self.fail("a receive could not be posted");
        }
    }

    /// Finishes the requests that a message answers; says whether it made sense.
    fn joint_answers(
        &self,
        queue_pair: &QueuePair<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
        count: u32,
    ) -> bool {
        let (Some(transfer), Some(buffers)) =
            (self.incarnation.transfer(), self.receive_buffers.as_ref())
        else {
            return false;
        };
        let mut bytes = [0; MAX_ANSWERS_SIZE];
        let (Some(buffer), Some(bytes)) = (
            buffers.get(index as usize),
            bytes.get_mut(..completion.byte_len() as usize),
        ) else {
            return false;
        };
        if !transfer.takes_joint_answers() || buffer.copy_out(bytes).is_err() {
            return false;
        }
        let Some(tags) = answers::parse(bytes, count) else {
            return false;
        };
        for tag in tags {
            self.answered(queue_pair, transfer, u32::from(tag), Ok(()), None);
        }
        true
    }

    /// Takes the new key of a chunk; says whether the message made sense.
    fn new_key(&self, index: u32, completion: &WorkCompletion<'_>, immediate: Imm) -> bool {
        let Some(transfer) = self.incarnation.transfer() else {
            return false;
        };
        let Some(buffer) = self
            .receive_buffers
            .as_ref()
            .and_then(|buffers| buffers.get(index as usize))
        else {
            return false;
        };
        let mut bytes = [0; RkeyRsp::SIZE];
        let Some(bytes) = bytes.get_mut(..(completion.byte_len() as usize).min(RkeyRsp::SIZE))
        else {
            return false;
        };
        if buffer.copy_out(bytes).is_err() {
            return false;
        }
        let message = match RkeyRsp::parse(bytes, &transfer.layout) {
            Ok(message) => message,
            Err(error) => {
                pr_warn_ratelimited!(
                    "{}: {}\n",
                    self.incarnation.path.name_text(),
                    error.message().as_str()
                );
                return false;
            }
        };
        match immediate {
            Imm::IoRsp { msg_id, .. } if msg_id == u32::from(message.buf_id) => {
                transfer.set_rkey(msg_id, message.rkey).is_ok()
            }
            _ => false,
        }
    }

    /// The registration of request `tag` is invalid now.
    fn invalidated(&self, tag: u32) {
        let request = self
            .incarnation
            .transfer()
            .and_then(|transfer| transfer.invalidated(tag));
        if let Some(request) = request {
            self.incarnation.finish(request);
        }
    }

    /// The server has answered request `tag`.
    #[inline]
    fn answered(
        &self,
        queue_pair: &QueuePair<Self>,
        transfer: &Transfer,
        tag: u32,
        answer: Result,
        invalidated: Option<u32>,
    ) {
        match transfer.answered(queue_pair, tag, answer, invalidated) {
            Answered::Finished(request) => self.incarnation.finish(request),
            Answered::Invalidating => {}
            Answered::Failed => self.fail("an invalidation could not be posted"),
            Answered::Unknown => {
                pr_warn_ratelimited!(
                    "{}: answer to request {}, which is not in flight\n",
                    self.incarnation.path.name_text(),
                    tag
                );
            }
        }
    }

    fn immediate(&self, queue_pair: &QueuePair<Self>, immediate: Imm) {
        let path = &self.incarnation.path;
        match immediate {
            Imm::IoRsp {
                msg_id,
                errno,
                invalidated,
            } => {
                let Some(transfer) = self.incarnation.transfer() else {
                    return self.fail("answer before the first request");
                };
                let answer = match errno {
                    0 => Ok(()),
                    errno => Err(Error::from_errno(errno)),
                };
                let rkey = invalidated.then(|| self.invalidated_rkey.load(ordering::Relaxed));
                self.answered(queue_pair, transfer, msg_id, answer, rkey);
            }
            Imm::HbMsg => {
                if post_heartbeat(queue_pair, Imm::HbAck, &self.incarnation.service_signals)
                    .is_err()
                {
                    self.fail("a heartbeat could not be answered");
                }
            }
            Imm::HbAck => path.heartbeat.acknowledged(),
            Imm::IoReq { .. } | Imm::IoRsps { .. } | Imm::Unknown { .. } => {
                pr_warn_ratelimited!("{}: unknown immediate of the server\n", path.name_text());
            }
        }
    }
}

/// Sends a heartbeat or its acknowledgement. Any context.
pub(crate) fn post_heartbeat(
    queue_pair: &QueuePair<ConnectionHandler>,
    immediate: Imm,
    signals: &SignalInterval,
) -> Result {
    let mut chain = SendChain::<1>::new();
    chain.imm_only(
        WorkKind::Send.id(),
        signals.next_is_signaled(),
        immediate.encode(),
    )?;
    queue_pair.post(chain)
}

impl cm::Handler for ConnectionHandler {
    fn event(&self, event: cm::Event<'_>) {
        let path = &self.incarnation.path;
        match event {
            cm::Event::AddressResolved => self.report(Progress::AddressResolved),
            cm::Event::RouteResolved => self.report(Progress::RouteResolved),
            cm::Event::Established { private_data } => {
                self.report(Progress::Established(Answer::new(private_data)))
            }
            cm::Event::Rejected {
                status,
                private_data,
                ..
            } => {
                let error = match proto::rtrs::ConnReject::parse(private_data) {
                    Ok(reject) => from_errno(reject.errno),
                    Err(_) => ECONNRESET,
                };
                if error == EBUSY {
                    pr_err!(
                        "{}: the previous session still exists on the server, please reconnect later\n",
                        path.name_text()
                    );
                } else {
                    pr_err!(
                        "{}: the server refused connection {}: status {}, {:?}\n",
                        path.name_text(),
                        self.cid,
                        status,
                        error
                    );
                }
                self.report(Progress::Failed(error));
                path.connection_failed();
            }
            // It may be tried again.
            cm::Event::AddressError { status } if status == ETIMEDOUT.to_errno() => {
                self.report(Progress::Failed(ETIMEDOUT));
            }
            cm::Event::AddressError { status } | cm::Event::RouteError { status } => {
                pr_err!(
                    "{}: no way to the server for connection {}: status {}\n",
                    path.name_text(),
                    self.cid,
                    status
                );
                self.report(Progress::Failed(EHOSTUNREACH));
                path.connection_failed();
            }
            cm::Event::DeviceRemoval => {
                pr_info!("{}: the RDMA device is being removed\n", path.name_text());
                self.report(Progress::Failed(ECONNRESET));
                // The removal waits until the teardown has dropped what is on the device; the
                // path is connected again when there is a device for it.
                path.connection_failed();
            }
            cm::Event::TimewaitExit => {}
            other => {
                self.report(Progress::Failed(ECONNRESET));
                self.fail(other.name());
            }
        }
    }

    fn completion(&self, queue_pair: &QueuePair<Self>, completion: &WorkCompletion<'_>) {
        match completion.status() {
            Status::Success => {}
            // The teardown flushes the queues and takes back what was in them; but a device may also
            // stop a queue pair without another error than this.
            Status::Flushed => return self.fail("the queue pair has failed"),
            Status::Error(error) => return self.fail(error.text().to_str().unwrap_or("?")),
        }
        match WorkKind::of(completion.work_id()) {
            WorkKind::Send | WorkKind::Registration | WorkKind::InfoSend => {}
            WorkKind::InfoReceive => {
                self.info_len
                    .store(completion.byte_len(), ordering::Release);
                self.incarnation.path.wake();
            }
            WorkKind::Invalidate(tag) => self.invalidated(tag),
            WorkKind::InvalidateService => {
                if let Some(tag) = self.incarnation.path.session.service_tag() {
                    self.invalidated(tag);
                }
            }
            WorkKind::Receive(index) => self.received(queue_pair, index, completion),
        }
    }
}

/// An established connection.
pub(crate) struct Connection {
    queue_pair: QueuePair<ConnectionHandler>,
    signals: SignalInterval,
}

impl Connection {
    /// Makes a connection of an established queue pair.
    pub(crate) fn new(queue_pair: QueuePair<ConnectionHandler>, signals: SignalInterval) -> Self {
        Self {
            queue_pair,
            signals,
        }
    }

    /// Its queue pair.
    pub(crate) fn queue_pair(&self) -> &QueuePair<ConnectionHandler> {
        &self.queue_pair
    }

    /// Whether the next request asks for a send completion.
    pub(crate) fn next_is_signaled(&self) -> bool {
        self.signals.next_is_signaled()
    }
}
