// SPDX-License-Identifier: GPL-2.0

//! The session's chunks as a path's RDMA device sees them.
//!
//! All chunks are mapped for the device of each path. In the default mode, `always_invalidate`,
//! each chunk has a registration of its own, so that the client's access can be taken away while
//! the user has the data of a write. Otherwise as many chunks as fit share a registration.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::{
        chunk::{
            single::MappedChunk,
            ChunkSet,
            MappedChunks, //
        },
        message_buffers::MessageBuffers,
        MemoryRegion,
        ProtectionDomain, //
    }, //
};
use proto::rtrs::{
    ChunkLayout,
    SgDesc,
    MAX_RESPONSE_MSG_SIZE, //
};

use crate::{
    chunk::ChunkKey,
    operation::{
        ChunkBox,
        PathChunk, //
    }, //
};

/// The chunks of a session on one path.
pub(crate) struct PathMemory {
    pub(crate) chunks: Arc<MappedChunks>,
    /// The registrations. Each covers the same number of chunks; with `always_invalidate` that is
    /// 1.
    pub(crate) regions: KVVec<MemoryRegion>,
    /// The box of each chunk.
    pub(crate) boxes: KVVec<ChunkBox>,
}

impl PathMemory {
    /// Maps all chunks and allocates registrations. Sleeps.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        set: &Arc<ChunkSet>,
        layout: &ChunkLayout,
        always_invalidate: bool,
        coalesces: bool,
    ) -> Result<Self> {
        let count = layout.queue_depth();
        let chunks = Arc::new(MappedChunks::new(domain, set)?, GFP_KERNEL)?;
        let fit = chunks.chunks_per_region(domain.device().max_fast_reg_page_list_len());
        let most = if always_invalidate { 1 } else { fit };
        let Some(per_region) = chunks_per_region(count, most.min(fit)) else {
            kernel_ext::pr_err_ratelimited!(
                "{} cannot register a chunk of {} bytes at once: load rtrs_server with a smaller \
                 max_chunk_size\n",
                domain.device().name(),
                layout.chunk_size()
            );
            return Err(EINVAL);
        };
        let mut regions = KVVec::new();
        for first in (0..count as usize).step_by(per_region) {
            regions.push(chunks.region(first, per_region)?, GFP_KERNEL)?;
        }

        let messages = (always_invalidate || coalesces)
            .then(|| MessageBuffers::allocate(domain, count as usize, MAX_RESPONSE_MSG_SIZE))
            .transpose()?;
        let mut messages = messages.into_iter().flatten();
        let mut boxes = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        for id in 0..count {
            let memory = MappedChunk::new(&chunks, id as usize)?;
            let key = if always_invalidate {
                ChunkKey::Registered(None)
            } else {
                ChunkKey::Shared
            };
            boxes.push(
                PathChunk::new(id, memory, key, messages.next())?,
                GFP_KERNEL,
            )?;
        }
        Ok(Self {
            chunks,
            regions,
            boxes,
        })
    }

    /// The addresses, keys and lengths by which the client reaches the chunks, once they are
    /// registered.
    pub(crate) fn descriptors(&self) -> impl ExactSizeIterator<Item = SgDesc> + '_ {
        self.regions.iter().map(|region| SgDesc {
            addr: region.iova(),
            key: region.rkey(),
            // The chunks of a session have less than 2^28 bytes together.
            len: region.len() as u32,
        })
    }
}

/// The number of chunks that share a registration, of `count` chunks; a registration has room for
/// `fit`.
///
/// The client wants all registrations to have the same size.
fn chunks_per_region(count: u32, fit: usize) -> Option<usize> {
    let count = count as usize;
    (1..=fit.min(count))
        .rev()
        .find(|per_region| count.checked_rem(*per_region) == Some(0))
}
