// SPDX-License-Identifier: GPL-2.0

//! The events and completions of a connection, and what they cause.

use core::num::NonZeroU32;

use kernel::{
    fmt,
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    rdma::{
        cm,
        message_buffers::{
            Incoming,
            MessageBuffer,
            Outgoing, //
        },
        Handler,
        QueuePairRef,
        Receive,
        Status,
        WorkCompletion, //
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
    ConnAccept,
    ConnReject, //
};
use rtrs_core::error::from_errno;

use crate::{
    incarnation::{
        Incarnation,
        PathEvents, //
    },
    work::WorkKind, //
};

mod receive;

/// Room for each message of the server that comes beside an immediate, in bytes.
pub(crate) const RECEIVE_SIZE: usize = proto::rtrs::MAX_RESPONSE_MSG_SIZE;

/// The statuses of a refused connection if no server listens on the port:
/// `IB_CM_REJ_INVALID_SERVICE_ID`, and `ECONNREFUSED` of iWARP.
const NOBODY_LISTENS: [i32; 2] = [8, -111];

/// The statuses of an address or a route if no machine responds there: `EHOSTUNREACH` and
/// `ETIMEDOUT`.
const NO_HOST: [i32; 2] = [-113, -110];

/// How far the establishment of a connection has come.
#[derive(Clone, Copy)]
pub(crate) enum Progress {
    /// No event has come since the last step was asked for.
    Waiting,
    /// The address was resolved, so that the device is known.
    AddressResolved,
    /// The route was resolved.
    RouteResolved,
    /// The connection stands. The server sent this data with it.
    Established(PrivateData),
    /// The step failed.
    Failed(Error),
}

/// The private data with which the server has accepted a connection.
#[derive(Clone, Copy)]
pub(crate) struct PrivateData {
    bytes: [u8; PrivateData::MAX_LEN],
    len: usize,
}

impl PrivateData {
    /// The bytes that are kept. No message is longer.
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

/// The buffers of a message to the server on the first connection, and of the response.
pub(crate) struct ExchangeBuffers {
    /// The client's half.
    pub(crate) request: MessageBuffer<Outgoing>,
    /// The server's half.
    pub(crate) response: MessageBuffer<Incoming>,
}

/// The receiver of the events and completions of a connection.
#[pin_data]
pub(crate) struct ConnectionHandler<P: PathEvents> {
    pub(crate) incarnation: Arc<Incarnation<P>>,
    /// The number of the connection on its path.
    pub(crate) cid: u16,
    /// The CPU that the responses are expected on: the number of the connection's completion
    /// vector.
    cpu: u32,
    #[pin]
    progress: Mutex<Progress>,
    /// The buffers of the posted receives, if the server sends keys with its responses, or several
    /// responses in one message.
    receive_buffers: SetOnce<KVVec<MessageBuffer<Incoming>>>,
    /// Kept until the queue pair is gone, as the device may write to them until then.
    info_buffers: SetOnce<ExchangeBuffers>,
    /// The length of the information that came; 0 before.
    info_len: Atomic<u32>,
    /// As `info_buffers`, for the proof of this machine's identity.
    auth_buffers: SetOnce<ExchangeBuffers>,
    /// The length of the response to that proof; 0 before.
    auth_len: Atomic<u32>,
}

/// The most receives that are posted again together.
const MAX_RECEIVES_AT_ONCE: u32 = 8;

/// How many receives a connection is posted, and how many of them are posted again together.
///
/// The server needs two for each of `depth` requests, since an invalidation may come before the
/// response to a read. The receives that wait to be posted again come on top. `room` is the number
/// that the queue has room for.
pub(crate) fn receive_counts(depth: u32, room: u32) -> (u32, u32) {
    // A depth is at most 2^16, so nothing here wraps around.
    let needed = depth.wrapping_mul(2);
    let spare = room.checked_sub(needed);
    let waiting = spare.map_or(0, |spare| spare.min(MAX_RECEIVES_AT_ONCE - 1));
    (needed.wrapping_add(waiting), waiting.wrapping_add(1))
}

fn set_buffers(
    place: &SetOnce<ExchangeBuffers>,
    buffers: ExchangeBuffers,
) -> Result<&ExchangeBuffers> {
    if !place.populate(buffers) {
        return Err(EEXIST);
    }
    place.as_ref().ok_or(EINVAL)
}

impl<P: PathEvents> ConnectionHandler<P> {
    /// Makes the handler of connection `cid`, whose responses are expected on `cpu`.
    pub(crate) fn new(incarnation: Arc<Incarnation<P>>, cid: u16, cpu: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                incarnation,
                cid,
                cpu,
                progress <- new_mutex!(Progress::Waiting),
                receive_buffers: SetOnce::new(),
                info_buffers: SetOnce::new(),
                info_len: Atomic::new(0),
                auth_buffers: SetOnce::new(),
                auth_len: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the progress that was made since the last call. Sleeps.
    pub(crate) fn take_progress(&self) -> Progress {
        core::mem::replace(&mut *self.progress.lock(), Progress::Waiting)
    }

    /// Whether the server, or the CM in its place, has disconnected the connection, which was
    /// established. Sleeps.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Failed(_))
    }

    /// The length of the server's information, once it is there.
    pub(crate) fn info_len(&self) -> Option<u32> {
        NonZeroU32::new(self.info_len.load(ordering::Acquire)).map(NonZeroU32::get)
    }

    /// The length of the server's response to the proof of identity, once it is there.
    pub(crate) fn auth_len(&self) -> Option<u32> {
        NonZeroU32::new(self.auth_len.load(ordering::Acquire)).map(NonZeroU32::get)
    }

    /// Sets the receive buffers. They have to be set before receives with buffers are posted.
    pub(crate) fn set_receive_buffers(&self, buffers: KVVec<MessageBuffer<Incoming>>) {
        self.receive_buffers.populate(buffers);
    }

    /// Sets the buffers of the information exchange. `EEXIST` if they are set already.
    pub(crate) fn set_info_buffers(&self, buffers: ExchangeBuffers) -> Result<&ExchangeBuffers> {
        set_buffers(&self.info_buffers, buffers)
    }

    /// Sets the buffers of the proof of identity. `EEXIST` if they are set already.
    pub(crate) fn set_auth_buffers(&self, buffers: ExchangeBuffers) -> Result<&ExchangeBuffers> {
        set_buffers(&self.auth_buffers, buffers)
    }

    fn report(&self, progress: Progress) {
        *self.progress.lock() = progress;
        self.incarnation.path.wake();
    }

    /// Ends the attempt to connect with `error`, which has been logged. Sleeps.
    fn attempt_failed(&self, error: Error) {
        self.report(Progress::Failed(error));
        P::connection_failed(&self.incarnation.path);
    }

    /// Logs why the server has refused the connection, and returns the error.
    fn rejected(&self, status: i32, private_data: &[u8]) -> Error {
        let path = &self.incarnation.path;
        let (error, nobody_listens) = match ConnReject::parse(private_data) {
            Ok(reject) => (from_errno(reject.errno), false),
            Err(_) => (ECONNRESET, NOBODY_LISTENS.contains(&status)),
        };
        if (nobody_listens || error == EHOSTDOWN) && path.expects_absence() {
            return EHOSTDOWN;
        }
        if error == EHOSTDOWN {
            // A path that tries again each second logs this once.
            if path.is_first_refusal() {
                pr_err_ratelimited!(
                    "{}: the server is draining for maintenance and takes no new session until the \
                     maintenance is over\n",
                    path.name_text()
                );
            }
        } else if error == ENOKEY {
            pr_err_ratelimited!(
                "{}: the server asks for a proof of identity: give this machine a key with \
                 rnbdctl key\n",
                path.name_text()
            );
        } else if error == EBUSY {
            pr_err_ratelimited!(
                "{}: the previous session still exists on the server, please reconnect later; or a \
                 limit of the server is reached: see the server's kernel log\n",
                path.name_text()
            );
        } else {
            pr_err_ratelimited!(
                "{}: the server refused connection {}: status {}, {:?}\n",
                path.name_text(),
                self.cid,
                status,
                error
            );
        }
        error
    }

    /// Closes the connection. Logs `why`, unless the path has failed already. Any context.
    #[cold]
    #[inline(never)]
    fn fail(&self, why: impl fmt::Display) {
        let path = &self.incarnation.path;
        if P::connection_failed(path) {
            pr_info_ratelimited!("{}: connection {}: {}\n", path.name_text(), self.cid, why);
        }
    }

    /// The id and the buffer of receive `index`, as they are posted.
    #[inline]
    fn receive(&self, index: u32) -> Result<Receive<'_>> {
        let buffer = match self.receive_buffers.as_ref() {
            Some(buffers) => Some(buffers.get(index as usize).ok_or(EINVAL)?),
            None => None,
        };
        Ok((WorkKind::Receive(index).id(), buffer))
    }

    /// Posts the receives 0 to `count`, of which `at_once` will be posted again together. Sleeps.
    pub(crate) fn post_receives(
        &self,
        queue_pair: &QueuePairRef<Self>,
        count: u32,
        at_once: u32,
    ) -> Result {
        let count = usize::try_from(count)?;
        queue_pair.post_receives((0..count).map(|index| self.receive(index as u32)), at_once)
    }
}

impl<P: PathEvents> cm::EventHandler for ConnectionHandler<P> {
    fn event(&self, event: cm::Event<'_>) {
        let path = &self.incarnation.path;
        match event {
            cm::Event::AddressResolved => self.report(Progress::AddressResolved),
            cm::Event::RouteResolved => self.report(Progress::RouteResolved),
            cm::Event::Established { private_data } => {
                self.report(Progress::Established(PrivateData::new(private_data)))
            }
            cm::Event::Rejected {
                status,
                private_data,
                ..
            } => self.attempt_failed(self.rejected(status, private_data)),
            // The resolution may be tried again.
            cm::Event::AddressError { status } if status == ETIMEDOUT.to_errno() => {
                self.report(Progress::Failed(ETIMEDOUT));
            }
            cm::Event::AddressError { status } | cm::Event::RouteError { status } => {
                let is_absence = NO_HOST.contains(&status);
                if !(is_absence && path.expects_absence()) {
                    pr_err_ratelimited!(
                        "{}: no way to the server for connection {}: status {}\n",
                        path.name_text(),
                        self.cid,
                        status
                    );
                }
                self.attempt_failed(EHOSTUNREACH);
            }
            cm::Event::DeviceRemoval => {
                pr_info!("{}: the RDMA device is being removed\n", path.name_text());
                // The removal waits until the teardown has dropped everything that is on the
                // device. The path is connected again when there is a device for it.
                self.attempt_failed(ECONNRESET);
            }
            cm::Event::TimewaitExit => {}
            cm::Event::Unreachable { .. } if path.expects_absence() => {
                self.attempt_failed(EHOSTUNREACH);
            }
            other => {
                self.report(Progress::Failed(ECONNRESET));
                self.fail(other.name());
            }
        }
    }
}

impl<P: PathEvents> Handler for ConnectionHandler<P> {
    type Burst = ();

    #[inline(always)]
    fn completion(
        &self,
        queue_pair: &QueuePairRef<Self>,
        completion: &WorkCompletion<'_>,
        _burst: &mut (),
    ) {
        if !completion.is_success() {
            return self.failed_completion(completion);
        }
        match WorkKind::of(completion.wr_id()) {
            WorkKind::Receive(index) => self.received(queue_pair, index, completion),
            WorkKind::Send => {}
            other => self.other_completion(other, completion),
        }
    }

    fn region_completed(
        &self,
        queue_pair: &QueuePairRef<Self>,
        tag: u32,
        completion: &WorkCompletion<'_>,
    ) {
        match self.incarnation.requests() {
            Some(requests) if completion.is_success() => {
                if requests
                    .region_completed(queue_pair, self.cid, tag)
                    .is_err()
                {
                    self.fail("the memory of an abandoned request could not be replaced");
                }
            }
            _ => self.failed_completion(completion),
        }
    }
}

impl<P: PathEvents> ConnectionHandler<P> {
    #[cold]
    fn failed_completion(&self, completion: &WorkCompletion<'_>) {
        match completion.status() {
            Status::Success => {}
            // The teardown flushes the queues and takes their requests back. But a device may also
            // stop a queue pair without any other error.
            Status::Flushed => self.fail("the queue pair has failed"),
            Status::Error(error) => self.fail(error.text().to_str().unwrap_or("?")),
        }
    }

    /// Handles a completion of anything but a message to or from the server.
    #[inline(never)]
    fn other_completion(&self, kind: WorkKind, completion: &WorkCompletion<'_>) {
        match kind {
            WorkKind::Send
            | WorkKind::Registration
            | WorkKind::InfoSend
            | WorkKind::AuthSend
            | WorkKind::Receive(_) => {}
            WorkKind::AuthReceive => {
                self.auth_len
                    .store(completion.byte_len(), ordering::Release);
                self.incarnation.path.wake();
            }
            WorkKind::InfoReceive => {
                self.info_len
                    .store(completion.byte_len(), ordering::Release);
                self.incarnation.path.wake();
            }
            WorkKind::Heartbeat => self.incarnation.heartbeat.heartbeat.sent(),
            WorkKind::HeartbeatAck => self.incarnation.heartbeat.ack.sent(),
        }
    }
}
