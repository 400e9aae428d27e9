// SPDX-License-Identifier: GPL-2.0

//! Messages of the server on a connection: responses, new keys of chunks, heartbeats.

use kernel_ext::{
    cpu,
    pr_warn_ratelimited,
    prelude::*,
    rdma::{
        Opcode,
        QueuePairRef,
        WorkCompletion, //
    }, //
};
use proto::rtrs::{
    coalesced_responses::{
        self,
        MAX_COALESCED_SIZE, //
    },
    Imm,
    RkeyRsp, //
};
use rtrs_core::connection::SERVICE_CID;

use super::ConnectionHandler;
use crate::{
    incarnation::PathEvents,
    requests::{
        response::Mismatch,
        PathRequests, //
    }, //
};

impl<P: PathEvents> ConnectionHandler<P> {
    /// Handles a completion of receive `index`.
    #[inline]
    pub(super) fn received(
        &self,
        queue_pair: &QueuePairRef<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
    ) {
        let path = &self.incarnation.path;
        path.heartbeat().received();
        path.stats().completed_on(self.cpu, cpu::current_cpu());
        if let Some(immediate) = completion.written_imm() {
            self.immediate(queue_pair, Imm::decode(immediate));
        } else if let Err(why) = self.message(queue_pair, index, completion) {
            return self.fail(why);
        }
        if queue_pair.receive_again(index).is_err() {
            self.fail("a receive could not be posted");
        }
    }

    /// Handles a message in receive `index`. The error says what is wrong with the message.
    #[inline(never)]
    fn message(
        &self,
        queue_pair: &QueuePairRef<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
    ) -> Result<(), &'static str> {
        match (completion.opcode(), completion.imm()) {
            (Some(Opcode::Receive), Some(immediate)) => {
                let immediate = Imm::decode(immediate);
                if let Imm::IoRsps { count } = immediate {
                    if !self.coalesced_responses(queue_pair, index, completion, count) {
                        return Err("malformed responses");
                    }
                } else if !self.new_key(index, completion, immediate) {
                    return Err("response with a malformed key");
                } else {
                    self.immediate(queue_pair, immediate);
                }
            }
            // An invalidation. The response to the request that used the key follows.
            (Some(Opcode::Receive), None) if queue_pair.note_invalidation(completion) => {}
            (Some(Opcode::Receive), None) => return Err("unknown message of the server"),
            _ => return Err("completion of an unknown kind"),
        }
        Ok(())
    }

    /// Finishes the requests that a message responds to. Returns whether the message was
    /// well-formed.
    fn coalesced_responses(
        &self,
        queue_pair: &QueuePairRef<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
        count: u32,
    ) -> bool {
        let (Some(requests), Some(buffers)) =
            (self.incarnation.requests(), self.receive_buffers.as_ref())
        else {
            return false;
        };
        let mut bytes = [0; MAX_COALESCED_SIZE];
        let (Some(buffer), Some(bytes)) = (
            buffers.get(index as usize),
            bytes.get_mut(..completion.byte_len() as usize),
        ) else {
            return false;
        };
        if !requests.takes_coalesced_responses() || buffer.copy_out(bytes).is_err() {
            return false;
        }
        let Some(tags) = coalesced_responses::parse(bytes, count) else {
            return false;
        };
        for tag in tags {
            self.responded_well(queue_pair, requests, u32::from(tag));
        }
        true
    }

    /// Takes the new key of a chunk. Returns whether the message was well-formed.
    fn new_key(&self, index: u32, completion: &WorkCompletion<'_>, immediate: Imm) -> bool {
        let Some(requests) = self.incarnation.requests() else {
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
        let message = match RkeyRsp::parse(bytes, &requests.layout) {
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
                requests.set_rkey(msg_id, message.rkey).is_ok()
            }
            _ => false,
        }
    }

    /// Handles a response without an error to request `tag`, in a message with other responses.
    #[inline(never)]
    fn responded_well(&self, queue_pair: &QueuePairRef<Self>, requests: &PathRequests, tag: u32) {
        self.responded(queue_pair, requests, tag, Ok(()), false);
    }

    /// Handles a response to request `tag`.
    #[inline(always)]
    fn responded(
        &self,
        queue_pair: &QueuePairRef<Self>,
        requests: &PathRequests,
        tag: u32,
        result: Result,
        invalidated: bool,
    ) {
        match requests.responded(queue_pair, self.cid, tag, result, invalidated) {
            Ok(()) => {}
            Err(Mismatch::Unposted) => self.fail("an invalidation could not be posted"),
            Err(Mismatch::Unknown) => self.unknown(tag),
            Err(Mismatch::Misdirected) => self.fail("response to a request of another connection"),
        }
    }

    /// Logs a response to a request that is not in flight.
    #[cold]
    fn unknown(&self, tag: u32) {
        pr_warn_ratelimited!(
            "{}: response to request {}, which is not in flight\n",
            self.incarnation.path.name_text(),
            tag
        );
    }

    #[inline]
    fn immediate(&self, queue_pair: &QueuePairRef<Self>, immediate: Imm) {
        let Imm::IoRsp {
            msg_id,
            errno,
            invalidated,
        } = immediate
        else {
            return self.other_immediate(queue_pair, immediate);
        };
        let Some(requests) = self.incarnation.requests() else {
            return self.fail("response before the first request");
        };
        let result = match errno {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        };
        self.responded(queue_pair, requests, msg_id, result, invalidated);
    }

    /// Whether the server may send doorbells on this connection.
    fn takes_doorbells(&self) -> bool {
        let requests = self.incarnation.requests();
        self.cid == SERVICE_CID && requests.is_some_and(PathRequests::takes_doorbells)
    }

    /// Handles an immediate that is not the response to a request.
    #[inline(never)]
    fn other_immediate(&self, queue_pair: &QueuePairRef<Self>, immediate: Imm) {
        let path = &self.incarnation.path;
        match immediate {
            Imm::HbMsg => {
                if self.incarnation.heartbeat.acknowledge(queue_pair).is_err() {
                    self.fail("a heartbeat could not be acknowledged");
                }
            }
            Imm::HbAck => path.heartbeat().acknowledged(),
            Imm::PathEnded { path: number } => path.path_ended(number),
            Imm::Doorbell { number } if self.takes_doorbells() => path.doorbell(number),
            Imm::IoReq { .. }
            | Imm::IoRsp { .. }
            | Imm::IoRsps { .. }
            | Imm::PathEnd { .. }
            | Imm::Doorbell { .. }
            | Imm::Unknown { .. } => {
                pr_warn_ratelimited!("{}: unknown immediate of the server\n", path.name_text());
            }
        }
    }
}
