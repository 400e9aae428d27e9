// SPDX-License-Identifier: GPL-2.0

//! The way of a block request to the transport.
//!
//! A request's tag is the number of its permit, and so of the server's chunk it uses. While the
//! transport has a request it is in the table of its session, from where the answer takes it.

use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};
use kernel_ext::block::{
    mq::{
        operations::{
            HwQueue,
            OpenMode,
            Operations,
            RequestList, //
        },
        request::{
            Op,
            OwnedRequest,
            Refusal, //
        },
        request_table::RequestTable, //
    },
    status::Status, //
};
use proto::rnbd::{
    self,
    Io,
    IoFlags,
    Rw, //
};
use rtrs_client::{
    Kind,
    Permit,
    Submission,
    SubmitError, //
};

use crate::{
    device::Device,
    session::Link, //
};

/// What the requests of a session need.
pub(crate) struct IoPath {
    pub(crate) transport: Arc<rtrs_client::Session>,
    pub(crate) link: Arc<Link>,
}

/// The block driver.
pub(crate) struct Queue;

#[vtable]
impl Operations for Queue {
    type SetData = IoPath;
    type DiskData = Device;

    #[inline]
    fn queue_rq(
        queue: &HwQueue<'_, Self>,
        request: OwnedRequest<Self>,
    ) -> Result<(), Refusal<Self>> {
        queue_request(queue, queue.set(), request, |permit, kind, header| {
            permit.submit(kind, queue.index(), header)
        })
    }

    fn queue_rqs(mut requests: RequestList<'_, Self>) {
        let Some(path) = requests.set() else {
            return;
        };
        let guard = rcu::read_lock();
        let mut room = MaybeUninit::uninit();
        let mut submission = Submission::new(&path.transport, &guard, &mut room);
        while let Some((queue, request)) = requests.take_next() {
            let queued = queue_request(&queue, path, request, |permit, kind, header| {
                submission.add(permit, kind, queue.index(), header)
            });
            if let Err(refusal) = queued {
                refusal.give_back();
            }
        }
    }

    fn poll(queue: &HwQueue<'_, Self>) -> u32 {
        let transport = &queue.set().transport;
        let first = u32::from(transport.num_irq_queues());
        match queue.index().checked_sub(first) {
            Some(polled) => transport.poll(polled),
            None => 0,
        }
    }

    fn open(device: ArcBorrow<'_, Device>, mode: OpenMode) -> Result {
        device.opened_by_user(mode)
    }

    fn release(device: ArcBorrow<'_, Device>) {
        device.closed_by_user();
    }
}

/// Gives a request to the transport by `submit`, or gives it back.
#[inline(always)]
fn queue_request<'a>(
    queue: &HwQueue<'_, Queue>,
    path: &'a IoPath,
    request: OwnedRequest<Queue>,
    submit: impl FnOnce(Permit<'a>, Kind, &[u8]) -> Result<(), SubmitError>,
) -> Result<(), Refusal<Queue>> {
    let device = queue.disk();
    let Some(in_flight) = path.link.in_flight.as_ref() else {
        return Err(request.refuse(Status::IO_ERROR));
    };
    let message = match message(device, &request) {
        Ok(message) => message,
        Err(status) => return end_unsent(request, status),
    };
    let Some(permit) = path.transport.permit(request.tag()) else {
        return Err(request.refuse(Status::RESOURCE));
    };
    match send(permit, &message, in_flight, request, submit) {
        Ok(()) => Ok(()),
        Err((request, error)) => Err(refuse(device, request, error)),
    }
}

/// Ends a request of which the server is told nothing.
#[cold]
fn end_unsent(request: OwnedRequest<Queue>, status: Status) -> Result<(), Refusal<Queue>> {
    if status == Status::OK {
        request.end(status);
        Ok(())
    } else {
        Err(request.refuse(status))
    }
}

/// What becomes of a request that the transport does not take.
#[cold]
fn refuse(device: &Device, request: OwnedRequest<Queue>, error: SubmitError) -> Refusal<Queue> {
    if device.waits_after(error) {
        request.refuse(Status::RESOURCE)
    } else {
        let error = error.to_error();
        device.io_failed(request.op(), error);
        request.refuse(Status::from_error(error))
    }
}

/// The message that tells the server what to do; or the status of a request that ends without one:
/// [`Status::OK`] for a flush of a disk without a volatile write cache.
#[inline]
fn message(device: &Device, request: &OwnedRequest<Queue>) -> Result<Io, Status> {
    let device_id = device
        .mapped_id()
        .ok_or_else(|| device.status_if_not_mapped())?;
    let op = match request.op() {
        Op::Read => rnbd::Op::Read,
        Op::Write => rnbd::Op::Write,
        // Disks always offer a write cache to the block layer, since a stacked driver (dm, md) asks
        // for it only once: when it is set up. A server may come back with a cache later.
        Op::Flush if !device.has_write_cache() => return Err(Status::OK),
        Op::Flush => rnbd::Op::Flush,
        Op::Discard => rnbd::Op::Discard,
        Op::SecureErase => rnbd::Op::SecureErase,
        Op::WriteZeroes => rnbd::Op::WriteZeroes,
        Op::Other(_) => return Err(Status::NOT_SUPPORTED),
    };
    if op.changes_device() && device.access_mode.is_read_only() {
        // The disk may have been set writable by hand.
        return Err(Status::IO_ERROR);
    }
    let flags = IoFlags::NONE
        .with_if(IoFlags::SYNC, request.is_sync())
        .with_if(IoFlags::FUA, request.is_fua())
        .with_if(IoFlags::PREFLUSH, request.is_preflush())
        .with_if(
            IoFlags::NOUNMAP,
            op == rnbd::Op::WriteZeroes && request.is_nounmap(),
        );
    // The block layer gives a flush a sector of -1, which a C server refuses for disks with blocks
    // of more than 512 bytes.
    let sector = if op == rnbd::Op::Flush {
        0
    } else {
        request.sector()
    };
    Ok(Io {
        device_id,
        sector,
        rw: Rw { op, flags },
        bi_size: request.bytes(),
        prio: request.priority(),
    })
}

/// Gives the request to the transport, or gives it back.
#[inline(always)]
fn send<'a>(
    mut permit: Permit<'a>,
    message: &Io,
    in_flight: &RequestTable<Queue>,
    request: OwnedRequest<Queue>,
    submit: impl FnOnce(Permit<'a>, Kind, &[u8]) -> Result<(), SubmitError>,
) -> Result<(), (OwnedRequest<Queue>, SubmitError)> {
    let (kind, has_data) = match message.rw.op {
        rnbd::Op::Read => (Kind::Read, true),
        rnbd::Op::Write => (Kind::Write, true),
        // As in C, which goes by what the block layer says of the operation's direction.
        rnbd::Op::Flush => (Kind::Read, false),
        _ => (Kind::HeaderOnly, false),
    };
    if has_data {
        let mapped = match permit.scatter() {
            Some(table) => request.map_to(table),
            None => Err(EBUSY),
        };
        if let Err(error) = mapped {
            // Empties the table, so that the request can be handed back.
            drop(permit);
            return Err((request, SubmitError::Failed(error)));
        }
    }
    let tag = request.tag();
    let bytes = message.to_bytes();
    // The answer may come before the transport returns.
    if let Err(request) = in_flight.insert(request) {
        drop(permit);
        return Err((request, SubmitError::Failed(EINVAL)));
    }
    match submit(permit, kind, &bytes) {
        Ok(()) => Ok(()),
        // The transport does not answer what it did not take, so the request is still there.
        Err(error) => match in_flight.take(tag) {
            Some(request) => Err((request, error)),
            None => Ok(()),
        },
    }
}
