// SPDX-License-Identifier: GPL-2.0

//! One end of a raw connection, for a task that takes one step after the other.

use kernel::sync::Arc;
use kernel_ext::{
    cpu,
    prelude::*,
    rdma::{
        cm::{
            ConnectionParameters,
            Id, //
        },
        device::DeviceName,
        message_buffers::{
            Incoming,
            MessageBuffer,
            Outgoing, //
        },
        Access,
        Capabilities,
        CompletionQueue,
        PollContext,
        ProtectionDomain,
        QueuePair,
        RemoteMemory,
        SendBatch,
        SendRoom,
        WrId, //
    },
    sync::atomic::ordering, //
};
use proto::fabric::{
    command::Offer,
    MESSAGE_SIZE,
    RECEIVES, //
};
use rtrs_core::address::RESOURCE_OWNER;

use crate::{
    memory::{
        Memory,
        MAX_SGES, //
    },
    peer::{
        Peer,
        SEND,
        WORK_IDS, //
    }, //
};

/// The most send-side work requests in flight.
const SENDS: u32 = 8;

/// How long a work request of this end may take, in ms. It is above seven retries of the device
/// with the usual timeouts.
const SEND_TIMEOUT_MS: u32 = 30_000;

/// How long a device waits for an acknowledgement, in ms. It is so long that a machine that stands
/// still for a moment is not taken for a lost packet.
const ACK_TIMEOUT_MS: u32 = 2_000;

/// The length of a message that does not fit into the receives of the peer, in bytes.
const TOO_LONG: usize = MESSAGE_SIZE as usize + 64;

type Batch<'a> = SendBatch<'a, 1, MAX_SGES>;

/// A receive that has completed. Its place is posted again by [`Endpoint::post_again`].
#[derive(Clone, Copy)]
pub struct Received {
    index: u32,
    /// The length of the message, in bytes.
    pub len: u32,
    /// The immediate of the message, or 0.
    pub imm: u32,
    /// The key of this end that the message invalidated, or 0.
    pub rkey: u32,
    /// Whether the peer wrote to memory: the message has no bytes then.
    pub is_write: bool,
}

/// One end of a raw connection. Dropping it ends the connection, and sleeps.
///
/// # Invariants
///
/// Receive `i` of `receives` has the work request id `i`. The receives complete in the order in
/// which they were posted, which is that of their numbers. `next` is the number of the receive that
/// completes next.
pub struct Endpoint {
    queue_pair: QueuePair<Peer>,
    memory: Memory,
    receives: KVec<MessageBuffer<Incoming>>,
    message: MessageBuffer<Outgoing>,
    next: u32,
    max_sges: usize,
    mtu: u32,
}

impl Endpoint {
    /// Makes the queue pair of `id`, which has a device, and posts the receives. Sleeps.
    pub fn new(id: Id<Peer>) -> Result<Self> {
        let device = id.device().ok_or(ENODEV)?;
        let max_sges = (device.max_send_sge() as usize).clamp(1, MAX_SGES);
        let mtu = device.active_mtu(id.port_num())?;
        let domain = ProtectionDomain::new(device, RESOURCE_OWNER)?;
        let entries = SENDS + RECEIVES;
        let vector = cpu::current_cpu();
        let softirq = PollContext::Softirq;
        let queue = CompletionQueue::new(device, RESOURCE_OWNER, entries, vector, softirq)?;
        let memory = Memory::new(&domain)?;
        let mut receives = KVec::with_capacity(RECEIVES as usize, GFP_KERNEL)?;
        for _ in 0..RECEIVES {
            let buffer = MessageBuffer::new(&domain, MESSAGE_SIZE as usize)?;
            receives.push(buffer, GFP_KERNEL)?;
        }
        let message = MessageBuffer::new(&domain, TOO_LONG)?;
        let capabilities = Capabilities {
            max_send_wr: SENDS,
            max_recv_wr: RECEIVES,
            max_send_sge: max_sges as u32,
            max_recv_sge: 1,
        };
        let queue_pair = id
            .create_queue_pair(&domain, &queue, &capabilities, WORK_IDS)
            .map_err(|(_, error)| error)?;
        for (number, buffer) in (0..).zip(receives.iter()) {
            queue_pair.post_recv(WrId(number), buffer)?;
        }
        // INVARIANT: The receives were posted just now, in the order of their numbers.
        Ok(Self {
            queue_pair,
            memory,
            receives,
            message,
            next: 0,
            max_sges,
            mtu,
        })
    }

    /// The events of the connection.
    pub fn peer(&self) -> &Arc<Peer> {
        self.queue_pair.handler()
    }

    /// The MTU of this end's port, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The name of the device.
    pub fn device_name(&self) -> DeviceName {
        self.queue_pair.domain().device().name()
    }

    /// The memory of this end.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The offer of this end to the other end.
    pub fn offer(&self) -> Offer {
        let RemoteMemory { address, rkey } = self.memory.target();
        Offer {
            mtu: self.mtu,
            rkey,
            address,
            cpus: cpu::online_cpus(),
        }
    }

    /// Connects to the server within `timeout_ms`, and returns the server's offer. The route has
    /// been resolved before. `EPROTO` if the server is not one of this test. Sleeps.
    pub fn connect(&mut self, timeout_ms: u32) -> Result<Offer> {
        let offer = self.offer().to_bytes();
        let parameters = ConnectionParameters {
            ack_timeout_ms: ACK_TIMEOUT_MS,
            ..ConnectionParameters::default()
        };
        self.queue_pair.connect(&offer, &parameters)?;
        let peer = self.peer();
        peer.wait(&peer.progress, timeout_ms)?;
        peer.offer.as_ref().copied().ok_or(EPROTO)
    }

    /// Accepts the connection. A client that finds no receive tries once more, not for ever.
    /// Sleeps.
    pub fn accept(&mut self) -> Result {
        let offer = self.offer().to_bytes();
        let parameters = ConnectionParameters {
            rnr_retry_count: 1,
            ack_timeout_ms: ACK_TIMEOUT_MS,
            ..ConnectionParameters::default()
        };
        self.queue_pair.accept(&offer, &parameters)
    }

    /// Posts the work request that `add` adds, and waits for its end. `ECONNRESET` if it failed;
    /// then [`Peer::failure`] gives the status. Sleeps.
    fn run(&self, add: impl FnOnce(&mut Batch<'_>) -> Result) -> Result {
        let mut room = SendRoom::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        add(&mut batch)?;
        self.queue_pair.post(&mut batch)?;
        let peer = self.peer();
        peer.wait(&peer.finished, SEND_TIMEOUT_MS)
    }

    /// Lets the peer write to this end's memory. Sleeps.
    pub fn register(&self) -> Result {
        let region = self.memory.region();
        self.run(|batch| batch.register(SEND, true, region, Access::RemoteWrite))
    }

    /// Takes that right away from the peer. Sleeps.
    pub fn end_key(&self) -> Result {
        let rkey = self.memory.region().rkey();
        self.run(|batch| batch.invalidate_key(SEND, true, rkey))
    }

    /// Sends a message, and `imm` as the immediate, if any. `EINVAL` if the message is longer than
    /// [`MESSAGE_SIZE`] by more than 64 bytes. Sleeps.
    pub fn send(&self, bytes: &[u8], imm: Option<u32>) -> Result {
        self.message.copy_in(0, bytes)?;
        self.run(|batch| {
            if !bytes.is_empty() {
                batch.add(self.message.sge(bytes.len())?)?;
            }
            match imm {
                Some(imm) => batch.send_with_imm(SEND, true, imm),
                None => batch.send(SEND, true),
            }
        })
    }

    /// Invalidates a key of the peer by a message without bytes. Sleeps.
    pub fn send_invalidate(&self, rkey: u32) -> Result {
        self.run(|batch| batch.send_with_invalidate(SEND, true, rkey))
    }

    /// Writes `len` bytes of the pattern of `seed` to the peer's memory, in scatter entries of at
    /// most `piece` bytes. The last work request has the immediate `imm`, if any. Sleeps.
    pub fn write(
        &mut self,
        to: RemoteMemory,
        len: u32,
        seed: u64,
        piece: usize,
        imm: Option<u32>,
    ) -> Result {
        let len = len as usize;
        self.memory.fill_source(seed, len)?;
        let mut at = 0;
        loop {
            let mut end = at;
            self.run(|batch| {
                end = self
                    .memory
                    .add(batch, at, len, piece.max(1), self.max_sges)?;
                if end == at && end < len {
                    return Err(EINVAL);
                }
                let address = to.address.wrapping_add(at as u64);
                let to = RemoteMemory { address, ..to };
                match imm.filter(|_| end == len) {
                    Some(imm) => batch.write_with_imm(SEND, true, to, imm),
                    None => batch.rdma_write(SEND, true, to),
                }
            })?;
            at = end;
            if at >= len {
                return Ok(());
            }
        }
    }

    /// Waits for the next message of the peer, at most `timeout_ms`. `ETIMEDOUT` after that time,
    /// `ECONNRESET` if the connection is over. Sleeps.
    pub fn receive(&mut self, timeout_ms: u32) -> Result<Received> {
        let peer = self.queue_pair.handler();
        peer.wait(&peer.received, timeout_ms)?;
        let slot = peer.slots.get(self.next as usize).ok_or(EIO)?;
        let received = Received {
            index: self.next,
            is_write: slot.is_write.load(ordering::Acquire) != 0,
            len: slot.len.load(ordering::Relaxed),
            imm: slot.imm.load(ordering::Relaxed),
            rkey: slot.rkey.load(ordering::Relaxed),
        };
        // INVARIANT: The receive with the next number completes next.
        self.next = self.next.wrapping_add(1) % RECEIVES;
        Ok(received)
    }

    /// Takes messages, and posts no receive again. Returns `ECONNRESET` when the connection is
    /// over, or `ETIMEDOUT` when no message has come for `timeout_ms`. Sleeps.
    pub fn receive_until_over(&mut self, timeout_ms: u32) -> Result {
        for _ in 0..RECEIVES {
            self.receive(timeout_ms)?;
        }
        Ok(())
    }

    /// Copies the beginning of a message. `EINVAL` if `bytes` is longer than a receive.
    pub fn copy_out(&self, received: &Received, bytes: &mut [u8]) -> Result {
        let buffer = self.receives.get(received.index as usize).ok_or(EINVAL)?;
        buffer.copy_out(bytes)
    }

    /// Posts the receive again, for a later message. Each receive is to be posted once, in the
    /// order in which the messages came. Any context.
    pub fn post_again(&self, received: Received) -> Result {
        let buffer = self.receives.get(received.index as usize).ok_or(EINVAL)?;
        self.queue_pair.post_recv(WrId(received.index), buffer)
    }
}
