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
use rtrs_client::{
    ServiceData,
    Session, //
};

/// Says hello, and learns which version of the protocol to speak.
///
/// The server's error, or `EINVAL` for an answer that makes no sense.
pub(crate) fn session_info(transport: &Session) -> Result<u8> {
    let mut answer = [0; SessInfo::SIZE];
    let message = SessInfo::new().to_bytes();
    transport.service_request(&message, ServiceData::FromServer(&mut answer))?;
    let info = SessInfo::parse_rsp(&answer).map_err(|error| malformed(transport, &error))?;
    Ok(info.negotiate())
}

/// Opens a device.
///
/// The server's error, or `EINVAL` for an answer that makes no sense; the device is closed again
/// then.
pub(crate) fn open(transport: &Session, path: &Name, access_mode: AccessMode) -> Result<OpenRsp> {
    let mut answer = [0; OpenRsp::SIZE];
    let message = Open {
        access_mode,
        dev_name: *path,
    };
    transport.service_request(&message.to_bytes(), ServiceData::FromServer(&mut answer))?;
    OpenRsp::parse(&answer).map_err(|error| {
        if let Some(device_id) = OpenRsp::device_id_of(&answer) {
            // The error of the answer is the one to tell.
            let _ = close(transport, device_id);
        }
        malformed(transport, &error)
    })
}

/// Closes a device.
pub(crate) fn close(transport: &Session, device_id: u32) -> Result {
    transport.service_request(&Close { device_id }.to_bytes(), ServiceData::None)
}

fn malformed(transport: &Session, error: &ProtoError) -> Error {
    pr_err!(
        "session {}: {}\n",
        transport.name(),
        error.message().as_str()
    );
    Error::from_errno(error.errno().to_kernel())
}
