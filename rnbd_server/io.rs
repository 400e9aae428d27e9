// SPDX-License-Identifier: GPL-2.0

//! Block requests of clients.

use kernel_ext::{
    block::disk::{
        self,
        Completion,
        Position,
        Priority,
        Refused,
        Wait,
        WriteFlags, //
    },
    pr_err_ratelimited,
    prelude::*,
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
    file::FileUse,
    handle::HandleUse,
    io_completion::IoCompletion,
    latency,
    params,
    session::Session, //
};

/// Traces a block request; `len` is the length of its message.
#[inline]
pub(crate) fn trace(session: &Session, op: &Operation, io: &Io, len: usize) {
    tracepoint::process_rdma(|| tracepoint::BlockRequest {
        session: session.name().as_cstr(),
        sector: io.sector,
        device_id: io.device_id,
        rw: io.rw.to_wire(),
        bi_size: io.bi_size,
        data_len: op.data_len(),
        // At most `MAX_HDR_SIZE`.
        usr_len: len as u32,
        prio: io.prio,
        ver: session.version(),
        is_write: op.direction() == Direction::Write,
    })
}

/// Does a block request, which is responded to when it is done, or if it is invalid. A request that
/// would sleep and must not is deferred.
#[inline(always)]
pub(crate) fn submit(session: &Session, op: Operation, io: Io, wait: Wait) {
    let device = match wait {
        Wait::Never => match session.devices().enter(io.device_id) {
            Some(device) => device,
            None => return defer(op, &io),
        },
        Wait::Allowed => {
            let what = io.op_for_access(op.data_len());
            match session.devices().enter_deferred(io.device_id, what) {
                Ok(device) => device,
                Err(error) => return not_let_in(session, op, &io, error),
            }
        }
    };
    let op = op.begins(|| latency::note(io.device_id, io.rw.op));
    let is_read = op.direction() == Direction::Read;
    let prio = io.prio_for(session.version());
    let Some(priority) = Priority::granted(prio, || *params::REALTIME_PRIORITY.get()) else {
        return unknown_priority(session, op, io.prio);
    };
    let at = Position {
        sector: io.sector,
        priority,
    };
    let transfer = match device {
        device if !io.is_plain(is_read, op.data_len()) => {
            return submit_other(session, device, op, io, at, wait);
        }
        HandleUse::File(file) => return submit_to_file(file, op, io, at, wait),
        HandleUse::ReadOnly(device) if is_read => Ok(device.reading(wait)),
        HandleUse::ReadWrite(device) if is_read => Ok(device.read_only().reading(wait)),
        HandleUse::ReadWrite(device) => device.writing(WriteFlags::default(), wait),
        HandleUse::ReadOnly(_) => Err(EROFS),
    };
    match transfer {
        Ok(transfer) => {
            if let Err(refused) = transfer.submit(at, IoCompletion { op, io }) {
                answer_refused(refused, wait);
            }
        }
        Err(error) => op.respond(Err(error)),
    }
}

/// Responds to a request that the device does not take, or defers a request that would sleep.
#[cold]
#[inline(never)]
fn answer_refused(refused: Refused<IoCompletion>, wait: Wait) {
    let Refused { completion, error } = refused;
    if wait == Wait::Never && error == EAGAIN {
        completion.again();
    } else {
        completion.op.respond(Err(error));
    }
}

/// Does a block request that is not an ordinary read or write.
#[inline(never)]
fn submit_other(
    session: &Session,
    device: HandleUse,
    op: Operation,
    io: Io,
    at: Position,
    wait: Wait,
) {
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
            "session {:?}: refused: {:?} with FUA or PREFLUSH, which only writes and flushes may \
             have\n",
            session.name().as_cstr(),
            io.rw.op
        );
        return op.respond(Err(EINVAL));
    }
    let completion = IoCompletion { op, io };
    let submitted = match device {
        HandleUse::ReadOnly(device) => match block_op {
            BlockOp::Read { .. } => device.reading(wait).submit(at, completion),
            BlockOp::Flush => device.flush(wait, at, completion),
            BlockOp::Write { .. } | BlockOp::Range { .. } => Err(Refused {
                completion,
                error: EROFS,
            }),
        },
        HandleUse::ReadWrite(device) => match block_op {
            BlockOp::Read { .. } => device.read_only().reading(wait).submit(at, completion),
            BlockOp::Flush => device.flush(wait, at, completion),
            BlockOp::Range { .. } if wait == Wait::Never => return completion.again(),
            BlockOp::Range { op, len, .. } => device.range(range_op(op), at, len, completion),
            BlockOp::Write { .. } => match device.writing(durable, wait) {
                Ok(transfer) => transfer.submit(at, completion),
                Err(error) => Err(Refused { completion, error }),
            },
        },
        HandleUse::File(file) => match block_op {
            BlockOp::Read { .. } => file.read(wait, at, completion),
            BlockOp::Flush => file.flush(wait, at, completion),
            BlockOp::Range { op, len, .. } => file.range(range_op(op), wait, at, len, completion),
            BlockOp::Write { .. } => file.write(durable, wait, at, completion),
        },
    };
    if let Err(refused) = submitted {
        answer_refused(refused, wait);
    }
}

/// Does an ordinary read or write of a file.
#[inline(never)]
fn submit_to_file(file: FileUse, op: Operation, io: Io, at: Position, wait: Wait) {
    let is_read = op.direction() == Direction::Read;
    let completion = IoCompletion { op, io };
    let submitted = if is_read {
        file.read(wait, at, completion)
    } else {
        file.write(WriteFlags::default(), wait, at, completion)
    };
    if let Err(refused) = submitted {
        answer_refused(refused, wait);
    }
}

/// The operation on sectors without data, as the block layer knows it.
fn range_op(op: RangeOp) -> disk::RangeOp {
    match op {
        RangeOp::Discard => disk::RangeOp::Discard,
        RangeOp::SecureErase => disk::RangeOp::SecureErase,
        RangeOp::WriteZeroes { no_unmap } => disk::RangeOp::WriteZeroes { no_unmap },
    }
}

/// Defers a request: requests that wait for the device must not be overtaken, or reservations have
/// to be looked at, or there is no such device.
#[cold]
#[inline(never)]
fn defer(op: Operation, io: &Io) {
    op.defer(&io.to_bytes());
}

/// Responds to a request that is not let in: the client has not opened the device, or the device
/// was closed here by force, or a reservation forbids the request.
#[cold]
#[inline(never)]
fn not_let_in(session: &Session, op: Operation, io: &Io, error: Error) {
    if error == ENOTCONN {
        pr_err_ratelimited!(
            "session {:?}: request for unknown device id {}\n",
            session.name().as_cstr(),
            io.device_id
        );
    }
    op.respond(Err(error));
}

/// Refuses an invalid request.
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

/// Refuses a request whose priority the block layer does not know.
#[cold]
#[inline(never)]
fn unknown_priority(session: &Session, op: Operation, prio: u16) {
    pr_err_ratelimited!(
        "session {:?}: refused: a request with the unknown IO priority {:#x}\n",
        session.name().as_cstr(),
        prio
    );
    op.respond(Err(EINVAL));
}
