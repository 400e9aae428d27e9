// SPDX-License-Identifier: GPL-2.0

//! The proof of this machine's identity, and of the server's, when a path is connected.
//!
//! [`proto::handshake`] has the rules. A machine that has a key for a server insists on the proof.
//! Otherwise any machine could pass for that server by saying that it knows nothing of proofs.

use kernel::sync::Arc;
use kernel_ext::{
    pr_err_ratelimited,
    prelude::*,
    rdma::{
        message_buffers::MessageBuffer,
        ProtectionDomain,
        QueuePair,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::{
    auth_keys::Key,
    client_id::ClientId,
    handshake::{
        ClientHandshake,
        PathKey, //
    },
    rtrs::{
        auth::{
            nonce_in,
            AuthReq,
            AuthRsp, //
        },
        transcript::Said,
        ConnAccept,
        ConnReq,
        Nonce,
        FEATURE_AUTH, //
    },
    ProtoError, //
};
use rtrs_core::{
    error::from_errno,
    identity::{
        self,
        own_key,
        KernelMac, //
    }, //
};

use super::{
    waiting::{
        filled_buffer,
        wait_for_message, //
    },
    Path,
    PathHandler, //
};
use crate::{
    handler::{
        ExchangeBuffers,
        PrivateData, //
    },
    work::WorkKind, //
};

/// The server's response to the request for a connection.
pub(super) struct Answer {
    /// The request.
    request: ConnReq,
    /// The server's acceptance, which says what it offers.
    pub(super) accept: ConnAccept,
    /// The server's random number. It matters for the first connection of a path with a proof only.
    nonce: Nonce,
}

impl Answer {
    /// Checks the server's response to `request`.
    pub(super) fn parse(request: ConnReq, reply: &PrivateData) -> Result<Self, ProtoError> {
        Ok(Self {
            request,
            accept: ConnAccept::parse(reply.as_bytes())?,
            nonce: nonce_in(reply.as_bytes())?,
        })
    }
}

/// The name and the key by which this machine proves its identity to a path's server, if it has
/// them.
pub(super) struct Proof(Option<(ClientId, Key)>);

impl Proof {
    /// Looks for a key. Sleeps. Returns the keyring's error if the key is no longer valid.
    pub(super) fn new(path: &Path) -> Result<Self> {
        own_key(&path.address().dst).map(Self).inspect_err(|error| {
            pr_err_ratelimited!(
                "{}: this machine's key for the server cannot be used ({:?}): load it with \
                     rnbdctl key load\n",
                path.name_text(),
                error
            );
        })
    }

    /// The features that are offered for the proof.
    pub(super) fn features(&self) -> u32 {
        match self.0 {
            Some(_) => FEATURE_AUTH,
            None => 0,
        }
    }

    /// Proves this machine's identity, and has the server prove its own. Returns the key of the
    /// path, or nothing if there is no proof to be made. Sleeps. `EKEYREJECTED` if either proof is
    /// wrong, or if the server does without proofs.
    // Not inlined: the stack that this takes is free again when the other connections are made.
    #[inline(never)]
    pub(super) fn make(
        self,
        path: &Path,
        domain: &Arc<ProtectionDomain>,
        queue_pair: &QueuePair<PathHandler>,
        handler: &PathHandler,
        answer: &Answer,
    ) -> Result<Option<PathKey>> {
        let Some((client, key)) = self.0 else {
            return Ok(None);
        };
        let features = answer.accept.features;
        if features & FEATURE_AUTH == 0 {
            pr_err_ratelimited!(
                "{}: the server proves no identity, and this machine has a key for it: remove the \
                 key with rnbdctl key, or use a server that supports keys\n",
                path.name_text()
            );
            return Err(EKEYREJECTED);
        }
        let said = Said::new(
            answer.request,
            features,
            answer.nonce,
            queue_pair.number_at_peer(),
            &path.address().dst,
        );
        let handshake = ClientHandshake::new(&KernelMac, said, client, key, identity::nonce());
        let buffers = handler.set_auth_buffers(ExchangeBuffers {
            request: filled_buffer(domain, &handshake.request())?,
            response: MessageBuffer::new(domain, AuthRsp::SIZE)?,
        })?;
        exchange(queue_pair, buffers)?;
        let what = "the server's proof of its identity";
        let len = wait_for_message(path, handler, what, PathHandler::auth_len)?;
        let mut bytes = [0; AuthRsp::SIZE];
        let received = bytes.get_mut(..len.min(AuthRsp::SIZE)).ok_or(EINVAL)?;
        buffers.response.copy_out(received)?;
        let path_key = handshake.response(&KernelMac, received).map_err(|error| {
            pr_err_ratelimited!(
                "{}: client id {}: {}\n",
                path.name_text(),
                client.as_str(),
                error.message().as_str()
            );
            from_errno(error.errno())
        })?;
        Ok(Some(path_key))
    }
}

/// Sends the proof, with room for the response.
fn exchange(queue_pair: &QueuePair<PathHandler>, buffers: &ExchangeBuffers) -> Result {
    // The response is the first message that comes, so its receive is the first of its queue.
    queue_pair.post_recv(WorkKind::AuthReceive.id(), &buffers.response)?;
    let mut room = SendRoom::<1, 1>::EMPTY;
    let mut batch = SendBatch::new(&mut room);
    batch.add(buffers.request.sge(AuthReq::SIZE)?)?;
    batch.send(WorkKind::AuthSend.id(), true)?;
    Ok(queue_pair.post(&mut batch)?)
}
