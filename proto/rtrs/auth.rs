// SPDX-License-Identifier: GPL-2.0

//! The messages of a proof of identity; [`handshake`](crate::handshake) has their order.

use super::{
    wire::{
        self,
        Code,
        MsgType,
        Nonce, //
    },
    ConnAccept,
    ConnReq, //
};
use crate::{
    client_id::ClientId,
    errno::Errno,
    error::ProtoError,
    wire::{
        check_type,
        split,
        to_array, //
    }, //
};

/// The version of the handshake. An end of another version is refused.
pub const AUTH_VERSION: u16 = 1;

/// The client's proof of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuthReq {
    /// The number of the client's key, among the keys that the server has for this client.
    pub key: u32,
    /// The client's random number.
    pub nonce: Nonce,
    /// The client's id.
    pub client: ClientId,
    /// The proof.
    pub code: Code,
}

impl AuthReq {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::AuthReq>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::AuthReq {
            r#type: MsgType::AuthReq.to_wire(),
            version: AUTH_VERSION.into(),
            key: self.key.into(),
            nonce: self.nonce,
            client_id: self.client.to_field(),
            code: self.code,
        })
    }

    /// Checks a received message, except for the proof; `bytes` may be longer than the message.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "authentication request";
        let (msg, _) = split::<wire::AuthReq>(bytes, what)?;
        check_type(what, msg.r#type, MsgType::AuthReq as u16)?;
        if msg.version.get() != AUTH_VERSION {
            let field = "version of the authentication request";
            return Err(ProtoError::bad_field(field, msg.version.get()));
        }
        Ok(Self {
            key: msg.key.get(),
            nonce: msg.nonce,
            client: ClientId::from_field(&msg.client_id).map_err(ProtoError::BadClientId)?,
            code: msg.code,
        })
    }
}

/// The server's response to a client's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRsp {
    /// The client's proof is right; holds the server's own proof.
    Accepted(Code),
    /// The proof is refused.
    Refused(Errno),
}

impl AuthRsp {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::AuthRsp>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let (errno, code) = match self {
            Self::Accepted(code) => (0, *code),
            // At most 4095, so the cast loses nothing.
            Self::Refused(errno) => (errno.to_kernel() as u16, [0; size_of::<Code>()]),
        };
        to_array(&wire::AuthRsp {
            r#type: MsgType::AuthRsp.to_wire(),
            errno: errno.into(),
            reserved: [0; 4],
            code,
        })
    }

    /// Checks a received message, except for the proof; `bytes` may be longer than the message. A
    /// value that is not an errno of user space becomes `EKEYREJECTED`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "authentication response";
        let (msg, _) = split::<wire::AuthRsp>(bytes, what)?;
        check_type(what, msg.r#type, MsgType::AuthRsp as u16)?;
        Ok(match i16::from_le_bytes(msg.errno.to_bytes()) {
            0 => Self::Accepted(msg.code),
            errno => Self::Refused(Errno::from_peer(errno.into()).unwrap_or(Errno::EKEYREJECTED)),
        })
    }
}

/// The proof that a further connection belongs to a path whose client has proved its identity.
///
/// The code has the bytes of a request from offset 45 to the end. In other requests than that for
/// connection 0 these bytes have no other meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionCode(pub [u8; Self::LEN]);

impl ConnectionCode {
    /// The length in bytes. A client can try once for each connection of the path, which is not
    /// enough to guess 88 bits.
    pub const LEN: usize = ConnReq::SIZE - Self::OFFSET;

    /// The offset of the code in a connection request, in bytes.
    const OFFSET: usize = core::mem::offset_of!(wire::ConnReq, reserved0);

    /// The first bytes of `code`.
    pub fn of(code: &Code) -> Self {
        let mut bytes = [0; Self::LEN];
        for (to, &byte) in bytes.iter_mut().zip(code) {
            *to = byte;
        }
        Self(bytes)
    }

    /// Puts the code into a request for a connection other than connection 0.
    pub fn put(&self, request: &mut [u8; ConnReq::SIZE]) {
        for (to, &byte) in request.iter_mut().skip(Self::OFFSET).zip(&self.0) {
            *to = byte;
        }
    }

    /// The code in a received request, which may be longer than the message. Missing bytes are
    /// zero.
    pub fn of_request(request: &[u8]) -> Self {
        let mut bytes = [0; Self::LEN];
        for (to, &byte) in bytes.iter_mut().zip(request.iter().skip(Self::OFFSET)) {
            *to = byte;
        }
        Self(bytes)
    }
}

/// Puts the server's random number into its response to the request for connection 0.
pub fn put_nonce(response: &mut [u8; ConnAccept::SIZE], nonce: &Nonce) {
    let offset = core::mem::offset_of!(wire::ConnRsp, nonce);
    for (to, &byte) in response.iter_mut().skip(offset).zip(nonce) {
        *to = byte;
    }
}

/// The server's random number in a received response, which may be longer than the message. The
/// number only has a meaning with [`FEATURE_AUTH`](super::FEATURE_AUTH).
pub fn nonce_in(response: &[u8]) -> Result<Nonce, ProtoError> {
    let (msg, _) = split::<wire::ConnRsp>(response, "connection response")?;
    Ok(msg.nonce)
}
