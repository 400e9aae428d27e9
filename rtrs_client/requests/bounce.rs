// SPDX-License-Identifier: GPL-2.0

//! Bounce buffers: the server writes the data of small reads to them, and small writes are sent
//! from them.
//!
//! Without a bounce buffer, a read's memory has to be registered before the request and invalidated
//! after it. A write must not be finished before the device has reported that it was sent, since
//! the device sends unacknowledged packets again. Either costs more than copying a page. So each
//! tag has a page that stays registered as long as the connections of its path stand. A page only
//! ever holds the data of small requests, so the server can see or spoil only data that it was
//! given or asked for.

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
use kernel_ext::{
    prelude::*,
    rdma::{
        chunk::{
            single::MappedChunk,
            ChunkSet,
            MappedChunks, //
        },
        Access,
        Handler,
        MemoryRegion,
        ProtectionDomain,
        QueuePairRef,
        SendBatch,
        SendRoom, //
    }, //
};
use proto::rtrs::SgDesc;

use crate::work::WorkKind;

/// The most memory for the bounce buffers of a path, in bytes: a page of 4 KiB for each of 4,096
/// tags.
const MAX_MEMORY: usize = 16 << 20;

/// The bounce buffer of a tag.
pub(super) struct BounceBuffer {
    pub(super) memory: MappedChunk,
    /// The address and the key by which the server reaches the buffer.
    pub(super) place: SgDesc,
}

/// The bounce buffers of a path, by tag.
pub(super) struct BounceBuffers {
    buffers: KVVec<BounceBuffer>,
    regions: KVec<MemoryRegion>,
}

impl BounceBuffers {
    /// The longest data that goes through a bounce buffer, in bytes. Every server takes as much.
    const SIZE: usize = 4096;
    /// The memory of a bounce buffer, in bytes: whole pages.
    const MEMORY: usize = Self::SIZE.next_multiple_of(PAGE_SIZE);
    /// The most bounce buffers of a path.
    const MOST: usize = MAX_MEMORY / Self::MEMORY;

    /// Allocates bounce buffers for `depth` tags, or for the first [`Self::MOST`] tags. Sleeps.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, depth: usize) -> Result<Self> {
        let size = Self::MEMORY;
        let depth = depth.min(Self::MOST);
        let set = ChunkSet::new(depth, size, domain.device().numa_node(), None)?;
        let chunks = Arc::new(MappedChunks::new(domain, &set)?, GFP_KERNEL)?;
        let per_region = chunks.chunks_per_region(domain.device().max_fast_reg_page_list_len());
        if per_region == 0 {
            return Err(EINVAL);
        }
        let mut regions = KVec::new();
        let mut buffers = KVVec::with_capacity(depth, GFP_KERNEL)?;
        for first in (0..depth).step_by(per_region) {
            // `first` is below `depth`.
            let count = per_region.min(depth.wrapping_sub(first));
            let region = chunks.region(first, count)?;
            let (key, len) = (region.rkey(), Self::SIZE as u32);
            let addr = region.iova();
            let mut place = SgDesc { addr, key, len };
            for tag in first..first.wrapping_add(count) {
                let memory = MappedChunk::new(&chunks, tag)?;
                buffers.push(BounceBuffer { memory, place }, GFP_KERNEL)?;
                place.addr = place.addr.wrapping_add(size as u64);
            }
            regions.push(region, GFP_KERNEL)?;
        }
        Ok(Self { buffers, regions })
    }

    /// Registers all pages. Work requests that `queue_pair` gets afterwards are carried out after
    /// that.
    pub(super) fn register<H: Handler>(&self, queue_pair: &QueuePairRef<H>) -> Result {
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        for region in &self.regions {
            batch.register(
                WorkKind::Registration.id(),
                false,
                region,
                Access::RemoteWrite,
            )?;
            queue_pair.post(&mut batch)?;
        }
        Ok(())
    }

    /// Returns the bounce buffer of `tag`; `None` if the tag has none, or if `len` bytes do not
    /// fit.
    #[inline(always)]
    pub(super) fn get(&self, tag: u32, len: usize) -> Option<&BounceBuffer> {
        self.buffers.get(tag as usize).filter(|_| len <= Self::SIZE)
    }
}
