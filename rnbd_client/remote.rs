// SPDX-License-Identifier: GPL-2.0

//! What is asked of the server outside the IO path. Everything here sleeps.

use kernel::prelude::*;
use proto::{
    name::Name,
    rnbd::{
        AccessMode,
        Close,
        Open,
        OpenRsp,
        SessInfo, //
    },
    ProtoError, //
};
use rtrs_client::ServiceData;
use rtrs_core::error::from_errno;

use crate::session::Session;

/// Sends the session information, by which the server learns which version of the protocol to
/// speak, unless that was done in the present epoch; returns the epoch, see [`Session::epoch()`].
///
/// The server's error, or `EINVAL` for a response that makes no sense.
pub(crate) fn greet(session: &Session) -> Result<u32> {
    let mut epoch = session.epoch();
    if session.is_greeted(epoch) {
        return Ok(epoch);
    }
    let mut response = [0; SessInfo::SIZE];
    let message = SessInfo::new().to_bytes();
    let data = ServiceData::FromServer(&mut response);
    session.transport.service_request(&message, data, || {
        epoch = session.epoch();
        Ok(())
    })?;
    SessInfo::parse_rsp(&response).map_err(|error| malformed(&session.transport, &error))?;
    session.note_greeted(epoch);
    Ok(epoch)
}

/// Opens a device; returns what the server says of it, and the epoch in which it does.
///
/// The server has the session information of that epoch: without it a C server drops priorities.
///
/// The server's error, or `EINVAL` for a response that makes no sense; the device is closed again
/// then.
pub(crate) fn open(
    session: &Session,
    path: &Name,
    access_mode: AccessMode,
) -> Result<(OpenRsp, u32)> {
    let mut answer = [0; OpenRsp::SIZE];
    let message = Open {
        access_mode,
        dev_name: *path,
    }
    .to_bytes();
    let epoch = loop {
        // Without a path this fails.
        let epoch = greet(session)?;
        let data = ServiceData::FromServer(&mut answer);
        match in_epoch(session, epoch, &message, data) {
            Ok(()) => break epoch,
            Err(ECONNABORTED) if session.epoch() != epoch => continue,
            Err(error) => return Err(error),
        }
    };
    match OpenRsp::parse(&answer) {
        Ok(answer) => Ok((answer, epoch)),
        Err(error) => {
            if let Some(device_id) = OpenRsp::device_id_of(&answer) {
                // The error of the answer is the one to tell.
                let _ = close(session, device_id, epoch);
            }
            Err(malformed(&session.transport, &error))
        }
    }
}

/// Closes the device that the server gave `device_id` in `epoch`.
///
/// The server's error; `ECONNABORTED` if the session was lost since: the number may be another
/// device's in the server's next one.
pub(crate) fn close(session: &Session, device_id: u32, epoch: u32) -> Result {
    let message = Close { device_id }.to_bytes();
    in_epoch(session, epoch, &message, ServiceData::None)
}

/// Sends a message. The server's error; `ECONNABORTED` if the session was lost after `epoch`.
fn in_epoch(session: &Session, epoch: u32, message: &[u8], data: ServiceData<'_>) -> Result {
    session.transport.service_request(message, data, || {
        if session.epoch() == epoch {
            Ok(())
        } else {
            Err(ECONNABORTED)
        }
    })
}

fn malformed(transport: &rtrs_client::Session, error: &ProtoError) -> Error {
    pr_err!(
        "session {}: {}\n",
        transport.name(),
        error.message().as_str()
    );
    from_errno(error.errno())
}
