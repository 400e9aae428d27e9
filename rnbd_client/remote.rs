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

/// Says hello, and learns which version of the protocol to speak.
///
/// The server's error, or `EINVAL` for an answer that makes no sense.
pub(crate) fn session_info(transport: &rtrs_client::Session) -> Result<u8> {
    let mut answer = [0; SessInfo::SIZE];
    let message = SessInfo::new().to_bytes();
    transport.service_request(&message, ServiceData::FromServer(&mut answer), || Ok(()))?;
    let info = SessInfo::parse_rsp(&answer).map_err(|error| malformed(transport, &error))?;
    Ok(info.negotiate())
}

/// Opens a device; returns what the server says of it, and how often the session had been lost when
/// the server was asked, see [`Session::losses()`].
///
/// The server's error, or `EINVAL` for an answer that makes no sense; the device is closed again
/// then.
pub(crate) fn open(
    session: &Session,
    path: &Name,
    access_mode: AccessMode,
) -> Result<(OpenRsp, u32)> {
    let mut losses = 0;
    let mut answer = [0; OpenRsp::SIZE];
    let message = Open {
        access_mode,
        dev_name: *path,
    };
    let data = ServiceData::FromServer(&mut answer);
    session
        .transport
        .service_request(&message.to_bytes(), data, || {
            losses = session.losses();
            Ok(())
        })?;
    match OpenRsp::parse(&answer) {
        Ok(answer) => Ok((answer, losses)),
        Err(error) => {
            if let Some(device_id) = OpenRsp::device_id_of(&answer) {
                // The error of the answer is the one to tell.
                let _ = close(session, device_id, losses);
            }
            Err(malformed(&session.transport, &error))
        }
    }
}

/// Closes the device that the server gave `device_id` when the session had been lost `losses` times.
///
/// The server's error; `ECONNABORTED` if the session was lost since: the number may be another
/// device's in the server's next one.
pub(crate) fn close(session: &Session, device_id: u32, losses: u32) -> Result {
    let message = Close { device_id }.to_bytes();
    session
        .transport
        .service_request(&message, ServiceData::None, || {
            if session.losses() == losses {
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
