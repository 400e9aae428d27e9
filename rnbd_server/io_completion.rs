// SPDX-License-Identifier: GPL-2.0

//! What becomes of a request when its bio has ended.

use kernel_ext::{
    block::disk::Completion,
    prelude::*,
    rdma::chunk::single::ChunkData, //
};
use proto::rnbd::Io;
use rtrs_server::Operation;

/// Responds to a request when its bio is finished.
pub(crate) struct IoCompletion {
    pub(crate) op: Operation,
    /// What the request asks for; its message may have changed since it was read.
    pub(crate) io: Io,
}

impl Completion for IoCompletion {
    type Memory<'a> = ChunkData<'a>;

    #[inline]
    fn memory(&self) -> Option<ChunkData<'_>> {
        self.op.data()
    }

    #[inline]
    fn done(self, result: Result) {
        // A read that is successful has filled all of the data; of a write nobody asks.
        let len = self.op.data_len();
        self.op.respond(result.map(|()| len));
    }

    fn again(self) {
        self.op.defer(&self.io.to_bytes());
    }
}
