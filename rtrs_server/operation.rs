// SPDX-License-Identifier: GPL-2.0

//! A request in the hands of the user of the transport.

use kernel::prelude::*;
use kernel_ext::{
    rdma::chunk::ChunkData,
    sync::gate::Entered, //
};

use crate::{
    answer,
    path_chunk::{
        ChunkBox,
        PathChunk, //
    },
    path_io::PathIo, //
};

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
/// is answered with `EIO`. A path is not taken down before all of its operations are answered.
pub struct Operation {
    /// `None` once it is answered.
    request: Option<(Entered<PathIo>, ChunkBox)>,
}

impl Operation {
    /// A request whose chunk is `chunk`; it has been found good.
    #[inline]
    pub(crate) fn new(io: Entered<PathIo>, chunk: ChunkBox) -> Self {
        Self {
            request: Some((io, chunk)),
        }
    }

    #[inline]
    fn chunk(&self) -> Option<&PathChunk> {
        self.request.as_ref().map(|(_, chunk)| &***chunk)
    }

    /// Where the data goes. Any context.
    #[inline]
    pub fn direction(&self) -> Direction {
        self.chunk().map_or(Direction::Write, PathChunk::direction)
    }

    /// The length of the data in bytes: of what came from the client, or of what it asked for. Any
    /// context.
    #[inline]
    pub fn data_len(&self) -> u32 {
        self.chunk().map_or(0, PathChunk::data_len)
    }

    /// The data: what came from the client, or where to put what goes to it. Any context.
    ///
    /// It lies in memory of the session, so nothing may be done with it once the operation is
    /// answered.
    #[inline]
    pub fn data(&self) -> Option<ChunkData<'_>> {
        self.chunk().and_then(PathChunk::data)
    }

    /// Copies `bytes` to the start of the data, as the answer to a read of few bytes.
    ///
    /// `EMSGSIZE` if the client did not ask for that many, `EINVAL` for a write. Any context.
    pub fn write_answer(&self, bytes: &[u8]) -> Result {
        if self.direction() != Direction::Read {
            return Err(EINVAL);
        }
        if bytes.len() > self.data_len() as usize {
            return Err(EMSGSIZE);
        }
        self.data().ok_or(EINVAL)?.copy_in(bytes)
    }

    /// Answers the request: with an error, or with the number of bytes that a read has put at the
    /// start of the data (not looked at for a write). Any context.
    #[inline]
    pub fn respond(mut self, result: Result<u32>) {
        self.answer(result);
    }

    #[inline]
    fn answer(&mut self, result: Result<u32>) {
        if let Some((io, chunk)) = self.request.take() {
            answer::respond(&io, chunk, result);
        }
    }
}

impl Drop for Operation {
    #[inline]
    fn drop(&mut self) {
        self.answer(Err(EIO));
    }
}
