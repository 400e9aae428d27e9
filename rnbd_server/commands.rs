// SPDX-License-Identifier: GPL-2.0

//! Messages about persistent reservations.

use kernel::sync::Arc;
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*, //
};
use proto::rnbd::{
    Command,
    Report,
    Reservation, //
};
use rtrs_core::error::from_errno;
use rtrs_server::Operation;

use crate::{
    session::Session,
    session_device::SessionDevice, //
};

/// Responds to a message. On the worker of the device, which it holds up for half a second or so:
/// sleeps.
#[inline(never)]
pub(crate) fn serve(session: &Session, op: Operation, message: &Reservation) {
    let result = run(session, &op, message);
    op.respond(result);
}

/// Does what a message asks for; returns the length of the response in bytes.
fn run(session: &Session, op: &Operation, message: &Reservation) -> Result<u32> {
    let device = session.devices().get(message.device_id).ok_or(ENOTCONN)?;
    let command = message.command().map_err(|refused| {
        pr_err_ratelimited!(
            "session {:?}: {}\n",
            session.name().as_cstr(),
            refused.message().as_str()
        );
        from_errno(refused.errno())
    })?;
    match command {
        Some(command) => change(&device, message, &command).map(|()| 0),
        None => report(&device, op),
    }
}

/// Writes how the disk is reserved; returns the length of the response in bytes.
#[inline(never)]
fn report(device: &SessionDevice, op: &Operation) -> Result<u32> {
    op.write_response(&device.reservations().report().to_bytes())?;
    Ok(Report::SIZE as u32)
}

/// Does a command, unless it has been done and this is its repetition, and waits for the requests
/// that it forbids. `EPERM` if the client may only read the disk.
fn change(device: &Arc<SessionDevice>, message: &Reservation, command: &Command) -> Result {
    if device.mode().is_read_only() {
        return Err(EPERM);
    }
    let reservations = device.reservations();
    {
        // A copy that comes by another path meanwhile finds the result.
        let mut last = device.last_command().lock();
        match *last {
            Some((done, result)) if done == *message => result?,
            _ => {
                let result = reservations.execute(device.machine(), command);
                *last = Some((*message, result));
                result?;
            }
        }
    }
    reservations.wait()
}
