// SPDX-License-Identifier: GPL-2.0

//! A request in the hands of the user.

use kernel::prelude::*;

/// Where the data of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client; also the direction of a request without data.
    Write,
}

/// A request that has to be answered.
///
/// It owns its chunk until it is answered, which can be done in any context. One that is dropped
/// is answered with `EIO`.
pub struct Operation {
    direction: Direction,
}

impl Operation {
    /// Where the data goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Copies `bytes` to the start of the data, as the answer to a read of few bytes.
    ///
    /// `EMSGSIZE` if the client did not ask for that many.
    pub fn write_answer(&self, bytes: &[u8]) -> Result {
        let _ = bytes;
        Err(EMSGSIZE)
    }

    /// Answers the request: with an error, or with the number of bytes that a read has put at the
    /// start of the data (not looked at for a write). Any context.
    pub fn respond(self, result: Result<u32>) {
        let _ = result;
    }
}
