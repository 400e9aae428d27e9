// SPDX-License-Identifier: GPL-2.0

//! gRPC, as far as CSI needs it: calls with one request and one response, over HTTP/2 on a Unix
//! socket.
//!
//! HTTP/2 is the crate `hyper`; what gRPC adds to it is here: a length before each message, and the
//! status in the trailers.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod server;
mod status;

pub(crate) use status::Code;
pub(crate) use status::Result;
pub(crate) use status::Status;

/// The most bytes of a message, as other implementations have it by default.
pub(crate) const MESSAGE_BYTES: usize = 4 << 20;

/// The type of the content of requests and responses.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";
/// The header with the name of a compression.
pub(crate) const ENCODING: &str = "grpc-encoding";
/// The header with the number of the status.
pub(crate) const STATUS: &str = "grpc-status";
/// The header with the status in words.
pub(crate) const MESSAGE: &str = "grpc-message";
