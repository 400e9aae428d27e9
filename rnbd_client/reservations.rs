// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk: the client asks the server what the block layer asks for.

use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel_ext::{
    block::mq::reservation::{
        Change,
        Failure,
        Held,
        Keys, //
    },
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::{
    rnbd::{
        Command,
        Kind,
        Report,
        Reservation, //
    },
    Errno, //
};
use rtrs_core::error::to_errno;

use crate::{
    params::HOST_UUID,
    remote_device::RemoteDevice, //
};

/// How long the client waits before it asks again whether a command is over, in ms. A server of
/// ours responds after half a second; the pause is for a server that responds at once.
const PAUSE_MS: i64 = 20;

/// Whether the log says by which name servers know this machine.
static NAME_IS_LOGGED: Atomic<bool> = Atomic::new(false);

/// Has the server do a command, and waits until it is over. Sleeps.
///
/// `EOPNOTSUPP` if the server does not know of reservations, `EINTR` if the task is killed: the
/// command may be carried out then.
pub(crate) fn change(device: &RemoteDevice, change: &Change) -> Result<(), Failure> {
    let (command, abort) = command_of(change)?;
    let turn = device.commands().lock_killable()?;
    let (device_id, epoch) = place(device)?;
    log_name(device, &command);
    // Repeated without a change: the server knows the command again by its number.
    let message = Reservation::of(device_id, device.next_command(), &command, abort);
    let is_open = || device.is_mapped_as(device_id);
    let result = until_over(|| device.server.command(&message, epoch, is_open));
    drop(turn);
    result.map_err(failure)
}

/// Asks again until the requests are over that a reservation forbids. Sleeps; a task of user space
/// can be killed meanwhile, a kernel thread waits as long as the server's disk hangs.
fn until_over<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match ask() {
            Err(error) if to_errno(error) == Errno::EINPROGRESS => {
                fsleep(Delta::from_millis(PAUSE_MS));
            }
            result => return result,
        }
    }
}

/// Logs once by which name servers know this machine, if the administrator has given none: another
/// machine with a session of the same name is the same machine to a server.
fn log_name(device: &RemoteDevice, command: &Command) {
    let registers = matches!(command, Command::Register { new, .. } if *new != 0);
    if registers && HOST_UUID.get().0.is_none() && !NAME_IS_LOGGED.xchg(true, ordering::Relaxed) {
        pr_info!(
            "this machine registers for reservations by the session name {:?}, which no other \
             machine may use; host_uuid of rnbd_client gives the machine a name of its own\n",
            device.server.session.as_cstr()
        );
    }
}

/// How the disk is reserved. Sleeps; errors as of [`change`].
pub(crate) fn reservation(device: &RemoteDevice) -> Result<Held, Failure> {
    let report = report(device)?;
    Ok(Held {
        key: report.key,
        generation: report.generation,
        kind: report.kind.map_or(0, |kind| u32::from(kind as u8)),
    })
}

/// Writes the registered keys, as many as there is room for. Sleeps; errors as of [`change`].
pub(crate) fn keys(device: &RemoteDevice, keys: &mut [u64]) -> Result<Keys, Failure> {
    let report = report(device)?;
    for (to, key) in keys.iter_mut().zip(report.keys()) {
        *to = *key;
    }
    Ok(Keys {
        generation: report.generation,
        // At most `MAX_REGISTRANTS`.
        count: report.keys().len() as u32,
    })
}

fn report(device: &RemoteDevice) -> Result<Report, Failure> {
    let (device_id, epoch) = place(device)?;
    let is_open = || device.is_mapped_as(device_id);
    until_over(|| device.server.report(device_id, epoch, is_open)).map_err(failure)
}

/// The server's number of the device, and the epoch in which the server gave it.
fn place(device: &RemoteDevice) -> Result<(u32, u32), Failure> {
    let (device_id, epoch) = device.mapped_in().ok_or(Failure::PathFailed)?;
    if !device.server.has_reservations(epoch) {
        return Err(EOPNOTSUPP.into());
    }
    Ok((device_id, epoch))
}

/// The command for a change, and whether it aborts. `EINVAL` for an unknown type.
fn command_of(change: &Change) -> Result<(Command, bool)> {
    let kind_of = |kind: u32| {
        let kind = u8::try_from(kind).map_err(|_| EINVAL)?;
        Kind::try_from(kind).map_err(|_| EINVAL)
    };
    Ok(match *change {
        Change::Register {
            old,
            new,
            ignore_key,
        } => {
            let command = Command::Register {
                key: old,
                new,
                ignore_key,
            };
            (command, false)
        }
        Change::Reserve {
            ignore_key: true, ..
        } => return Err(EOPNOTSUPP),
        Change::Reserve { key, kind, .. } => {
            let kind = kind_of(kind)?;
            (Command::Reserve { key, kind }, false)
        }
        Change::Release { key, kind } => {
            let kind = kind_of(kind)?;
            (Command::Release { key, kind }, false)
        }
        Change::Clear { key } => (Command::Clear { key }, false),
        Change::Preempt {
            key,
            victim,
            kind,
            abort,
        } => {
            let kind = kind_of(kind)?;
            (Command::Preempt { key, victim, kind }, abort)
        }
    })
}

/// The block layer's failure for an error.
fn failure(error: Error) -> Failure {
    match to_errno(error) {
        Errno::EBADE => Failure::Conflict,
        Errno::ECONNABORTED => Failure::PathFailed,
        _ => Failure::Errno(error),
    }
}
