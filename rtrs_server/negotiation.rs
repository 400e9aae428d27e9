// SPDX-License-Identifier: GPL-2.0

//! What a path's first connection settles: the extensions, and how the client proves who it is.

use kernel_ext::{
    prelude::*,
    rdma::cm::NewId, //
};
use proto::{
    handshake::ServerHandshake,
    rtrs::{
        transcript::Said,
        ConnReq,
        FEATURE_AUTH,
        FEATURE_COALESCED_RESPONSES,
        FEATURE_DOORBELL,
        FEATURE_PATH_END,
        FEATURE_REFUSAL,
        FEATURE_SHORT_RESPONSES, //
    }, //
};
use rtrs_core::{
    address::host_address,
    identity, //
};

use crate::session_io::Needs;

/// Which of the extensions that a client offers are used.
pub(crate) fn used_features(offered: u32, needs: Needs) -> u32 {
    if offered & FEATURE_SHORT_RESPONSES == 0 {
        // Without short responses each response has a message of its own.
        return offered & (FEATURE_AUTH | FEATURE_REFUSAL);
    }
    let coalesced = if needs.sleeping_requests {
        0
    } else {
        FEATURE_COALESCED_RESPONSES
    };
    let others = FEATURE_PATH_END | FEATURE_DOORBELL | FEATURE_AUTH | FEATURE_REFUSAL;
    offered & (FEATURE_SHORT_RESPONSES | coalesced | others)
}

/// Makes the state of the client's proof of identity, if the client has offered one.
pub(crate) fn handshake(
    request: &ConnReq,
    features: u32,
    id: &NewId<'_>,
) -> Result<Option<ServerHandshake>> {
    if features & FEATURE_AUTH == 0 {
        return Ok(None);
    }
    let server = id.local_address().host().ok_or(EAFNOSUPPORT)?;
    let said = Said::new(
        *request,
        features,
        identity::nonce(),
        id.queue_pair(),
        &host_address(server),
    );
    Ok(Some(ServerHandshake::Waiting(said)))
}
