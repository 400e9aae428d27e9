// SPDX-License-Identifier: GPL-2.0

//! Copies between the memory of a request and a chunk.

use super::single::MappedChunk;
use crate::{
    bindings,
    rdma::{
        Direction,
        Sge, //
    },
    scatterlist::ScatterTable, //
};
use kernel::prelude::*;

impl ScatterTable {
    /// Fills the memory from the start of a chunk that a peer wrote to. Any context.
    ///
    /// `EINVAL` if the chunk is shorter, or is not one block, or if the memory must not be written
    /// to: that of a write request.
    #[inline(always)]
    pub fn copy_from_chunk(&mut self, chunk: &MappedChunk) -> Result {
        let len = self.byte_len();
        let from = chunk.block(len).ok_or(EINVAL)?;
        let (entries, used) = self.pages(Direction::FromDevice).ok_or(EINVAL)?;
        chunk.sync_for_cpu(len)?;
        // SAFETY: The entries name pages that the table keeps, and may be written to; `len` bytes
        // are at `from`.
        let copied = unsafe {
            bindings::rnbd_helper_sg_copy_from_buffer(entries, used, from.as_ptr().cast(), len)
        };
        if copied != len {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Copies the memory to the start of a chunk, from where a device is to send it; says where.
    /// Any context.
    ///
    /// `EINVAL` if the chunk is shorter, or is not one block, or if the table is empty or has the
    /// memory of a read request, in which is what its last user left.
    #[inline(always)]
    pub fn copy_to_chunk(&self, chunk: &MappedChunk) -> Result<Sge> {
        let len = self.byte_len();
        let to = chunk.block(len).ok_or(EINVAL)?;
        let (entries, used) = self.pages(Direction::ToDevice).ok_or(EINVAL)?;
        // SAFETY: The entries name pages that the table keeps; `len` bytes are at `to`. Chunks are
        // only accessed by copying.
        let copied = unsafe {
            bindings::rnbd_helper_sg_copy_to_buffer(entries, used, to.as_ptr().cast(), len)
        };
        if copied != len {
            return Err(EINVAL);
        }
        chunk.sync_for_device(len)?;
        chunk.sge(len).ok_or(EINVAL)
    }
}
