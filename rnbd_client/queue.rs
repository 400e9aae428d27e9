// SPDX-License-Identifier: GPL-2.0

//! The way of a block request to the transport, and back.
//!
//! A request's tag is the number of its permit, and so of the server's chunk that it uses. But the
//! number may be in use: the server may still be at work on an earlier request of that number,
//! which was ended here. Then the request moves to another number. While the transport has a
//! request, the request is in the table of its session ([`InFlight`]), from where its completion
//! takes it.

use kernel::{
    sync::{
        rcu,
        Arc,
        ArcBorrow, //
    }, //
};
use kernel_ext::{
    block::{
        disk::{
            UniqueIdKind,
            UNIQUE_ID_LEN, //
        },
        mq::{
            expired::ExpiredRequest,
            operations::{
                HwQueue,
                Operations,
                RequestList, //
            },
            request::{
                Op,
                OwnedRequest,
                Refusal, //
            },
            reservation::{
                Change,
                Failure,
                Held,
                Keys, //
            }, //
        },
        status::Status, //
    },
    prelude::*, //
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
    SubmissionRoom,
    SubmitError, //
};

use crate::{
    identity,
    in_flight::InFlight,
    remote_device::RemoteDevice,
    reservations,
    LocalModule, //
};

/// A session, as the requests of its disks need it.
pub(crate) struct IoSession {
    pub(crate) transport: Arc<rtrs_client::Session>,
    pub(crate) in_flight: Arc<InFlight>,
}

/// The block driver.
pub(crate) struct Queue;

#[vtable]
impl Operations for Queue {
    type OwnerModule = LocalModule;
    type SetData = IoSession;
    type DiskData = RemoteDevice;

    #[inline(always)]
    fn queue_rq(
        queue: &HwQueue<'_, Self>,
        request: OwnedRequest<RemoteDevice>,
    ) -> Result<(), Refusal<RemoteDevice>> {
        let session = queue.set();
        submit(queue, session, request, |permit, kind, header| {
            session.transport.send(permit, kind, queue.index(), header)
        })
    }

    fn queue_rqs(mut requests: RequestList<'_, Self>) {
        let Some(session) = requests.set() else {
            return;
        };
        let guard = rcu::read_lock();
        let mut room = SubmissionRoom::EMPTY;
        let mut submission = Submission::new(&session.transport, &guard, &mut room);
        while let Some((queue, request)) = requests.take_next() {
            let submitted = submit(&queue, session, request, |permit, kind, header| {
                submission.add(permit, kind, queue.index(), header)
            });
            if let Err(refusal) = submitted {
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

    fn timeout(request: &ExpiredRequest<'_, RemoteDevice, IoSession>) -> bool {
        let IoSession {
            transport,
            in_flight,
        } = request.set();
        in_flight.expired(transport, request)
    }

    fn wwid(device: &RemoteDevice) -> &[u8] {
        device.wwid().as_bytes()
    }

    fn unique_id(
        device: &RemoteDevice,
        kind: UniqueIdKind,
    ) -> Option<([u8; UNIQUE_ID_LEN], usize)> {
        identity::unique_id(device.wwid(), kind)
    }

    fn change_reservation(device: &RemoteDevice, change: &Change) -> Result<(), Failure> {
        reservations::change(device, change)
    }

    fn reservation(device: &RemoteDevice) -> Result<Held, Failure> {
        reservations::reservation(device)
    }

    fn reservation_keys(device: &RemoteDevice, keys: &mut [u64]) -> Result<Keys, Failure> {
        reservations::keys(device, keys)
    }

    fn open(device: ArcBorrow<'_, RemoteDevice>, for_writing: bool) -> Result {
        device.opened_by_user(for_writing)
    }

    fn release(device: ArcBorrow<'_, RemoteDevice>) {
        device.closed_by_user();
    }
}

/// Has the transport send a request by `send`, or gives it back.
#[inline(always)]
fn submit<'a>(
    queue: &HwQueue<'_, Queue>,
    session: &'a IoSession,
    mut request: OwnedRequest<RemoteDevice>,
    send: impl FnOnce(Permit<'a>, Kind, &[u8]) -> Result<(), SubmitError>,
) -> Result<(), Refusal<RemoteDevice>> {
    let device = queue.disk();
    let (kind, message) = match message(device, &request) {
        Ok(message) => message,
        Err(status) => return end_unsent(request, status),
    };
    let tag = request.tag();
    let Some(mut permit) = session.transport.permit(tag) else {
        return submit_moved(queue, session, request, kind, &message);
    };
    if let Err(error) = set_data(&mut permit, &mut request, &message) {
        // Dropping the permit empties the table of its data, so that the request can be handed
        // back.
        drop(permit);
        return Err(refuse(device, request, SubmitError::Failed(error)));
    }
    // The request may complete before the transport returns.
    if let Err(request) = session.in_flight.table().insert(request) {
        drop(permit);
        return Err(refuse(device, request, SubmitError::Failed(EINVAL)));
    }
    match send(permit, kind, &message.to_bytes()) {
        Ok(()) => Ok(()),
        // A request that the transport did not take does not complete, so it is still there.
        Err(error) => match session.in_flight.take(tag) {
            Some(request) => Err(refuse(device, request, error)),
            None => Ok(()),
        },
    }
}

/// Gives the data of a request to the transport, if there is any.
#[inline(always)]
fn set_data(
    permit: &mut Permit<'_>,
    request: &mut OwnedRequest<RemoteDevice>,
    message: &Io,
) -> Result {
    if !matches!(message.rw.op, rnbd::Op::Read | rnbd::Op::Write) {
        return Ok(());
    }
    permit.scatter().ok_or(EBUSY)?.set_request(request)
}

/// Does what [`submit`] does, for a request whose tag's permit is not free: the server is still at
/// work on an earlier request of that number, or another request has moved there.
#[cold]
#[inline(never)]
fn submit_moved(
    queue: &HwQueue<'_, Queue>,
    session: &IoSession,
    mut request: OwnedRequest<RemoteDevice>,
    kind: Kind,
    message: &Io,
) -> Result<(), Refusal<RemoteDevice>> {
    let device = queue.disk();
    let tag = request.tag();
    let Some(mut permit) = session.in_flight.other_permit(&session.transport, tag) else {
        return Err(request.refuse(Status::RESOURCE));
    };
    if let Err(error) = set_data(&mut permit, &mut request, message) {
        drop(permit);
        return Err(refuse(device, request, SubmitError::Failed(error)));
    }
    if let Err(request) = session.in_flight.table().insert(request) {
        drop(permit);
        return Err(refuse(device, request, SubmitError::Failed(EINVAL)));
    }
    let header = message.to_bytes();
    match session
        .transport
        .send_moved(permit, kind, queue.index(), &header)
    {
        Ok(()) => Ok(()),
        Err(error) => match session.in_flight.take(tag) {
            Some(request) => Err(refuse(device, request, error)),
            None => Ok(()),
        },
    }
}

/// The message that tells the server what to do; or the status of a request that ends without one:
/// [`Status::OK`] for a flush of a disk without a volatile write cache.
#[inline(always)]
fn message(
    device: &RemoteDevice,
    request: &OwnedRequest<RemoteDevice>,
) -> Result<(Kind, Io), Status> {
    let device_id = device
        .mapped_id()
        .ok_or_else(|| device.status_if_not_mapped(request.is_fail_fast()))?;
    let mut flags = IoFlags::NONE;
    let (op, kind) = match request.op() {
        Op::Read => (rnbd::Op::Read, Kind::Read),
        Op::Write => (rnbd::Op::Write, Kind::Write),
        // Disks always offer a write cache to the block layer, since a stacked driver (dm, md) asks
        // for it only once: when it is set up. A server may come back with a cache later.
        Op::Flush if !device.has_write_cache() => return Err(Status::OK),
        // The direction as in C, which goes by what the block layer says of the operation.
        Op::Flush => (rnbd::Op::Flush, Kind::Read),
        Op::Discard => (rnbd::Op::Discard, Kind::HeaderOnly),
        Op::SecureErase => (rnbd::Op::SecureErase, Kind::HeaderOnly),
        Op::WriteZeroes => {
            flags = flags.with_if(IoFlags::NOUNMAP, request.is_nounmap());
            (rnbd::Op::WriteZeroes, Kind::HeaderOnly)
        }
        Op::Other(_) => return Err(Status::NOT_SUPPORTED),
    };
    if op.changes_device() && device.access_mode.is_read_only() {
        // The disk may have been set writable by hand.
        return Err(Status::IO_ERROR);
    }
    let flags = flags
        .with_if(IoFlags::SYNC, request.is_sync())
        .with_if(IoFlags::FUA, request.is_fua())
        .with_if(IoFlags::PREFLUSH, request.is_preflush());
    // The block layer gives a flush a sector of -1, which a C server refuses for disks with blocks
    // of more than 512 bytes.
    let sector = if op == rnbd::Op::Flush {
        0
    } else {
        request.sector()
    };
    let message = Io {
        device_id,
        sector,
        rw: Rw { op, flags },
        bi_size: request.bytes(),
        prio: request.priority(),
    };
    Ok((kind, message))
}

/// Ends a request of which the server is not told.
#[cold]
fn end_unsent(
    request: OwnedRequest<RemoteDevice>,
    status: Status,
) -> Result<(), Refusal<RemoteDevice>> {
    if status == Status::OK {
        request.end(status);
        Ok(())
    } else {
        Err(request.refuse(status))
    }
}

/// Has the block layer offer a request again that the transport does not take, or fails it.
#[cold]
fn refuse(
    device: &RemoteDevice,
    request: OwnedRequest<RemoteDevice>,
    error: SubmitError,
) -> Refusal<RemoteDevice> {
    if device.waits_after(error, request.is_fail_fast()) {
        request.refuse(Status::RESOURCE)
    } else {
        let error = error.to_error();
        device.io_failed(request.op(), error);
        request.refuse(Status::from_error(error))
    }
}
