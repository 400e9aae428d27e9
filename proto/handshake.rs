// SPDX-License-Identifier: GPL-2.0

//! How a client and a server prove to each other that they have the client's key.
//!
//! The proof is made on connection 0, as soon as that connection is established and before any
//! other connection is made. Each end adds a random number of its own. The codes of both ends are
//! made of everything that both have said until then, see [`Said`], and of a label. So a code is of
//! no use in another handshake, on another path, for another server, or in the other direction.
//! After the proof both ends have a key of the path, which is never sent; each further connection
//! carries a code made with it.
//!
//! `Documentation/protocol.md` has the reasons. `tests/handshake` has a model that looks for
//! attacks.

use core::fmt;

use crate::{
    auth_keys::{
        Key,
        Secret, //
    },
    client_id::ClientId,
    error::ProtoError,
    rtrs::{
        auth::{
            AuthReq,
            AuthRsp,
            ConnectionCode, //
        },
        transcript::{
            further_connection,
            transcript,
            Label,
            Said, //
        },
        Code,
        Nonce, //
    },
    text::impl_error,
    Errno, //
};

/// HMAC-SHA-256, by the kernel or by a test on the host.
pub trait Mac {
    /// The code of `message` under `key`.
    fn code(&self, key: &Secret, message: &[u8]) -> Code;

    /// Whether both are the same. For equal lengths the time does not depend on the content.
    fn is_same(&self, one: &[u8], other: &[u8]) -> bool;
}

/// The key of a path whose client has proved its identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathKey(Secret);

impl PathKey {
    fn new(mac: &impl Mac, key: &Secret, said: &Said, message: &AuthReq) -> Self {
        let transcript = transcript(Label::Path, said, message);
        Self(Secret::new(mac.code(key, &transcript)))
    }

    /// The code that proves that connection `cid` belongs to the path. `queue_pair` is the client's
    /// queue pair of that connection, 0 on iWARP.
    pub fn connection(&self, mac: &impl Mac, cid: u16, queue_pair: u32) -> ConnectionCode {
        let message = further_connection(cid, queue_pair);
        ConnectionCode::of(&mac.code(&self.0, &message))
    }

    /// Whether `code` is the code of connection `cid`.
    pub fn admits(&self, mac: &impl Mac, cid: u16, queue_pair: u32, code: &ConnectionCode) -> bool {
        mac.is_same(&self.connection(mac, cid, queue_pair).0, &code.0)
    }
}

/// The client's half of a handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientHandshake {
    said: Said,
    message: AuthReq,
    key: Secret,
}

/// Why a client refuses a server's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// It is no such message.
    Malformed(ProtoError),
    /// The server refuses the client's proof.
    Refused(Errno),
    /// The server's code is wrong: it does not have the client's key.
    WrongProof,
}

impl ResponseError {
    /// The error number for the client's user.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Malformed(_) => Errno::EINVAL,
            Self::Refused(errno) => *errno,
            Self::WrongProof => Errno::EKEYREJECTED,
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "{error}"),
            Self::Refused(errno) => write!(
                f,
                "the server does not take this machine's proof of identity ({}): load the same \
                 key at both ends",
                errno.name()
            ),
            Self::WrongProof => f.write_str(
                "the server has not proved its identity: load this machine's key on the server",
            ),
        }
    }
}

impl_error!(ResponseError);

impl ClientHandshake {
    /// The half of a client with this id and key. `nonce` is a random number that was never used.
    pub fn new(mac: &impl Mac, said: Said, client: ClientId, key: Key, nonce: Nonce) -> Self {
        let mut message = AuthReq {
            key: key.number,
            nonce,
            client,
            code: [0; size_of::<Code>()],
        };
        let transcript = transcript(Label::Client, &said, &message);
        message.code = mac.code(&key.secret, &transcript);
        Self {
            said,
            message,
            key: key.secret,
        }
    }

    /// The client's message.
    pub fn request(&self) -> [u8; AuthReq::SIZE] {
        self.message.to_bytes()
    }

    /// Checks the server's response; `bytes` may be longer than the message.
    pub fn response(self, mac: &impl Mac, bytes: &[u8]) -> Result<PathKey, ResponseError> {
        let code = match AuthRsp::parse(bytes).map_err(ResponseError::Malformed)? {
            AuthRsp::Accepted(code) => code,
            AuthRsp::Refused(errno) => return Err(ResponseError::Refused(errno)),
        };
        let (key, said, message) = (&self.key, &self.said, &self.message);
        let expected = mac.code(key, &transcript(Label::Server, said, message));
        if !mac.is_same(&expected, &code) {
            return Err(ResponseError::WrongProof);
        }
        Ok(PathKey::new(mac, key, said, message))
    }
}

/// Why a server refuses a client's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no such message.
    Malformed(ProtoError),
    /// The path has had its attempt before.
    Repeated,
    /// The server has no key of this client.
    UnknownClient(ClientId),
    /// The server does not have the key of this client with this number.
    UnknownKey(ClientId, u32),
    /// The proof was not made with the key of this number, or not of the messages that the server
    /// has seen.
    WrongProof(ClientId, u32),
}

impl Refusal {
    /// The error number for the client. It does not tell an unknown client from a wrong key: a
    /// stranger must not learn which clients there are.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Malformed(_) | Self::Repeated => Errno::EINVAL,
            Self::UnknownClient(_) | Self::UnknownKey(..) | Self::WrongProof(..) => {
                Errno::EKEYREJECTED
            }
        }
    }
}

impl fmt::Display for Refusal {
    /// Displays the reason, and what an administrator does about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "{error}"),
            Self::Repeated => {
                f.write_str("the client has sent a second proof of identity on the path")
            }
            Self::UnknownClient(client) => write!(
                f,
                "client id {client} is not known: if this client may connect, run rnbdctl key new \
                 {client} and rnbdctl key load"
            ),
            Self::UnknownKey(client, number) => write!(
                f,
                "client id {client} has a key {number:08x} that is not loaded here: run rnbdctl \
                 key load, at both ends"
            ),
            Self::WrongProof(client, number) => write!(
                f,
                "client id {client} has not proved that it has key {number:08x}: its key is wrong, \
                 or it is another machine"
            ),
        }
    }
}

impl_error!(Refusal);

/// The server's half of a handshake, for one path.
///
/// # Invariants
///
/// `Proved` comes only after `Waiting`, and no state comes after `Proved` or `Refused`: a path has
/// one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerHandshake {
    /// The client has to prove its identity.
    Waiting(Said),
    /// The client has proved its identity.
    Proved {
        /// The client.
        client: ClientId,
        /// The key that checks further connections.
        path_key: PathKey,
    },
    /// The client has failed to prove its identity.
    Refused,
}

impl ServerHandshake {
    /// Checks a client's proof and returns the response; `bytes` may be longer than the message.
    /// `keys` returns the key of a client with a number.
    pub fn request(
        &mut self,
        mac: &impl Mac,
        bytes: &[u8],
        keys: impl FnOnce(&ClientId, u32) -> Result<Key, Refusal>,
    ) -> ([u8; AuthRsp::SIZE], Result<ClientId, Refusal>) {
        // INVARIANT: The state only changes if it is `Waiting`.
        let (next, response, result) = match self {
            Self::Waiting(said) => match check(mac, said, bytes, keys) {
                Ok((message, path_key, code)) => {
                    let client = message.client;
                    let next = Self::Proved { client, path_key };
                    (Some(next), AuthRsp::Accepted(code), Ok(client))
                }
                Err(refusal) => {
                    let response = AuthRsp::Refused(refusal.errno());
                    (Some(Self::Refused), response, Err(refusal))
                }
            },
            _ => {
                let refusal = Refusal::Repeated;
                (None, AuthRsp::Refused(refusal.errno()), Err(refusal))
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        (response.to_bytes(), result)
    }

    /// Whether connection `cid`, other than connection 0, may be made.
    pub fn admits(&self, mac: &impl Mac, cid: u16, queue_pair: u32, code: &ConnectionCode) -> bool {
        match self {
            Self::Proved { path_key, .. } => path_key.admits(mac, cid, queue_pair, code),
            _ => false,
        }
    }

    /// The server's random number, as long as the client's proof has not come.
    pub fn nonce(&self) -> Option<&Nonce> {
        match self {
            Self::Waiting(said) => Some(&said.nonce),
            _ => None,
        }
    }

    /// The client's id, if the client has proved its identity.
    pub fn client(&self) -> Option<&ClientId> {
        match self {
            Self::Proved { client, .. } => Some(client),
            _ => None,
        }
    }
}

/// Checks a client's proof. Returns the message, the key of the path, and the server's own proof.
fn check(
    mac: &impl Mac,
    said: &Said,
    bytes: &[u8],
    keys: impl FnOnce(&ClientId, u32) -> Result<Key, Refusal>,
) -> Result<(AuthReq, PathKey, Code), Refusal> {
    let message = AuthReq::parse(bytes).map_err(Refusal::Malformed)?;
    let key = keys(&message.client, message.key)?;
    let expected = mac.code(&key.secret, &transcript(Label::Client, said, &message));
    if !mac.is_same(&expected, &message.code) {
        return Err(Refusal::WrongProof(message.client, message.key));
    }
    let code = mac.code(&key.secret, &transcript(Label::Server, said, &message));
    let path_key = PathKey::new(mac, &key.secret, said, &message);
    Ok((message, path_key, code))
}
