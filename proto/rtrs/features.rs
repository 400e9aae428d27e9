// SPDX-License-Identifier: GPL-2.0

//! Extensions of the protocol, a bit each in the `features` word of both connection messages.
//!
//! C sends the word as zero and ignores it. The client offers the bits that it knows. The server
//! returns the offered bits that it uses on the path. Documentation/protocol.md is the registry: a
//! new bit has its row there in the same commit. Documentation/changing.md lists the other files
//! that an extension touches.

/// A response takes no more messages than it needs.
///
/// A response without a message leaves the chunk's key as it is, also with `always_invalidate`. The
/// server sends the last data of a read with the immediate, unless the request asks for an
/// invalidation.
pub const FEATURE_SHORT_RESPONSES: u32 = 1 << 0;

/// One message may carry several responses, see
/// [`coalesced_responses`](super::coalesced_responses).
///
/// The client posts receives that are large enough. The server coalesces the responses to requests
/// that were carried out, if the responses have neither data nor a key.
pub const FEATURE_COALESCED_RESPONSES: u32 = 1 << 1;

/// The client may ask the server, by a message on another path of the session, to end a path, see
/// [`Imm::PathEnd`](super::Imm::PathEnd).
///
/// Bit 2 must not be used again: servers that returned it reported the end of a path before the
/// path was drained.
pub const FEATURE_PATH_END: u32 = 1 << 3;

/// The server may ring doorbells, see [`Imm::Doorbell`](super::Imm::Doorbell).
pub const FEATURE_DOORBELL: u32 = 1 << 4;

/// The client proves its identity, and the server proves that it knows the client's key, before the
/// path gets any resources; see [`handshake`](crate::handshake).
pub const FEATURE_AUTH: u32 = 1 << 5;

/// The server tells why it refuses a client that has named its session, see
/// [`InfoRsp::refusal`](super::InfoRsp::refusal). A client without this bit is only disconnected.
pub const FEATURE_REFUSAL: u32 = 1 << 6;
