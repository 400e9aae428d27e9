// SPDX-License-Identifier: GPL-2.0

//! What the server sends on a connection: answers, new keys of chunks, heartbeats.

use kernel::prelude::*;
use kernel_ext::{
    cpu,
    pr_warn_ratelimited,
    rdma::{
        Opcode,
        QueuePairRef,
        WorkCompletion, //
    },
    sync::atomic::ordering, //
};
use proto::rtrs::{
    coalesced_responses::{
        self,
        MAX_COALESCED_SIZE, //
    },
    Imm,
    RkeyRsp, //
};

use super::ConnectionHandler;
use crate::transfer::{
    Answered,
    Transfer, //
};

impl ConnectionHandler {
    /// Something came from the server into receive `index`.
    #[inline]
    pub(super) fn received(
        &self,
        queue_pair: &QueuePairRef<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
    ) {
        let path = &self.incarnation.path;
        path.heartbeat.received();
        path.stats.completed_on(self.cpu, cpu::current_cpu());
        if let Some(immediate) = completion.written_imm() {
            self.immediate(queue_pair, Imm::decode(immediate));
        } else if let Err(why) = self.message(queue_pair, index, completion) {
            return self.fail(why);
        }
        if queue_pair.receive_again(index).is_err() {
            self.fail("a receive could not be posted");
        }
    }

    /// A message came from the server into receive `index`; says what is wrong with it.
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
                    if !self.joint_answers(queue_pair, index, completion, count) {
                        return Err("malformed answers");
                    }
                } else if !self.new_key(index, completion, immediate) {
                    return Err("answer with a malformed key");
                } else {
                    self.immediate(queue_pair, immediate);
                }
            }
            (Some(Opcode::Receive), None) => match completion.invalidated_rkey() {
                // The answer to the request that used the key follows.
                Some(rkey) => self.invalidated_rkey.store(rkey, ordering::Relaxed),
                None => return Err("message of the server without a meaning"),
            },
            _ => return Err("completion of an unknown kind"),
        }
        Ok(())
    }

    /// Finishes the requests that a message coalesced_responses; says whether it made sense.
    fn joint_answers(
        &self,
        queue_pair: &QueuePairRef<Self>,
        index: u32,
        completion: &WorkCompletion<'_>,
        count: u32,
    ) -> bool {
        let (Some(transfer), Some(buffers)) =
            (self.incarnation.transfer(), self.receive_buffers.as_ref())
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
        if !transfer.takes_joint_answers() || buffer.copy_out(bytes).is_err() {
            return false;
        }
        let Some(tags) = coalesced_responses::parse(bytes, count) else {
            return false;
        };
        for tag in tags {
            self.answered_well(queue_pair, transfer, u32::from(tag));
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

    /// The device does not use the data of request `tag` any more.
    pub(super) fn used(&self, tag: u32) {
        let request = self
            .incarnation
            .transfer()
            .and_then(|transfer| transfer.used(tag));
        if let Some(request) = request {
            self.incarnation.finish(request);
        }
    }

    /// The server has answered request `tag` and others, and all of them well.
    #[inline(never)]
    fn answered_well(&self, queue_pair: &QueuePairRef<Self>, transfer: &Transfer, tag: u32) {
        self.answered(queue_pair, transfer, tag, Ok(()), false);
    }

    /// The server has answered request `tag`.
    #[inline(always)]
    fn answered(
        &self,
        queue_pair: &QueuePairRef<Self>,
        transfer: &Transfer,
        tag: u32,
        answer: Result,
        invalidated: bool,
    ) {
        match transfer.answered(self, queue_pair, tag, answer, invalidated) {
            Answered::Finished(request) => self.incarnation.finish(request),
            Answered::InUse => {}
            Answered::Failed => self.fail("an invalidation could not be posted"),
            Answered::Unknown => self.unknown(tag),
            Answered::Misdirected => self.fail("answer to a request of another connection"),
        }
    }

    /// The server has answered what nobody asked.
    #[cold]
    fn unknown(&self, tag: u32) {
        pr_warn_ratelimited!(
            "{}: answer to request {}, which is not in flight\n",
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
        let Some(transfer) = self.incarnation.transfer() else {
            return self.fail("answer before the first request");
        };
        let answer = match errno {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        };
        self.answered(queue_pair, transfer, msg_id, answer, invalidated);
    }

    /// An immediate that is not the answer to a request.
    #[inline(never)]
    fn other_immediate(&self, queue_pair: &QueuePairRef<Self>, immediate: Imm) {
        let path = &self.incarnation.path;
        match immediate {
            Imm::HbMsg => {
                if self.incarnation.beats.answer(queue_pair).is_err() {
                    self.fail("a heartbeat could not be answered");
                }
            }
            Imm::HbAck => path.heartbeat.acknowledged(),
            Imm::PathEnded { path: number } => path.session.path_ended(number),
            Imm::IoReq { .. }
            | Imm::IoRsp { .. }
            | Imm::IoRsps { .. }
            | Imm::PathEnd { .. }
            | Imm::Unknown { .. } => {
                pr_warn_ratelimited!("{}: unknown immediate of the server\n", path.name_text());
            }
        }
    }
}
