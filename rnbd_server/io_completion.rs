// SPDX-License-Identifier: GPL-2.0

//! The end of a request whose bio has ended.

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
    /// The request's message, which may have changed in the chunk since it was read.
    pub(crate) io: Io,
}

impl Completion for IoCompletion {
    type Memory<'a> = ChunkData<'a>;

    #[inline]
    fn memory(&self) -> Option<ChunkData<'_>> {
        self.op.data()
    }

    fn requests_follow(&self) {
        self.op.collect_response();
    }

    #[inline]
    fn done(self, result: Result) {
        // A successful read has filled all of the data. The length is ignored for a write.
        let len = self.op.data_len();
        self.op.respond(result.map(|()| len));
    }

    fn again(self) {
        self.op.defer(&self.io.to_bytes());
    }
}
