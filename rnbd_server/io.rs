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
    chunk::ChunkSlice,
    pr_err_ratelimited,
    trace, //
};
use proto::{
    rnbd::{
        BlockOp,
        Io,
        IoFlags,
        RangeOp, //
    },
    Errno, //
};
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
    /// The bytes that a successful read has produced.
    produced: u32,
}

impl Completion for IoCompletion {
    type Memory = ChunkSlice;

    fn done(self, result: Result) {
        self.op.respond(result.map(|()| self.produced));
    }
}

/// The kernel's error of one of the protocol's.
pub(crate) fn error(errno: Errno) -> Error {
    Error::from_errno(errno.to_kernel())
}

/// Lets a block request be traced; `len` is that of its message.
#[inline]
pub(crate) fn trace(session: &Session, op: &Operation, io: &Io, len: usize) {
    trace::process_rdma(|| trace::BlockRequest {
        session: session.name().as_cstr(),
        sector: io.sector,
        device_id: io.device_id,
        rw: io.rw.to_wire(),
        bi_size: io.bi_size,
        data_len: u32::try_from(op.data_len()).unwrap_or(u32::MAX),
        usr_len: u32::try_from(len).unwrap_or(u32::MAX),
        prio: io.prio,
        ver: session.version(),
        is_write: op.direction() == Direction::Write,
    });
}

/// Does a block request, which is answered when it is done or if it makes no sense.
///
/// Process context; may sleep for memory.
pub(crate) fn submit(session: &Session, op: Operation, io: &Io) {
    // A device that the client has not opened, or that was closed here by force.
    let Some(device) = session.devices().enter(io.device_id) else {
        pr_err_ratelimited!(
            "session {:?}: request for unknown device id {}\n",
            session.name().as_cstr(),
            io.device_id
        );
        op.respond(Err(ENOTCONN));
        return;
    };
    let checked = check(session, &op, io);
    let submitted = match checked {
        Ok((block_op, position)) => start(device, op, io, block_op, position),
        Err(error) => Err((op, error)),
    };
    if let Err((op, error)) = submitted {
        op.respond(Err(error));
    }
}

/// What the request asks for, if that makes sense.
fn check(session: &Session, op: &Operation, io: &Io) -> Result<(BlockOp, Position)> {
    let data_len = u32::try_from(op.data_len())?;
    let block_op = io
        .block_op(op.direction() == Direction::Read, data_len)
        .inspect_err(|refused| {
            pr_err_ratelimited!(
                "session {:?}: {}\n",
                session.name().as_cstr(),
                refused.message().as_str()
            );
        })
        .map_err(|refused| error(refused.errno()))?;
    // The block layer would warn about these.
    let flags = io.rw.flags;
    let durable = flags.contains(IoFlags::FUA) || flags.contains(IoFlags::PREFLUSH);
    if durable && !matches!(block_op, BlockOp::Write { .. } | BlockOp::Flush) {
        pr_err_ratelimited!(
            "session {:?}: {:?} with FUA or PREFLUSH\n",
            session.name().as_cstr(),
            io.rw.op
        );
        return Err(EINVAL);
    }
    let prio = io.prio_for(session.version());
    let Some(priority) = Priority::new(prio) else {
        pr_err_ratelimited!(
            "session {:?}: unknown IO priority {:#x}\n",
            session.name().as_cstr(),
            prio
        );
        return Err(EINVAL);
    };
    let position = Position {
        sector: io.sector,
        priority,
        sync: io.rw.flags.contains(IoFlags::SYNC),
    };
    Ok((block_op, position))
}

/// Submits a bio; gives the operation back if that fails.
fn start(
    device: HandleUse,
    mut op: Operation,
    io: &Io,
    block_op: BlockOp,
    at: Position,
) -> Result<(), (Operation, Error)> {
    let Some(data) = op.take_data() else {
        return Err((op, EINVAL));
    };
    let mut completion = IoCompletion { op, produced: 0 };
    let submitted = match (block_op, device) {
        (BlockOp::Read { len, .. }, device) => {
            completion.produced = len;
            match device {
                HandleUse::ReadOnly(device) => device.read(at, data, completion),
                HandleUse::ReadWrite(device) => device.read(at, data, completion),
            }
        }
        (BlockOp::Flush, HandleUse::ReadOnly(device)) => device.flush(at, completion),
        (BlockOp::Flush, HandleUse::ReadWrite(device)) => device.flush(at, completion),
        (BlockOp::Write { .. }, HandleUse::ReadWrite(device)) => {
            let flags = WriteFlags {
                fua: io.rw.flags.contains(IoFlags::FUA),
                preflush: io.rw.flags.contains(IoFlags::PREFLUSH),
            };
            device.write(at, flags, data, completion)
        }
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
    submitted.map_err(|refused| (refused.completion.op, refused.error))
}
