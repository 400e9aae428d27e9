// SPDX-License-Identifier: GPL-2.0

//! The memory of one end of a raw connection: a piece that the peer may write to, and a piece to
//! write from.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    rdma::{
        chunk::{
            ChunkSet,
            MappedChunks, //
        },
        MemoryRegion,
        ProtectionDomain,
        RemoteMemory,
        SendBatch, //
    }, //
};
use proto::fabric::{
    fill::{
        fill,
        first_difference,
        pieces,
        STEP, //
    },
    RAW_SIZE, //
};

/// The piece that the peer may write to.
const TARGET: usize = 0;

/// The piece to write from.
const SOURCE: usize = 1;

/// The most scatter entries of a work request.
pub(crate) const MAX_SGES: usize = 8;

/// The memory of one end of a raw connection.
///
/// # Invariants
///
/// `scratch` has [`STEP`] bytes. Each piece has [`RAW_SIZE`] bytes.
pub struct Memory {
    mapped: MappedChunks,
    region: MemoryRegion,
    scratch: KVec<u8>,
}

impl Memory {
    /// Allocates and maps the memory. Sleeps.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>) -> Result<Self> {
        let set = ChunkSet::new(2, RAW_SIZE as usize, domain.device().numa_node(), None)?;
        let mapped = MappedChunks::new(domain, &set)?;
        let region = mapped.region(TARGET, 1)?;
        // INVARIANT: `scratch` and the pieces have the lengths that are asked for.
        Ok(Self {
            mapped,
            region,
            scratch: KVec::from_elem(0, STEP, GFP_KERNEL)?,
        })
    }

    /// The region of the piece that the peer may write to.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// The address and the key by which the peer reaches that piece.
    pub fn target(&self) -> RemoteMemory {
        RemoteMemory {
            address: self.region.iova(),
            rkey: self.region.rkey(),
        }
    }

    /// Fills the beginning of the source with a pattern. `EINVAL` if the source is shorter. Sleeps.
    pub(crate) fn fill_source(&mut self, seed: u64, len: usize) -> Result {
        self.fill(SOURCE, seed, len)
    }

    /// Fills the beginning of the piece that the peer may write to with a pattern. Sleeps.
    pub fn fill_target(&mut self, seed: u64, len: usize) -> Result {
        self.fill(TARGET, seed, len)
    }

    fn fill(&mut self, piece: usize, seed: u64, len: usize) -> Result {
        for (place, word) in pieces(len) {
            let bytes = self.scratch.get_mut(..place.len()).ok_or(EINVAL)?;
            fill(seed, word, bytes);
            self.mapped.set().copy_in(piece, place.start, bytes)?;
        }
        match len {
            0 => Ok(()),
            _ => self.mapped.sync_for_device(piece, 0, len),
        }
    }

    /// Compares the first `len` bytes of the piece that the peer may write to with the pattern.
    /// Returns the place of the first byte that differs. `EINVAL` if the piece is shorter. Sleeps.
    pub fn first_difference(&mut self, seed: u64, len: usize) -> Result<Option<usize>> {
        if len != 0 {
            self.mapped.sync_for_cpu(TARGET, 0, len)?;
        }
        for (place, word) in pieces(len) {
            let bytes = self.scratch.get_mut(..place.len()).ok_or(EINVAL)?;
            self.mapped.set().copy_out(TARGET, place.start, bytes)?;
            if let Some(wrong) = first_difference(seed, word, bytes) {
                return Ok(Some(place.start.wrapping_add(wrong)));
            }
        }
        Ok(None)
    }

    /// Adds the bytes of the source from `at` to `end` to the next request of `batch`. Adds no more
    /// than `limit` scatter entries of at most `piece` bytes. Returns where the added bytes end.
    pub(crate) fn add<const N: usize, const S: usize>(
        &self,
        batch: &mut SendBatch<'_, N, S>,
        at: usize,
        end: usize,
        piece: usize,
        limit: usize,
    ) -> Result<usize> {
        let mut at = at;
        for count in 1..=limit {
            let left = end.checked_sub(at).ok_or(EINVAL)?;
            if left == 0 {
                break;
            }
            // If this is not within the source, the call fails.
            let covered = self
                .mapped
                .add_sges(SOURCE, at, left.min(piece), batch, count)?;
            at = at.wrapping_add(covered);
        }
        Ok(at)
    }
}
