// SPDX-License-Identifier: GPL-2.0

//! Memory for sessions that is reserved when the module is loaded.
//!
//! Sessions can be made as far as this memory reaches, however little memory the machine has left
//! by then. The pool is shown in `/sys/module/rtrs_server/chunk_pool/`.

use kernel::{
    sync::Arc,
    ModuleMetadata, //
};
use kernel_ext::{
    kobject::ModuleDirectory,
    prelude::*,
    rdma::chunk::ChunkPool,
    sysfs::{
        Attribute,
        Directory,
        SysfsOutput, //
    }, //
};
use proto::rtrs::ChunkLayout;

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// The pool, if there is one.
pub(crate) struct Pool(Option<Arc<ChunkPool>>);

impl Pool {
    /// Allocates `mib` MiB for the chunks of `layout`. Sleeps. `ENOMEM` if there is less memory.
    pub(crate) fn new(mib: u32, layout: &ChunkLayout) -> Result<Arc<Self>> {
        let pool = match mib {
            0 => None,
            _ => Some(allocate(mib, layout).inspect_err(|error| {
                pr_err!(
                    "chunk_pool_mb: no {} MiB of memory for the pool: {:?}; choose a smaller \
                     value\n",
                    mib,
                    error
                );
            })?),
        };
        Ok(Arc::new(Self(pool), GFP_KERNEL)?)
    }

    /// The chunks.
    pub(crate) fn chunks(&self) -> Option<&Arc<ChunkPool>> {
        self.0.as_ref()
    }

    /// Shows the pool in the folder of the module `M`. Sleeps.
    pub(crate) fn show<M: ModuleMetadata>(self: &Arc<Self>) -> Result<Directory<Self>> {
        Directory::new(
            &ModuleDirectory::<M>::new(),
            c"chunk_pool",
            ATTRIBUTES,
            self.clone(),
        )
    }
}

fn allocate(mib: u32, layout: &ChunkLayout) -> Result<Arc<ChunkPool>> {
    let size = u64::from(layout.chunk_size());
    let count = u64::from(mib)
        .checked_mul(MIB)
        .and_then(|bytes| bytes.checked_div(size))
        .ok_or(EINVAL)?;
    // A chunk has up to 256 MiB: a smaller pool still has one chunk.
    let count = usize::try_from(count)?.max(1);
    ChunkPool::new(count, layout.chunk_size() as usize)
}

const ATTRIBUTES: &[Attribute<Pool>] = &[
    Attribute::read_only(c"total_bytes", |pool, out| {
        show_bytes(out, pool.chunks().map_or(0, |chunks| chunks.total_memory()))
    }),
    Attribute::read_only(c"free_bytes", |pool, out| {
        show_bytes(out, pool.chunks().map_or(0, |chunks| chunks.free_memory()))
    }),
];

fn show_bytes(out: &mut SysfsOutput<'_>, bytes: usize) -> Result {
    out.print(fmt!("{}\n", bytes))
}
