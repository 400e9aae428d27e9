// SPDX-License-Identifier: GPL-2.0

//! The messages of which the codes of a handshake are made, byte by byte.
//!
//! All have a fixed length and begin with a label, so a message of one kind is never also a message
//! of another kind.

use super::{
    auth::{
        AuthReq,
        AUTH_VERSION, //
    },
    wire::{
        self,
        Nonce, //
    },
    ConnReq, //
};
use crate::{
    addr::Address,
    wire::to_array, //
};

/// The meaning of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Proves that the client has the key.
    Client,
    /// Proves that the server has the key.
    Server,
    /// Proves nothing: the code is the key of the path.
    Path,
}

impl Label {
    /// The first bytes of a message.
    const fn to_bytes(self) -> [u8; 16] {
        match self {
            Self::Client => *b"rtrs auth client",
            Self::Server => *b"rtrs auth server",
            Self::Path => *b"rtrs auth path\0\0",
        }
    }
}

/// Everything that both ends have sent and know before the client's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Said {
    /// The request for connection 0.
    pub request: ConnReq,
    /// The features in the response to the request.
    pub features: u32,
    /// The server's random number in that response.
    pub nonce: Nonce,
    /// The number of the client's queue pair; 0 where a connection has no such number (iWARP).
    pub queue_pair: u32,
    /// The kind of the server's address: 1 for IPv4, 2 for IPv6, 3 for a GID.
    pub family: u8,
    /// The server's address in network order, filled up with zeroes.
    pub server: [u8; 16],
}

impl Said {
    /// Everything that both ends have sent, and the address that the client used for the server.
    /// The address is taken without port and interface, so that it is the same at both ends. An
    /// IPv6 address that stands for an IPv4 address is taken as the IPv4 address.
    pub fn new(
        request: ConnReq,
        features: u32,
        nonce: Nonce,
        queue_pair: u32,
        server: &Address,
    ) -> Self {
        let v4 = |a, b, c, d| (1, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let (family, server) = match *server {
            Address::V4([a, b, c, d]) => v4(a, b, c, d),
            Address::V6 {
                addr: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
                ..
            } => v4(a, b, c, d),
            Address::V6 { addr, .. } => (2, addr),
            Address::Gid(gid) => (3, gid),
        };
        Self {
            request,
            features,
            nonce,
            queue_pair,
            family,
            server,
        }
    }
}

/// The size of a transcript in bytes.
pub const TRANSCRIPT_LEN: usize = size_of::<wire::Transcript>();

/// The message of which the code with this label is made. The code in `message` is ignored.
pub fn transcript(label: Label, said: &Said, message: &AuthReq) -> [u8; TRANSCRIPT_LEN] {
    let request = &said.request;
    to_array(&wire::Transcript {
        label: label.to_bytes(),
        version: AUTH_VERSION.into(),
        cid_num: request.cid_num.into(),
        recon_cnt: request.recon_cnt.into(),
        first_conn: u8::from(request.first_conn),
        family: said.family,
        server: said.server,
        sess_uuid: request.sess_uuid,
        paths_uuid: request.paths_uuid,
        offered: request.features.into(),
        used: said.features.into(),
        given_up: request.given_up.into(),
        queue_pair: said.queue_pair.into(),
        server_nonce: said.nonce,
        client_nonce: message.nonce,
        client_id: message.client.to_field(),
        key: message.key.into(),
        reserved: [0; 4],
    })
}

/// The size of the message of a further connection's code, in bytes.
pub const FURTHER_CONNECTION_LEN: usize = size_of::<wire::FurtherConnection>();

/// The message of which the code of connection `cid` is made. `queue_pair` is the client's queue
/// pair of that connection.
pub fn further_connection(cid: u16, queue_pair: u32) -> [u8; FURTHER_CONNECTION_LEN] {
    to_array(&wire::FurtherConnection {
        label: *b"rtrs connection\0",
        cid: cid.into(),
        reserved: [0; 2],
        queue_pair: queue_pair.into(),
    })
}
