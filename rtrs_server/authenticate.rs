// SPDX-License-Identifier: GPL-2.0

//! The proof of identity: the client shows that it has its key, and the server shows that it has
//! the key, too.
//!
//! [`proto::handshake`] has the rules. Meanwhile nothing is made for the path: it is half open.

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    prelude::*,
    rdma::{
        message_buffers::MessageBuffer,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::rtrs::auth::{
    AuthReq,
    AuthRsp, //
};
use rtrs_core::identity::{
    key_of_client,
    KernelMac, //
};

use crate::{
    path::{
        Path,
        PathState,
        Setup,
        AUTHENTICATE, //
    },
    wr_kind::WrKind, //
};

impl WorkItem<AUTHENTICATE> for Path {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Err(error) = authenticate(&this) {
            pr_err_ratelimited!(
                "<{}>: checking the client's proof of identity failed: {:?}\n",
                this,
                error
            );
            this.close();
        }
    }
}

/// Checks the client's proof and responds. A path whose client has proved nothing is closed when
/// the response has been sent. Sleeps.
///
/// The caller closes the path if this fails.
fn authenticate(path: &Arc<Path>) -> Result {
    let mut state = path.state().lock();
    let PathState::Connecting(setup) = &mut *state else {
        return Err(EIO);
    };
    let response = check(path, setup)?;
    let buffer = MessageBuffer::new(&setup.domain, response.len())?;
    buffer.copy_in(0, &response)?;
    let service = setup.queue_pairs.first().ok_or(ENOTCONN)?;
    let mut room = SendRoom::<1, 1>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    // The memory of the message stays until the protection domain goes.
    batch.add(buffer.sge(response.len())?)?;
    batch.send(WrKind::AuthResponse.id(), true)?;
    Ok(service.post(&mut batch)?)
}

/// Checks the client's proof. Returns the response, and notes the client's identity.
fn check(path: &Path, setup: &mut Setup) -> Result<[u8; AuthRsp::SIZE]> {
    let (Some(handshake), Some(buffer)) = (&mut setup.handshake, &setup.auth) else {
        return Err(EINVAL);
    };
    let mut bytes = [0u8; AuthReq::SIZE];
    let len = (path.auth_len() as usize).min(bytes.len());
    let received = bytes.get_mut(..len).ok_or(EINVAL)?;
    buffer.copy_out(received)?;
    let (response, result) = handshake.request(&KernelMac, received, key_of_client);
    match result {
        Ok(client) => {
            path.set_identity(client);
            pr_info_ratelimited!("<{}>: client id {}\n", path, client.as_str());
        }
        Err(refusal) => {
            path.refuse_identity();
            pr_err_ratelimited!("<{}>: refused: {}\n", path, refusal.message().as_str());
        }
    }
    Ok(response)
}
