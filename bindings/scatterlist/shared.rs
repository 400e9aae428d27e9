// SPDX-License-Identifier: GPL-2.0

//! Memory that several requests send at the same time: one piece of data for several peers.
//!
//! A [`SharedTable`] names the memory. The tables of the requests get copies of its entries
//! ([`set_shared()`](super::ScatterTable::set_shared)). The first of them that is mapped for a
//! device maps the memory, and the others use that mapping, whichever queue pair or protection
//! domain they are of: a mapping is the device's. The memory goes back to its owner with the last
//! hold.
//!
//! ```text
//!  free ──fill()──▶ filled: a Sharing, a hold of each table ──last of these goes──▶ free
//! ```

use crate::{
    bindings,
    prelude::*,
    rdma::{
        verbs,
        Device,
        DeviceHandle,
        Direction, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
    }, //
};
use core::{
    cell::UnsafeCell,
    mem, //
};
use kernel::sync::Arc;

/// What a shared table is made of: a [`ScatterTable`](super::ScatterTable).
///
/// # Safety
///
/// What [`Self::to_send()`] returns stays as it is, with its pages, until the table is changed.
pub unsafe trait Source: Send + Sync + 'static {
    /// The entries in use and their number; nothing if they may not be read by a device.
    #[doc(hidden)]
    fn to_send(&self) -> Option<(*mut bindings::scatterlist, u32)>;

    /// The length of all entries in use, in bytes.
    #[doc(hidden)]
    fn num_bytes(&self) -> usize;

    /// Empties it. Any context.
    #[doc(hidden)]
    fn empty(&mut self);
}

/// In [`Inner::holders`]: the table is being filled or emptied.
const BUSY: u32 = u32::MAX;

/// Memory for several requests at a time, only to be sent. Filled many times, allocated once.
pub struct SharedTable<T: Source>(Arc<Inner<T>>);

/// The right to hand out memory that a [`SharedTable`] was filled with. As long as there is this,
/// no mapping is undone, so that each device has one.
pub struct Sharing<T: Source>(SharedHold<T>);

/// Keeps what a [`SharedTable`] was filled with. May be dropped in any context; the last one gives
/// the memory back, which may end a block request.
///
/// # Invariants
///
/// It counts in `holders`.
pub(super) struct SharedHold<T: Source>(Arc<Inner<T>>);

/// # Invariants
///
/// - `holders` is the number of [`SharedHold`]s, or [`BUSY`] while a caller changes `table`, which
///   only the caller that wrote [`BUSY`] does. So with a hold it does not change.
/// - While `holders` is 0 the table is empty, and no mapping has a device.
#[pin_data]
struct Inner<T> {
    holders: Atomic<u32>,
    table: UnsafeCell<T>,
    #[pin]
    mappings: SpinLockIrq<Mappings>,
}

struct Mappings {
    of_devices: KVec<DeviceMapping>,
    /// There is a [`Sharing`].
    is_sharing: bool,
    /// The mappings that were ever made.
    made: u64,
}

/// How the memory is mapped for a device.
///
/// # Invariants
///
/// - If there is a `device`, the entries in use, as many as in the shared table, have its pages,
///   and are mapped for it as `entries` DMA entries.
/// - `users` is the number of tables that have these DMA entries and may not be unmapped yet.
struct DeviceMapping {
    list: KVec<bindings::scatterlist>,
    device: Option<DeviceHandle>,
    entries: u32,
    users: u32,
}

// SAFETY: The table is `Send` and `Sync`, and changes as the type invariant says.
unsafe impl<T: Source> Send for Inner<T> {}

// SAFETY: As above.
unsafe impl<T: Source> Sync for Inner<T> {}

impl<T: Source> SharedTable<T> {
    /// Makes a shared table of an empty one for up to `max_segments` segments, that is mapped for
    /// up to `max_devices` devices at a time. Sleeps.
    pub(super) fn of(table: T, max_segments: u32, max_devices: usize) -> Result<Self> {
        let mut of_devices = KVec::with_capacity(max_devices, GFP_KERNEL)?;
        for _ in 0..max_devices {
            let empty = bindings::scatterlist::default();
            let list = KVec::from_elem(empty, usize::try_from(max_segments)?, GFP_KERNEL)?;
            // INVARIANT: There is no device.
            let mapping = DeviceMapping {
                list,
                device: None,
                entries: 0,
                users: 0,
            };
            of_devices.push(mapping, GFP_KERNEL)?;
        }
        let mappings = Mappings {
            of_devices,
            is_sharing: false,
            made: 0,
        };
        // INVARIANT: There is no hold, and the table is empty.
        let inner = try_pin_init!(Inner {
            holders: Atomic::new(0),
            table: UnsafeCell::new(table),
            mappings <- new_spinlock_irq!(mappings, "SharedTable::mappings"),
        });
        Ok(Self(Arc::pin_init(inner, GFP_KERNEL)?))
    }

    /// Fills the table by `fill`. Any context in which `fill` may be called.
    ///
    /// `EBUSY` if a request has not let go of what it was filled with last; `EINVAL` if the memory
    /// is not to be sent, or if there is none; the errors of `fill`.
    pub fn fill(&self, fill: impl FnOnce(&mut T) -> Result) -> Result<Sharing<T>> {
        let holders = &self.0.holders;
        if holders.cmpxchg(0, BUSY, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: By the type invariant nobody else uses the table now.
        let table = unsafe { &mut *self.0.table.get() };
        let filled = fill(table).and_then(|()| match table.to_send() {
            Some((_, used)) if used != 0 => Ok(()),
            _ => Err(EINVAL),
        });
        if let Err(error) = filled {
            table.empty();
            // INVARIANT: It is empty, and nothing was mapped.
            holders.store(0, ordering::Release);
            return Err(error);
        }
        self.0.mappings.lock().is_sharing = true;
        // INVARIANT: The one that is made now.
        holders.store(1, ordering::Release);
        Ok(Sharing(SharedHold(self.0.clone())))
    }

    /// How often the memory was mapped for a device since the table was made. Any context.
    pub fn times_mapped(&self) -> u64 {
        self.0.mappings.lock().made
    }
}

impl<T: Source> Sharing<T> {
    /// One more hold.
    pub(super) fn hold(&self) -> SharedHold<T> {
        // INVARIANT: It is counted here. There is this object's, so the number is neither 0 nor
        // `BUSY`.
        self.0 .0.holders.add(1, ordering::Relaxed);
        SharedHold(self.0 .0.clone())
    }

    /// The table.
    pub(super) fn table(&self) -> &T {
        self.0.table()
    }

    /// The length of the memory in bytes.
    pub fn byte_len(&self) -> usize {
        self.table().num_bytes()
    }
}

impl<T: Source> Drop for Sharing<T> {
    fn drop(&mut self) {
        self.0 .0.end_unused(|mappings| mappings.is_sharing = false);
    }
}

impl<T: Source> SharedHold<T> {
    /// The table, which does not change.
    fn table(&self) -> &T {
        // SAFETY: By the type invariants there are holds as long as the borrow lasts.
        unsafe { &*self.0.table.get() }
    }

    /// Has the memory mapped for `device`, and writes its entries, with their DMA addresses, to
    /// `out`; returns the number of DMA entries. Nothing if the caller is to map the memory itself.
    /// Each call that returns a number is followed by one of [`Self::unmap()`]. Any context.
    pub(super) fn map(
        &self,
        device: &Device,
        out: &mut [bindings::scatterlist],
    ) -> Result<Option<u32>> {
        let (list, used) = self.table().to_send().ok_or(EINVAL)?;
        let mut mappings = self.0.mappings.lock();
        let Mappings {
            of_devices, made, ..
        } = &mut *mappings;
        let known = of_devices.iter().position(|one| one.is_for(device));
        let place = known.or_else(|| of_devices.iter().position(|one| one.device.is_none()));
        let Some(mapping) = place.and_then(|place| of_devices.get_mut(place)) else {
            return Ok(None);
        };
        if known.is_none() {
            // A device that is going away is not held up.
            let Ok(handle) = device.handle() else {
                return Ok(None);
            };
            // SAFETY: The shared table has that many entries, with pages that stay with the hold.
            unsafe { mapping.map(handle, list, used) }?;
            *made += 1;
        }
        let used = used as usize;
        let (Some(from), Some(to)) = (mapping.list.get(..used), out.get_mut(..used)) else {
            return Err(EINVAL);
        };
        to.copy_from_slice(from);
        // INVARIANT: The caller has the entries.
        mapping.users += 1;
        Ok(Some(mapping.entries))
    }

    /// A table to which [`Self::map()`] gave the entries of `device` does not use them any more,
    /// nor does the device because of that table. Any context.
    pub(super) fn unmap(&self, device: &Device) {
        self.0.end_unused(|mappings| {
            let mut all = mappings.of_devices.iter_mut();
            if let Some(mapping) = all.find(|one| one.is_for(device)) {
                // INVARIANT: One table fewer.
                mapping.users -= 1;
            }
        });
    }
}

impl<T: Source> Inner<T> {
    /// Changes the mappings, and undoes those that nothing needs then.
    fn end_unused(&self, change: impl FnOnce(&mut Mappings)) {
        let mut mappings = self.mappings.lock();
        change(&mut mappings);
        if mappings.is_sharing {
            return;
        }
        // SAFETY: The callers have a hold, so the table does not change.
        let used = unsafe { &*self.table.get() }.to_send();
        let used = used.map_or(0, |(_, used)| used);
        for mapping in mappings.of_devices.iter_mut() {
            if mapping.users == 0 {
                mapping.undo(used);
            }
        }
    }
}

impl<T: Source> Drop for SharedHold<T> {
    fn drop(&mut self) {
        let holders = &self.0.holders;
        let mut count = holders.load(ordering::Relaxed);
        loop {
            // The last one empties the table, before anybody can fill it.
            let next = if count == 1 { BUSY } else { count - 1 };
            match holders.cmpxchg(count, next, ordering::Full) {
                Ok(_) if next != BUSY => return,
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        // No mapping is left: the `Sharing` is gone, as its own hold is, and a table that has
        // entries of a mapping keeps its hold.
        // SAFETY: By the type invariant nobody else uses the table now.
        unsafe { &mut *self.0.table.get() }.empty();
        // INVARIANT: It is empty.
        holders.store(0, ordering::Release);
    }
}

impl DeviceMapping {
    fn is_for(&self, device: &Device) -> bool {
        self.device.as_deref() == Some(device)
    }

    /// Maps the first `used` entries of `source` for `device`.
    ///
    /// # Safety
    ///
    /// `source` has that many entries, whose pages stay until [`Self::undo()`].
    unsafe fn map(
        &mut self,
        device: DeviceHandle,
        source: *mut bindings::scatterlist,
        used: u32,
    ) -> Result {
        let room = self.list.len() as u32;
        let (list, mut bytes) = (self.list.as_mut_ptr(), 0);
        // SAFETY: There are `room` entries in the list, and `used` in the source.
        let mapped = unsafe {
            bindings::sg_init_table(list, room);
            if bindings::rnbd_helper_sg_copy_entries(list, room, source, used, &mut bytes) != used {
                return Err(EINVAL);
            }
            let (count, direction) = (used as c_int, Direction::ToDevice.into());
            bindings::rnbd_helper_ib_dma_map_sg(device.as_raw(), list, count, direction, false)
        };
        if mapped <= 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: Just mapped, and no table has the entries yet.
        self.entries = mapped as u32;
        self.users = 0;
        self.device = Some(device);
        Ok(())
    }

    /// Undoes the mapping, if there is one, of `used` entries, which no table has any more.
    fn undo(&mut self, used: u32) {
        let Some(device) = mem::take(&mut self.device) else {
            return;
        };
        // SAFETY: The entries were mapped for the device, which uses them for no table any more.
        unsafe {
            if !verbs::is_virtual(device.as_raw()) {
                bindings::rnbd_helper_ib_dma_unmap_sg(
                    device.as_raw(),
                    self.list.as_mut_ptr(),
                    used as c_int,
                    Direction::ToDevice.into(),
                    false,
                );
            }
        }
    }
}
