// SPDX-License-Identifier: GPL-2.0

//! Pages to send from, mapped once for the lifetime of a protection domain.
//!
//! Would extend: `rust/kernel/rdma/mr.rs`.

use crate::{
    bindings,
    page::send::SendPages,
    prelude::*,
    rdma::{
        pd::Retained,
        verbs,
        Direction,
        ProtectionDomain,
        Sge, //
    },
    scatterlist::ScatterTable, //
};
use kernel::sync::Arc;

/// The DMA mappings of pages.
///
/// # Invariants
///
/// - The first `addresses.len()` pages of `pages` are mapped for `device`, to be sent, each at its
///   element of `addresses`. After the construction these are all pages.
/// - `device` is valid, as the protection domain holds a handle of it.
struct Mapping {
    pages: Arc<SendPages>,
    addresses: KVVec<u64>,
    device: *mut bindings::ib_device,
}

// SAFETY: A `Mapping` may be dropped in any task, and its fields are otherwise only read.
unsafe impl Send for Mapping {}

// SAFETY: As above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        for &address in &self.addresses {
            // SAFETY: By the type invariant the page is mapped. `Retained` keeps the mapping while
            // work requests name it.
            unsafe {
                bindings::rnbd_helper_ib_dma_unmap_single(
                    self.device,
                    address,
                    SendPages::SIZE,
                    Direction::ToDevice.into(),
                )
            };
        }
    }
}

/// Pages that are mapped for the device of a protection domain, to be sent from.
///
/// The mapping and the pages stay as long as the domain. So a work request with a page needs no
/// mapping of its own, and no completion to end one. May be dropped in any context, as long as
/// something else holds the domain.
///
/// # Invariants
///
/// `lkey` and `domain` are the local key and the serial number of the domain of `mapping`.
pub struct MappedSendPages {
    mapping: Retained<Mapping>,
    lkey: u32,
    domain: u64,
    /// Whether the memory must be synchronised: not for a software device, which uses the CPU's
    /// addresses.
    synchronise: bool,
}

impl MappedSendPages {
    /// Maps `pages`. Sleeps. `EIO` if the device cannot reach them.
    pub fn new(domain: &Arc<ProtectionDomain>, pages: &Arc<SendPages>) -> Result<Self> {
        let device = domain.device().as_raw();
        let all = pages.addresses();
        // INVARIANT: Nothing is mapped.
        let mut mapping = Mapping {
            pages: pages.clone(),
            addresses: KVVec::with_capacity(all.len(), GFP_KERNEL)?,
            device,
        };
        for page in all {
            // SAFETY: The device is valid, and the page is that long.
            let address = unsafe {
                bindings::rnbd_helper_ib_dma_map_single(
                    device,
                    page.as_ptr().cast(),
                    SendPages::SIZE,
                    Direction::ToDevice.into(),
                )
            };
            // SAFETY: The device is valid.
            if unsafe { bindings::rnbd_helper_ib_dma_mapping_error(device, address) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: The next page is mapped. There is capacity for all.
            mapping.addresses.push(address, GFP_KERNEL)?;
        }
        // INVARIANT: `lkey` and `domain` are those of the domain.
        Ok(Self {
            lkey: domain.local_dma_lkey(),
            domain: domain.serial(),
            // SAFETY: The domain keeps its device.
            synchronise: !unsafe { verbs::is_virtual(device) },
            mapping: Retained::new(domain, mapping)?,
        })
    }

    /// The scatter entry of the memory of `table`, if `table` describes page `index`. `None`
    /// otherwise: the table must be sent in another way then. Any context.
    #[inline]
    pub fn sge(&self, index: usize, table: &ScatterTable) -> Option<Sge> {
        let mapping = &self.mapping;
        let len = table.len_in_page(&mapping.pages, index)?;
        let address = *mapping.addresses.get(index)?;
        if self.synchronise {
            let direction = Direction::ToDevice.into();
            // SAFETY: By the invariant of the mapping the page is mapped, and the table describes
            // at most a page.
            unsafe { verbs::sync_for_device(mapping.device, address, len as usize, direction) };
        }
        // SAFETY: By the invariants `len` bytes are mapped at the address as long as the domain
        // exists, and `len` is not 0.
        Some(unsafe { Sge::new(address, len, self.lkey, self.domain) })
    }
}
