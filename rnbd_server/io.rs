// SPDX-License-Identifier: GPL-2.0

//! Block requests of clients.

use kernel::prelude::*;
use kernel_ext::{
    block::bio::{
        self,
        Completion,
        Position,
        Priority,
        Refused,
        WriteFlags, //
    },
    pr_err_ratelimited,
    rdma::chunk::ChunkData,
    tracepoint, //
};
use proto::rnbd::{
    BlockOp,
    Io,
    IoError,
    IoFlags,
    RangeOp, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Direction,
    Operation, //
};

use crate::{
    handle::HandleUse,
    session::Session, //
};

/// Answers a request when its bio is finished.
pub(crate) struct IoCompletion {
    op: Operation,
}

impl Completion for IoCompletion {
    type Memory<'a> = ChunkData<'a>;

    #[inline]
    fn memory(&self) -> Option<ChunkData<'_>> {
        self.op.data()
    }

    #[inline]
    fn done(self, result: Result) {
        // A read that is successful has filled all of the data; of a write nobody asks.
        let len = self.op.data_len();
        self.op.respond(result.map(|()| len));
    }
}

/// Lets a block request be traced; `len` is that of its message.
#[inline]
pub(crate) fn trace(session: &Session, op: &Operation, io: &Io, len: usize) {
    tracepoint::process_rdma(|| tracepoint::BlockRequest {
        session: session.name().as_cstr(),
        sector: io.sector,
        device_id: io.device_id,
        rw: io.rw.to_wire(),
        bi_size: io.bi_size,
        data_len: op.data_len(),
        usr_len: u32::try_from(len).unwrap_or(u32::MAX),
        prio: io.prio,
        ver: session.version(),
        is_write: op.direction() == Direction::Write,
    });
}

/// Does a block request, which is answered when it is done or if it makes no sense.
///
/// Process context; may sleep for memory.
#[inline(always)]
pub(crate) fn submit(session: &Session, op: Operation, io: Io) {
    // A device that the client has not opened, or that was closed here by force.
    let Some(device) = session.devices().enter(io.device_id) else {
        return unknown_device(session, op, io.device_id);
    };
    let is_read = op.direction() == Direction::Read;
    let Some(priority) = Priority::new(io.prio_for(session.version())) else {
        return unknown_priority(session, op, io.prio);
    };
    let at = Position {
        sector: io.sector,
        priority,
        sync: io.rw.flags.contains(IoFlags::SYNC),
    };
    let transfer = match device {
        device if !io.is_plain(is_read, op.data_len()) => {
            return submit_other(session, device, op, io, at);
        }
        device if is_read => Ok(device.read_only().reading()),
        HandleUse::ReadWrite(device) => device.writing(WriteFlags::default()),
        HandleUse::ReadOnly(_) => Err(EROFS),
    };
    match transfer {
        Ok(transfer) => {
            if let Err(refused) = transfer.submit(at, IoCompletion { op }) {
                answer_refused(refused);
            }
        }
        Err(error) => op.respond(Err(error)),
    }
}

/// Answers what the device does not take.
#[cold]
#[inline(never)]
fn answer_refused(refused: Refused<IoCompletion>) {
    refused.completion.op.respond(Err(refused.error));
}

/// Does a block request that is not an ordinary read or write.
#[inline(never)]
fn submit_other(session: &Session, device: HandleUse, op: Operation, io: Io, at: Position) {
    let block_op = match io.block_op(op.direction() == Direction::Read, op.data_len()) {
        Ok(block_op) => block_op,
        Err(error) => return refuse(session, op, &error),
    };
    let durable = WriteFlags {
        fua: io.rw.flags.contains(IoFlags::FUA),
        preflush: io.rw.flags.contains(IoFlags::PREFLUSH),
    };
    let is_durable = durable != WriteFlags::default();
    if is_durable && !matches!(block_op, BlockOp::Write { .. } | BlockOp::Flush) {
        // The block layer would warn about it.
        pr_err_ratelimited!(
            "session {:?}: {:?} with FUA or PREFLUSH\n",
            session.name().as_cstr(),
            io.rw.op
        );
        return op.respond(Err(EINVAL));
    }
    let completion = IoCompletion { op };
    let submitted = match (block_op, device) {
        (BlockOp::Read { .. }, device) => device.read_only().reading().submit(at, completion),
        (BlockOp::Flush, device) => device.read_only().flush(at, completion),
        (BlockOp::Write { .. }, HandleUse::ReadWrite(device)) => match device.writing(durable) {
            Ok(transfer) => transfer.submit(at, completion),
            Err(error) => Err(Refused { completion, error }),
        },
        (BlockOp::Range { op, len, .. }, HandleUse::ReadWrite(device)) => {
            let op = match op {
                RangeOp::Discard => bio::RangeOp::Discard,
                RangeOp::SecureErase => bio::RangeOp::SecureErase,
                RangeOp::WriteZeroes { no_unmap } => bio::RangeOp::WriteZeroes { no_unmap },
            };
            device.range(op, at, len, completion)
        }
        (BlockOp::Write { .. } | BlockOp::Range { .. }, HandleUse::ReadOnly(_)) => Err(Refused {
            completion,
            error: EROFS,
        }),
    };
    if let Err(refused) = submitted {
        answer_refused(refused);
    }
}

/// The client names no device.
#[cold]
#[inline(never)]
fn unknown_device(session: &Session, op: Operation, device_id: u32) {
    pr_err_ratelimited!(
        "session {:?}: request for unknown device id {}\n",
        session.name().as_cstr(),
        device_id
    );
    op.respond(Err(ENOTCONN));
}

/// The request makes no sense.
#[cold]
#[inline(never)]
fn refuse(session: &Session, op: Operation, refused: &IoError) {
    pr_err_ratelimited!(
        "session {:?}: {}\n",
        session.name().as_cstr(),
        refused.message().as_str()
    );
    op.respond(Err(from_errno(refused.errno())));
}

/// The block layer does not know such a priority.
#[cold]
#[inline(never)]
fn unknown_priority(session: &Session, op: Operation, prio: u16) {
    pr_err_ratelimited!(
        "session {:?}: unknown IO priority {:#x}\n",
        session.name().as_cstr(),
        prio
    );
    op.respond(Err(EINVAL));
}
