// SPDX-License-Identifier: GPL-2.0

//! The state of one raw connection, from its events and completions.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::{
        cm::{
            Event,
            EventHandler, //
        },
        Handler,
        Opcode,
        QueuePairRef,
        Status,
        WorkCompletion,
        WrId, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        set_once::SetOnce, //
    }, //
};
use proto::fabric::{
    command::Offer,
    verdict::NoConnection,
    RECEIVES, //
};

/// The work request id of all send-side work requests. The ids of the receives are smaller.
pub(crate) const SEND: WrId = WrId(RECEIVES);

/// The number of work request ids.
pub(crate) const WORK_IDS: u32 = RECEIVES.wrapping_add(1);

/// The message of a receive that has completed.
pub(crate) struct Slot {
    /// The length in bytes.
    pub(crate) len: Atomic<u32>,
    /// The immediate, or 0.
    pub(crate) imm: Atomic<u32>,
    /// The key that the message invalidated, or 0.
    pub(crate) rkey: Atomic<u32>,
    /// Whether the peer wrote to memory, so that the receive's buffer has nothing.
    pub(crate) is_write: Atomic<u32>,
}

impl Slot {
    /// Makes a slot without a message.
    const fn new() -> Self {
        Self {
            len: Atomic::new(0),
            imm: Atomic::new(0),
            rkey: Atomic::new(0),
            is_write: Atomic::new(0),
        }
    }
}

/// One end of a raw connection: tells the waiting task what has happened.
///
/// # Invariants
///
/// If `dead` is set, `progress`, `received` and `finished` are signalled for all tasks that wait,
/// now and later, or the task that has set `dead` is about to signal them.
#[pin_data]
pub struct Peer {
    /// Signalled when a step of the handshake is over.
    #[pin]
    pub(crate) progress: Completion,
    /// Signalled when a receive has completed.
    #[pin]
    pub(crate) received: Completion,
    /// Signalled when a signalled send-side work request has completed.
    #[pin]
    pub(crate) finished: Completion,
    /// Signalled when the other end has ended the connection.
    #[pin]
    pub(crate) gone: Completion,
    /// Signalled when a work request has failed.
    #[pin]
    failed: Completion,
    dead: Atomic<u32>,
    /// The status of the first work request that failed, plus 1; 0 if none has failed.
    status: Atomic<u32>,
    /// Why the handshake failed.
    cause: SetOnce<(NoConnection, i32)>,
    /// The server's offer.
    pub(crate) offer: SetOnce<Offer>,
    pub(crate) slots: [Slot; RECEIVES as usize],
}

impl Peer {
    /// Makes an end to which nothing has happened.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                progress <- Completion::new(),
                received <- Completion::new(),
                finished <- Completion::new(),
                gone <- Completion::new(),
                failed <- Completion::new(),
                dead: Atomic::new(0),
                status: Atomic::new(0),
                cause: SetOnce::new(),
                offer: SetOnce::new(),
                slots: [const { Slot::new() }; RECEIVES as usize],
            }),
            GFP_KERNEL,
        )
    }

    /// Ends the connection for all tasks that wait for it. Any context.
    pub fn end(&self) {
        self.dead.store(1, ordering::Release);
        // INVARIANT: `dead` is set, and all three are signalled.
        self.progress.complete_all();
        self.received.complete_all();
        self.finished.complete_all();
    }

    /// Whether the connection is over. Any context.
    pub fn is_over(&self) -> bool {
        self.dead.load(ordering::Acquire) != 0
    }

    /// Waits for an event, at most `timeout_ms`. `ETIMEDOUT` after that time, `ECONNRESET` if the
    /// connection is over. Sleeps.
    pub(crate) fn wait(&self, event: &Completion, timeout_ms: u32) -> Result {
        event.wait_timeout(timeout_ms).map_err(|_| ETIMEDOUT)?;
        if self.is_over() {
            return Err(ECONNRESET);
        }
        Ok(())
    }

    /// Waits for a step of the handshake, at most `timeout_ms`. `ETIMEDOUT` after that time,
    /// `ECONNRESET` if the step failed; then [`Self::cause`] gives the reason. Sleeps.
    pub fn wait_step(&self, timeout_ms: u32) -> Result {
        self.wait(&self.progress, timeout_ms)
    }

    /// The status of the first work request that failed (`ib_wc_status`). Any context.
    pub fn failure(&self) -> Option<u32> {
        self.status.load(ordering::Acquire).checked_sub(1)
    }

    /// As [`Self::failure`], but waits at most `timeout_ms`: the connection may be over before the
    /// completion is handled. Sleeps.
    pub fn wait_failure(&self, timeout_ms: u32) -> Option<u32> {
        // The next line sees whether the status came in time.
        let _ = self.failed.wait_timeout(timeout_ms);
        self.failure()
    }

    /// Waits until the other end has ended the connection, at most `timeout_ms`. Sleeps.
    pub fn wait_gone(&self, timeout_ms: u32) -> bool {
        self.gone.wait_timeout(timeout_ms).is_ok()
    }

    /// Why the handshake failed, and the connection manager's status. Any context.
    pub fn cause(&self) -> Option<(NoConnection, i32)> {
        self.cause.as_ref().copied()
    }

    fn fail(&self, cause: NoConnection, status: i32) {
        self.cause.populate((cause, status));
        self.end();
    }

    /// Notes a receive that has completed.
    fn note(&self, completion: &WorkCompletion<'_>) {
        let Some(slot) = self.slots.get(completion.wr_id().0 as usize) else {
            return;
        };
        let is_write = completion.opcode() == Some(Opcode::ReceiveRdmaWithImm);
        slot.len.store(completion.byte_len(), ordering::Relaxed);
        for (to, from) in [
            (&slot.imm, completion.imm()),
            (&slot.rkey, completion.invalidated_rkey()),
        ] {
            to.store(0, ordering::Relaxed);
            if let Some(from) = from {
                to.store(from, ordering::Relaxed);
            }
        }
        slot.is_write.store(u32::from(is_write), ordering::Release);
        self.received.complete();
    }
}

/// The connection manager's reason: no listener has this service id
/// (`IB_CM_REJ_INVALID_SERVICE_ID`).
const NO_SUCH_SERVICE: i32 = 8;

impl EventHandler for Peer {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::AddressResolved | Event::RouteResolved => self.progress.complete(),
            Event::Established { private_data } => {
                if let Some(offer) = Offer::parse(private_data) {
                    self.offer.populate(offer);
                }
                self.progress.complete();
            }
            Event::Rejected {
                status,
                is_consumer_defined,
                ..
            } => {
                let nobody = !is_consumer_defined
                    && (status == NO_SUCH_SERVICE || status == ECONNREFUSED.to_errno());
                let cause = match nobody {
                    true => NoConnection::NoListener,
                    false => NoConnection::Refused,
                };
                self.fail(cause, status);
            }
            Event::AddressError { status } | Event::RouteError { status } => {
                // There is a device, but no response from the address.
                let unanswered = [ETIMEDOUT, EHOSTUNREACH].map(|error| error.to_errno());
                let cause = match unanswered.contains(&status) {
                    true => NoConnection::NoAnswer,
                    false => NoConnection::NoDevice,
                };
                self.fail(cause, status);
            }
            Event::ConnectError { status } | Event::Unreachable { status } => {
                self.fail(NoConnection::NoAnswer, status);
            }
            Event::Disconnected => {
                self.gone.complete_all();
                self.end();
            }
            Event::DeviceRemoval => self.end(),
            _ => {}
        }
    }
}

impl Handler for Peer {
    type Burst = ();

    fn completion(
        &self,
        _queue_pair: &QueuePairRef<Self>,
        completion: &WorkCompletion<'_>,
        _burst: &mut (),
    ) {
        match completion.status() {
            Status::Success if completion.wr_id() == SEND => self.finished.complete(),
            Status::Success => self.note(completion),
            Status::Flushed => self.end(),
            Status::Error(status) => {
                let number = status.number().wrapping_add(1);
                let _ = self.status.cmpxchg(0, number, ordering::Full);
                self.failed.complete_all();
                self.end();
            }
        }
    }
}
