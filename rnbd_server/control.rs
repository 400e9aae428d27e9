// SPDX-License-Identifier: GPL-2.0

//! Opening and closing devices.

use kernel::{
    str::CStr,
    sync::Arc,
    time::Msecs, //
};
use kernel_ext::{
    fs::file::Found,
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    tracepoint, //
};
use proto::{
    addr::Address,
    name::{
        Name,
        SessName, //
    },
    rnbd::{
        CachePolicy,
        Close,
        CloseReason,
        Identity,
        IoMode,
        Open,
        OpenRsp,
        Wwid,
        FEATURE_IDENTITY,
        FEATURE_IO_MODE, //
    },
    search_path,
    PATH_MAX, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Direction,
    Operation, //
};

use crate::{
    device_table::Afterwards,
    disk::LocalId,
    handle::{
        Handle,
        HandleUse, //
    },
    news,
    params::DEV_SEARCH_PATH,
    session::Session,
    session_device::{
        DeviceOwner,
        SessionDevice, //
    }, //
};

/// How long the response to a device that is opened again waits for the device's drain, in ms.
const DRAIN_MS: Msecs = 500;

/// A message that is served on the workqueue.
pub(crate) struct ControlMessage {
    /// The request that carries the message.
    pub(crate) op: Operation,
    /// The message.
    pub(crate) request: ControlRequest,
}

/// The messages that are served on the workqueue.
pub(crate) enum ControlRequest {
    /// Open a device.
    Open(KBox<Open>),
    /// Close a device.
    Close(Close),
}

/// Serves a message. Sleeps.
pub(crate) fn serve(session: &Arc<Session>, message: ControlMessage) {
    let ControlMessage { op, request } = message;
    match request {
        ControlRequest::Open(request) => {
            tracepoint::process_msg_open(|| tracepoint::Open {
                session: session.name().as_cstr(),
                dev_name: request.dev_name.as_cstr(),
                access_mode: request.access_mode.to_wire(),
            });
            let result = session
                .server()
                .kept_loaded(|| open(session, &op, &request));
            op.respond(result);
        }
        ControlRequest::Close(request) => {
            tracepoint::process_msg_close(|| tracepoint::Close {
                session: session.name().as_cstr(),
                device_id: request.device_id,
            });
            // As in C, closing a device that is not open is no error: the server may have closed
            // it.
            let server = session.server();
            server.kept_loaded(|| close(session, request.device_id));
            op.respond(Ok(0));
        }
    }
}

/// Opens a device and writes the response; returns the length of the response in bytes.
fn open(session: &Arc<Session>, op: &Operation, message: &Open) -> Result<u32> {
    // No device is opened for a client that cannot be told its number.
    if op.direction() != Direction::Read || (op.data_len() as usize) < OpenRsp::SIZE {
        pr_err_ratelimited!(
            "session {:?}: the client leaves no room for the response to an open message\n",
            session.name().as_cstr()
        );
        return Err(EMSGSIZE);
    }
    let control = session.control().lock();
    if control.down {
        return Err(ESHUTDOWN);
    }
    if let Some(device) = session.devices().find_by_name(&message.dev_name) {
        may_open_again(session, &device, message)?;
        let len = answer_open(session, op, &device)?;
        news::opened(session, &device);
        return Ok(len);
    }
    admit(session, &message.dev_name)?;
    let mut buffer = KVec::from_elem(0u8, PATH_MAX, GFP_KERNEL)?;
    let path = full_path(session, &message.dev_name, &mut buffer)?;
    // The policy comes before the look-up, so that a client learns nothing of a path that it may
    // not open.
    session.server().policy().check(
        session.subject(),
        &session.clients().lock(),
        path,
        message.access_mode,
    )?;
    let device = open_new(session, path, message)?;
    let answered = answer_open(session, op, &device);
    match answered.and_then(|len| insert(session, path, &device).map(|()| len)) {
        Ok(len) => {
            news::opened(session, &device);
            pr_info_ratelimited!(
                "session {:?}: opened device {:?} ({})\n",
                session.name().as_cstr(),
                device.name().as_cstr(),
                device.mode().as_str()
            );
            Ok(len)
        }
        Err(error) => {
            device.close();
            Err(error)
        }
    }
}

/// Checks whether a message may open a device that the session has open: a client that has lost its
/// paths opens its devices again. `EPERM` and `EBUSY` if the message asks for another mode.
fn may_open_again(session: &Session, device: &SessionDevice, message: &Open) -> Result {
    if device.mode() != message.access_mode {
        pr_err_ratelimited!(
            "session {:?}: device {:?} is open with access mode '{}', not '{}': map it with that \
             mode, or unmap it first\n",
            session.name().as_cstr(),
            message.dev_name.as_cstr(),
            device.mode().as_str(),
            message.access_mode.as_str()
        );
        return Err(EPERM);
    }
    let used = device.io_mode();
    if message.io_mode.is_some_and(|wish| wish != used) {
        pr_err_ratelimited!(
            "session {:?}: device {:?} is open with io mode '{}' by this session: map it with that \
             mode, or without io_mode=\n",
            session.name().as_cstr(),
            message.dev_name.as_cstr(),
            used.as_str()
        );
        return Err(EBUSY);
    }
    Ok(())
}

/// `EHOSTDOWN` while the server drains: it opens no device then.
fn admit(session: &Session, name: &Name) -> Result {
    session.server().drain().admits().inspect_err(|_| {
        pr_err_ratelimited!(
            "session {:?}: device {:?} is not opened: the server is draining; map it when the \
             drain is over\n",
            session.name().as_cstr(),
            name.as_cstr()
        );
    })
}

/// Opens a device that the session does not have open, with everything that belongs to it.
///
/// Called with the control lock held.
fn open_new(session: &Arc<Session>, path: &CStr, message: &Open) -> Result<Arc<SessionDevice>> {
    let failed = |error: &Error| {
        pr_err_ratelimited!(
            "session {:?}: opening device {:?} failed: {:?}\n",
            session.name().as_cstr(),
            path,
            error
        );
    };
    let server = session.server();
    // Without this check every file of the machine would be open to every client.
    let gives_file = search_path::gives_file(
        DEV_SEARCH_PATH.get().as_bytes(),
        server.policy().is_loaded(),
        path.to_bytes(),
    );
    let open = || {
        let found = Found::look_up(path)?;
        let io_mode = match message.io_mode {
            // A client without a wish uses the disk as the clients do that have the disk open.
            None => server.exports().io_mode_of(LocalId::of(&found)?),
            wish => wish,
        };
        let mode = message.access_mode;
        Handle::open(path, &found, gives_file, mode, io_mode, server.bios())
    };
    let handle = open().inspect_err(failed).map_err(told)?;
    let export = {
        let handle_use = handle.enter().ok_or(ENODEV)?;
        server
            .exports()
            .open(&handle_use, message.access_mode, session.name())?
    };
    let id = session.devices().next_id()?;
    let machine = session.machine()?;
    let (owner, queue) = (session.clone(), server.queue());
    SessionDevice::new(owner, id, message, handle, export, machine, queue).inspect_err(failed)
}

/// The error that a client is told when a disk could not be opened. The log has the original error.
fn told(error: Error) -> Error {
    if error == EHOSTDOWN {
        // A network file system may fail with this error; to a client it means that this server
        // drains.
        EIO
    } else if [ENOTBLK, ENOTDIR, ELOOP].contains(&error) {
        // For a client, a path that is no disk does not exist. Otherwise the errors would tell
        // which files this machine has.
        ENOENT
    } else {
        error
    }
}

/// Makes a device known that was opened from `path`, if the policy lets each path of the session
/// use it: further paths may have come up while the device was opened.
fn insert(session: &Session, path: &CStr, device: &Arc<SessionDevice>) -> Result {
    let clients = session.clients().lock();
    session
        .server()
        .policy()
        .check(session.subject(), &clients, path, device.mode())?;
    session.devices().insert(device.clone())
}

/// Writes the path of the device that a client calls `name` to `buffer`.
fn full_path<'a>(session: &Session, name: &Name, buffer: &'a mut KVec<u8>) -> Result<&'a CStr> {
    search_path::full_path(
        DEV_SEARCH_PATH.get().as_bytes(),
        session.name(),
        name,
        buffer.as_mut_slice().try_into().map_err(|_| EINVAL)?,
    )
    .inspect_err(|refused| {
        pr_err_ratelimited!(
            "session {:?}: opening device {:?} failed: {}\n",
            session.name().as_cstr(),
            name.as_cstr(),
            refused.message().as_str()
        );
    })
    .map_err(|refused| from_errno(refused.errno()))
}

/// Writes the response to a message that opens `device`; returns its length in bytes. Sleeps.
fn answer_open(session: &Session, op: &Operation, device: &SessionDevice) -> Result<u32> {
    const WITH_IDENTITY: usize = OpenRsp::SIZE + Identity::SIZE;
    // A device that has lost access may be draining; this waits for the drain.
    let device_use = device.enter_within(DRAIN_MS).inspect_err(|_| {
        pr_err_ratelimited!(
            "session {:?}: device {:?} cannot be opened again yet: its disk has not ended requests \
             that a reservation forbids; look at the disk\n",
            session.name().as_cstr(),
            device.name().as_cstr()
        );
    })?;
    let io_mode = (session.features() & FEATURE_IO_MODE != 0).then(|| device.io_mode());
    op.write_response(&open_rsp(device.id(), &device_use, io_mode)?)?;
    if session.features() & FEATURE_IDENTITY == 0 || (op.data_len() as usize) < WITH_IDENTITY {
        return Ok(OpenRsp::SIZE as u32);
    }
    let identity = Identity {
        // A client that is told of no wwid does not rely on one.
        wwid: device_use.disk().wwid().unwrap_or(Wwid::NONE),
    };
    op.write_response_at(OpenRsp::SIZE, &identity.to_bytes())?;
    Ok(WITH_IDENTITY as u32)
}

/// The response to an open message.
fn open_rsp(
    device_id: u32,
    disk: &HandleUse,
    io_mode: Option<IoMode>,
) -> Result<[u8; OpenRsp::SIZE]> {
    let limits = disk.limits();
    OpenRsp {
        device_id,
        nsectors: disk.update_size(),
        max_hw_sectors: limits.max_hw_sectors,
        max_write_zeroes_sectors: limits.max_write_zeroes_sectors,
        max_discard_sectors: limits.max_discard_sectors,
        discard_granularity: limits.discard_granularity,
        discard_alignment: limits.discard_alignment,
        physical_block_size: limits.physical_block_size,
        logical_block_size: limits.logical_block_size,
        max_segments: limits.max_segments,
        secure_discard: limits.max_secure_erase_sectors != 0,
        cache_policy: CachePolicy {
            fua: limits.fua,
            writeback: limits.write_cache,
        },
        io_mode,
    }
    .to_bytes()
    .inspect_err(|refused| pr_err_ratelimited!("{}\n", refused.message().as_str()))
    .map_err(|refused| from_errno(refused.errno()))
}

/// Closes a device for the client. Sleeps.
fn close(session: &Session, id: u32) {
    let _control = session.control().lock();
    let device = session.devices().get(id);
    if let Some(device) = &device {
        device.begin_close();
    }
    // This also frees the number of a device that was closed by force.
    session.devices().remove(id, Afterwards::Free);
    if let Some(device) = device {
        device.close();
    }
}

impl DeviceOwner for Session {
    fn name(&self) -> &SessName {
        Session::name(self)
    }

    fn force_close(&self, device: &Arc<SessionDevice>) {
        let _control = self.control().lock();
        // The client may have closed the device in the meantime.
        let current = self.devices().get(device.id());
        if current.is_some_and(|current| Arc::ptr_eq(&current, device)) {
            news::closing(self, device.id(), close_reason(self, device));
            device.begin_close();
            self.devices().remove(device.id(), Afterwards::Reserve);
            device.close();
        }
    }
}

/// The reason that the client is told when a device is closed by force. Sleeps, but does not wait
/// for disks.
fn close_reason(session: &Session, device: &SessionDevice) -> CloseReason {
    let policy = session.server().policy();
    if !policy.is_loaded() {
        return CloseReason::Administrator;
    }
    let is_allowed = KVec::from_elem(0u8, PATH_MAX, GFP_KERNEL)
        .map_err(Error::from)
        .and_then(|mut buffer| {
            let path = full_path(session, device.name(), &mut buffer)?;
            let clients = session.clients().lock();
            Ok(policy.allows(session.subject(), &clients, path, device.mode()))
        });
    match is_allowed {
        Ok(false) => CloseReason::Policy,
        _ => CloseReason::Administrator,
    }
}

/// Notes that the session has another path, which comes from `client`. `EACCES` if the policy does
/// not let that address have a session, or use each of the session's devices. Sleeps, but does not
/// wait for disks.
pub(crate) fn path_up(session: &Session, client: Option<Address>) -> Result {
    // A device that is being opened comes into the table later, and is then checked for this
    // client, too.
    let mut clients = session.clients().lock();
    let policy = session.server().policy();
    policy.admits_session(session.subject(), client)?;
    if policy.is_loaded() {
        let mut buffer = KVec::from_elem(0u8, PATH_MAX, GFP_KERNEL)?;
        let mut result = Ok(());
        session.devices().find(|device| {
            result = full_path(session, device.name(), &mut buffer)
                .and_then(|path| policy.check(session.subject(), &[client], path, device.mode()));
            result.is_err()
        });
        result?;
    }
    Ok(clients.push(client, GFP_KERNEL)?)
}

/// A path of the session is gone. Sleeps, but does not wait for disks.
pub(crate) fn path_down(session: &Session, client: Option<Address>) {
    let mut clients = session.clients().lock();
    if let Some(index) = clients.iter().position(|other| *other == client) {
        let _ = clients.remove(index);
    }
}

/// Closes all devices of a session that is down. Sleeps.
pub(crate) fn close_all(session: &Session) {
    let mut control = session.control().lock();
    control.down = true;
    session.devices().find(|device| {
        device.begin_close();
        false
    });
    session.devices().remove_all(SessionDevice::close);
}
