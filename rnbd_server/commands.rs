// SPDX-License-Identifier: GPL-2.0

//! Messages about persistent reservations.

use kernel_ext::{
    pr_err_ratelimited,
    prelude::*, //
};
use proto::rnbd::{
    Command,
    CommandError,
    Report,
    Reservation, //
};
use rtrs_core::error::from_errno;
use rtrs_server::Operation;

use crate::{
    session::Session,
    session_device::SessionDevice, //
};

/// Responds to a message. Called on the worker for commands of the device, or on the session's
/// worker if the device was not open when the message came. Holds the worker up for half a second
/// or so. Sleeps.
#[inline(never)]
pub(crate) fn serve(session: &Session, op: Operation, message: &Reservation) {
    let result = run(session, &op, message);
    op.respond(result);
}

/// Does the work of a message; returns the length of the response in bytes.
fn run(session: &Session, op: &Operation, message: &Reservation) -> Result<u32> {
    let device = session.devices().get(message.device_id).ok_or(ENOTCONN)?;
    let command = message.command();
    match command.map_err(|refused| refuse(session, &refused))? {
        Some(command) => change(session, &device, message, &command).map(|()| 0),
        None => report(&device, op),
    }
}

/// Logs why a message is refused; returns the error number.
fn refuse(session: &Session, refused: &CommandError) -> Error {
    pr_err_ratelimited!(
        "session {:?}: {}\n",
        session.name().as_cstr(),
        refused.message().as_str()
    );
    from_errno(refused.errno())
}

/// Writes how the disk is reserved; returns the length of the response in bytes.
///
/// A client may act on a report as on a command. So the report, too, waits until the requests are
/// over that the reservation forbids.
#[inline(never)]
fn report(device: &SessionDevice, op: &Operation) -> Result<u32> {
    let report = device.reservations().report()?;
    device.reservations().wait()?;
    op.write_response(&report.to_bytes())?;
    Ok(Report::SIZE as u32)
}

/// Does a command, unless the message repeats one that was done. Then waits for the requests that
/// the command forbids.
fn change(
    session: &Session,
    device: &SessionDevice,
    message: &Reservation,
    command: &Command,
) -> Result {
    let result = execute_once(session, device, message, command)?;
    // A refusal waits, too: by an earlier command the table may say already what the machine wants,
    // while that command's victims still write.
    device.reservations().wait()?;
    result
}

/// Does a command, or returns the result of the command that the message repeats. `EPERM` if the
/// client may only read the disk.
fn execute_once(
    session: &Session,
    device: &SessionDevice,
    message: &Reservation,
    command: &Command,
) -> Result<Result> {
    if device.mode().is_read_only() {
        pr_err_ratelimited!(
            "session {:?}: device {:?} is open with access mode '{}', which can change no \
             reservation: map it with access_mode=rw\n",
            session.name().as_cstr(),
            device.name().as_cstr(),
            device.mode().as_str()
        );
        return Err(EPERM);
    }
    // A copy that comes by another path begins when this message has finished, and finds the
    // result. Locked meanwhile, as a client may also send other messages at the same time.
    let mut last = device.last_command().lock();
    if let Some((done, result)) = &*last {
        let is_copy = message.repeats(done);
        if is_copy.map_err(|refused| refuse(session, &refused))? {
            return Ok(*result);
        }
    }
    let result = device.execute(command);
    *last = Some((*message, result));
    Ok(result)
}
