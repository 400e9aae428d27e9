// SPDX-License-Identifier: GPL-2.0

//! A request in the hands of the user of the transport.

use kernel::prelude::*;
use kernel_ext::{
    chunk::ChunkSlice,
    gate::Entered, //
};
use proto::rtrs::request;

use crate::{
    answer,
    path::{
        Path,
        PathIo, //
    },
    path_chunk::ChunkBox, //
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
    /// `None` once it is taken.
    data: Option<ChunkSlice>,
    data_len: usize,
    direction: Direction,
}

impl Operation {
    /// A request whose chunk is `chunk`; it has been found good.
    ///
    /// One that makes no sense is answered here.
    pub(crate) fn new(io: Entered<PathIo>, path: &Path, chunk: ChunkBox) -> Option<Self> {
        let (direction, len) = match chunk.request.map(|request| (request.direction(), request)) {
            Some((request::Direction::Read { target, .. }, _)) => {
                (Direction::Read, target.map_or(0, |target| target.len))
            }
            Some((request::Direction::Write, request)) => (Direction::Write, request.data_len()),
            None => (Direction::Write, 0),
        };
        let session = path.session();
        let data = match &chunk.private {
            Some(page) => session.private().slice(page, len),
            None => session.chunks().slice(chunk.id as usize, 0, len as usize),
        };
        let Some(data) = data else {
            answer::respond(&io, chunk, Err(EINVAL));
            return None;
        };
        Some(Self {
            request: Some((io, chunk)),
            data: Some(data),
            data_len: len as usize,
            direction,
        })
    }

    /// Where the data goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The length of the data in bytes: of what came from the client, or of what it asked for.
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// The data: what came from the client, or where to put what goes to it. Only there once.
    ///
    /// It lies in memory of the session, so nothing may be done with it once the operation is
    /// answered.
    pub fn take_data(&mut self) -> Option<ChunkSlice> {
        self.data.take()
    }

    /// Copies `bytes` to the start of the data, as the answer to a read of few bytes.
    ///
    /// `EMSGSIZE` if the client did not ask for that many, `EINVAL` for a write, or if the data was
    /// taken. Any context.
    pub fn write_answer(&self, bytes: &[u8]) -> Result {
        if self.direction != Direction::Read {
            return Err(EINVAL);
        }
        if bytes.len() > self.data_len {
            return Err(EMSGSIZE);
        }
        self.data.as_ref().ok_or(EINVAL)?.copy_in(0, bytes)
    }

    /// Answers the request: with an error, or with the number of bytes that a read has put at the
    /// start of the data (not looked at for a write). Any context.
    pub fn respond(mut self, result: Result<u32>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<u32>) {
        if let Some((io, chunk)) = self.request.take() {
            answer::respond(&io, chunk, result);
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.answer(Err(EIO));
    }
}
