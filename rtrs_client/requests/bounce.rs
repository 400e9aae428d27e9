// SPDX-License-Identifier: GPL-2.0

//! Memory that the server writes the data of small reads to, and that those of small writes are
//! sent from.
//!
//! To let the server write to the memory of a request, it has to be registered before and
//! invalidated after it; to send from it, the request must not be finished before the device has
//! reported that it was sent, since the device sends again what was not acknowledged. Either costs
//! more than copying a page. So each tag has a page that stays registered as long as the
//! connections of its path stand. Nothing but the data of small requests is ever in it, so that all
//! a server can see or spoil is what it has been given or asked for.

use core::mem::MaybeUninit;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    rdma::{
        chunk::{
            ChunkSet,
            MappedChunks, //
        },
        Access,
        Handler,
        MemoryRegion,
        ProtectionDomain,
        QueuePairRef,
        SendBatch, //
    }, //
};
use proto::rtrs::SgDesc;

use crate::work::WorkKind;

/// The most memory that a path takes for it, in bytes.
const MAX_MEMORY: usize = 8 << 20;

/// A page for each tag of a path.
pub(crate) struct BounceBuffers {
    chunks: MappedChunks,
    regions: KVec<MemoryRegion>,
    /// By tag: where the server finds its page.
    places: KVec<SgDesc>,
}

impl BounceBuffers {
    /// The longest data that they are used for, in bytes.
    pub(crate) const SIZE: usize = PAGE_SIZE;

    /// Allocates pages for `depth` tags. Sleeps. `ENOMEM` if that is too much.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, depth: usize) -> Result<Self> {
        if depth > MAX_MEMORY / Self::SIZE {
            return Err(ENOMEM);
        }
        let set = ChunkSet::new(depth, Self::SIZE, domain.device().numa_node(), None)?;
        let chunks = MappedChunks::new(domain, &set)?;
        let per_region = chunks.chunks_per_region(domain.device().max_fast_reg_page_list_len());
        if per_region == 0 {
            return Err(EINVAL);
        }
        let mut regions = KVec::new();
        let mut places = KVec::with_capacity(depth, GFP_KERNEL)?;
        for first in (0..depth).step_by(per_region) {
            // `first` is below `depth`.
            let count = per_region.min(depth.wrapping_sub(first));
            let region = chunks.region(first, count)?;
            let mut addr = region.iova();
            for _ in 0..count {
                let place = SgDesc {
                    addr,
                    key: region.rkey(),
                    len: Self::SIZE as u32,
                };
                places.push(place, GFP_KERNEL)?;
                addr = addr.wrapping_add(Self::SIZE as u64);
            }
            regions.push(region, GFP_KERNEL)?;
        }
        Ok(Self {
            chunks,
            regions,
            places,
        })
    }

    /// Registers all pages. What `queue_pair` sends afterwards is sent when that is done.
    pub(crate) fn register<H: Handler>(&self, queue_pair: &QueuePairRef<H>) -> Result {
        let mut place = MaybeUninit::uninit();
        let batch = SendBatch::<1, 1>::init(&mut place);
        for region in &self.regions {
            batch.register(
                WorkKind::Registration.id(),
                false,
                region,
                Access::RemoteWrite,
            )?;
            queue_pair
                .post_batch(batch)
                .map_err(|unposted| unposted.error)?;
        }
        Ok(())
    }

    /// Where the server is to write `len` bytes for `tag`; `None` if they do not fit.
    #[inline]
    pub(crate) fn place(&self, tag: u32, len: usize) -> Option<SgDesc> {
        let place = self.places.get(tag as usize)?;
        if len > Self::SIZE {
            return None;
        }
        Some(SgDesc {
            // At most a page.
            len: len as u32,
            ..*place
        })
    }

    /// The pages, by tag.
    #[inline]
    pub(crate) fn chunks(&self) -> &MappedChunks {
        &self.chunks
    }
}
