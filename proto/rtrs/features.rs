// SPDX-License-Identifier: GPL-2.0

//! Extensions of the protocol, a bit each in the `features` word of both connection messages.
//!
//! C sends the word as zero and ignores it. The client offers the bits that it knows, the server
//! answers with those of them that it uses on the path. Documentation/protocol.md has the registry:
//! a new bit is entered there in the same commit.

/// `features` of both connection messages, which C sends as zero and ignores: answers take no more
/// messages than needed.
///
/// A client that sets it takes an answer without a message as one that leaves the chunk's key as
/// it is, even if the server invalidates always. A server that sets it sends the last of a read's
/// data with the immediate if the request does not ask for an invalidation.
pub const FEATURE_SHORT_RESPONSES: u32 = 1 << 0;

/// `features`: answers may come together.
///
/// A client that sets it takes messages with several answers, see [`coalesced_responses`], and posts receives
/// that have room for them. A server that sets it may send them for requests that were carried out
/// and need no more than that to be said.
pub const FEATURE_COALESCED_RESPONSES: u32 = 1 << 1;

/// `features`: the client may have a path ended by a message on another one, see
/// [`Imm::PathEnd`].
pub const FEATURE_PATH_END: u32 = 1 << 2;
