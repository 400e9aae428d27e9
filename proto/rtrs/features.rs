// SPDX-License-Identifier: GPL-2.0

//! Extensions of the protocol, a bit each in the `features` word of both connection messages.
//!
//! C sends the word as zero and ignores it. The client offers the bits that it knows, the server
//! returns those of them that it uses on the path. Documentation/protocol.md is the registry: a new
//! bit has its row there in the same commit.

/// Responses take no more messages than needed.
///
/// The client takes a response without a message as one that leaves the chunk's key as it is, also
/// with `always_invalidate`. The server sends the last data of a read with the immediate, unless
/// the request asks for an invalidation.
pub const FEATURE_SHORT_RESPONSES: u32 = 1 << 0;

/// One message may carry several responses, see
/// [`coalesced_responses`](super::coalesced_responses).
///
/// The client posts receives with room for them. The server sends them for requests that were
/// carried out, whose responses bring neither data nor a key.
pub const FEATURE_COALESCED_RESPONSES: u32 = 1 << 1;

/// The client may have the server end a path by a message on another path of the session, see
/// [`Imm::PathEnd`](super::Imm::PathEnd).
///
/// Bit 2 is not used again: servers that returned it said so before the path was drained.
pub const FEATURE_PATH_END: u32 = 1 << 3;

/// The server may ring, see [`Imm::Doorbell`](super::Imm::Doorbell).
pub const FEATURE_DOORBELL: u32 = 1 << 4;

/// The client proves its identity, and the server that it knows the client's key, before the path
/// gets anything; see [`handshake`](crate::handshake).
pub const FEATURE_AUTH: u32 = 1 << 5;

/// The server says why it refuses a client that has said its name, see
/// [`InfoRsp::refusal`](super::InfoRsp::refusal); a client without it is only disconnected.
pub const FEATURE_REFUSAL: u32 = 1 << 6;
