// SPDX-License-Identifier: GPL-2.0

//! The waits of the thread that connects a path: for the next step, and for messages of the server.

use kernel::sync::Arc;
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        message_buffers::{
            MessageBuffer,
            Outgoing, //
        },
        ProtectionDomain, //
    }, //
};
use proto::path_state::ClientState;

use super::{
    Path,
    PathHandler, //
};
use crate::{
    handler::Progress,
    incarnation::PathEvents, //
};

/// Waits until the last step that was asked for is done. `what` names the step in the log.
pub(super) fn wait_for_progress(
    path: &Path,
    handler: &PathHandler,
    what: &str,
) -> Result<Progress> {
    loop {
        match handler.take_progress() {
            Progress::Waiting => {}
            Progress::Failed(error) => return Err(error),
            progress => return Ok(progress),
        }
        if path.state() != ClientState::Connecting {
            return Err(ECONNABORTED);
        }
        // The first connection shows whether the server is there.
        wait(path, handler, what, handler.cid == 0)?;
    }
}

/// Waits until the path is woken. Logs that nothing has happened, with `what` as the name of the
/// step. Does not log it if it `may_be_absence` of the server and the server is expected to be
/// away.
fn wait(path: &Path, handler: &PathHandler, what: &str, may_be_absence: bool) -> Result {
    let timeout = path.session.settings.connect_timeout_ms();
    path.wait_for_wake(timeout).inspect_err(|_| {
        if !(may_be_absence && path.expects_absence()) {
            pr_err_ratelimited!(
                "{}: connection {}: {} took more than {} ms or was interrupted\n",
                path.name_text(),
                handler.cid,
                what,
                timeout
            );
        }
    })
}

/// Waits for a message of the server on the first connection, named `what` in the log. Returns its
/// length as soon as `len` has it.
pub(super) fn wait_for_message(
    path: &Path,
    handler: &PathHandler,
    what: &str,
    len: impl Fn(&PathHandler) -> Option<u32>,
) -> Result<usize> {
    loop {
        if let Some(len) = len(handler) {
            return Ok(len as usize);
        }
        if path.state() != ClientState::Connecting {
            return Err(ECONNRESET);
        }
        wait(path, handler, what, false)?;
    }
}

/// A buffer with `message` in it.
pub(super) fn filled_buffer(
    domain: &Arc<ProtectionDomain>,
    message: &[u8],
) -> Result<MessageBuffer<Outgoing>> {
    let buffer = MessageBuffer::new(domain, message.len())?;
    buffer.copy_in(0, message)?;
    Ok(buffer)
}
