// SPDX-License-Identifier: GPL-2.0

//! Memory that several requests send at the same time: one piece of data for several peers.
//!
//! A [`SharedTable`] names the memory. The tables of the requests get copies of its entries
//! ([`set_shared()`](super::ScatterTable::set_shared)). When the first of these tables is mapped
//! for a device, the memory is mapped. Further tables use that mapping for all queue pairs and
//! protection domains of the device, as a mapping belongs to the device. The owner gets the memory
//! back when the last hold is dropped.
//!
//! ```text
//!  free ──fill()──▶ filled: a Sharing, a hold of each table ──last one dropped──▶ free
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

/// The table in a shared table: a [`ScatterTable`](super::ScatterTable).
///
/// # Safety
///
/// The entries that [`Self::to_send()`] returns, and their pages, stay the same until the table is
/// changed.
pub unsafe trait Source: Send + Sync + 'static {
    /// The entries in use and their number; `None` if a device must not read their pages.
    #[doc(hidden)]
    fn to_send(&self) -> Option<(*mut bindings::scatterlist, u32)>;

    /// The length of all entries in use, in bytes.
    #[doc(hidden)]
    fn num_bytes(&self) -> usize;

    /// Empties the table. Any context.
    #[doc(hidden)]
    fn empty(&mut self);
}

/// In [`Inner::holders`]: the table is being filled or emptied.
const BUSY: u32 = u32::MAX;

/// Memory that several requests send at the same time. Allocated once, filled many times.
pub struct SharedTable<T: Source>(Arc<Inner<T>>);

/// The right to hand out the memory of a [`SharedTable`]. As long as this value exists no mapping
/// is undone, so the memory is mapped once for each device.
pub struct Sharing<T: Source>(SharedHold<T>);

/// Keeps the memory of a [`SharedTable`]. May be dropped in any context. Dropping the last hold
/// gives the memory back, which may end a block request.
///
/// # Invariants
///
/// The hold counts in `holders`.
pub(super) struct SharedHold<T: Source>(Arc<Inner<T>>);

/// # Invariants
///
/// - `holders` is the number of [`SharedHold`]s, or [`BUSY`] while a caller changes `table`. Only
///   the caller that wrote [`BUSY`] changes `table`. So the table does not change while there is a
///   hold.
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
    /// Whether there is a [`Sharing`].
    is_sharing: bool,
    /// The number of mappings that were ever made.
    made: u64,
}

/// How the memory is mapped for a device.
///
/// # Invariants
///
/// - If there is a `device`, the first entries of `list`, as many as the shared table has in use,
///   name the pages of the shared table, and are mapped for the device as `entries` DMA entries.
/// - `users` is the number of tables that have got these DMA entries from [`SharedHold::map()`] and
///   have not given them back by [`SharedHold::unmap()`].
struct DeviceMapping {
    list: KVec<bindings::scatterlist>,
    device: Option<DeviceHandle>,
    entries: u32,
    users: u32,
}

// SAFETY: The table is `Send` and `Sync`. By the type invariant it is changed by one caller at a
// time, and not while there is a hold.
unsafe impl<T: Source> Send for Inner<T> {}

// SAFETY: As above.
unsafe impl<T: Source> Sync for Inner<T> {}

impl<T: Source> SharedTable<T> {
    /// Makes a shared table of `table`, which is empty and has room for `max_segments` segments.
    /// The memory is mapped for up to `max_devices` devices at a time. Sleeps.
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
    /// `EBUSY` if a request still holds the last memory of the table, `EINVAL` if there is no
    /// memory or if it must not be sent, and the errors of `fill`.
    pub fn fill(&self, fill: impl FnOnce(&mut T) -> Result) -> Result<Sharing<T>> {
        let holders = &self.0.holders;
        if holders.cmpxchg(0, BUSY, ordering::Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: By the type invariant only this caller uses the table while `holders` is `BUSY`.
        let table = unsafe { &mut *self.0.table.get() };
        let filled = fill(table).and_then(|()| match table.to_send() {
            Some((_, used)) if used != 0 => Ok(()),
            _ => Err(EINVAL),
        });
        if let Err(error) = filled {
            table.empty();
            // INVARIANT: The table is empty, and nothing was mapped.
            holders.store(0, ordering::Release);
            return Err(error);
        }
        self.0.mappings.lock().is_sharing = true;
        // INVARIANT: The only hold is the one that is made now.
        holders.store(1, ordering::Release);
        Ok(Sharing(SharedHold(self.0.clone())))
    }

    /// How often the memory was mapped for a device since the table was made. Any context.
    pub fn times_mapped(&self) -> u64 {
        self.0.mappings.lock().made
    }
}

impl<T: Source> Sharing<T> {
    /// Makes a further hold.
    pub(super) fn hold(&self) -> SharedHold<T> {
        // INVARIANT: The hold is counted here. This object has a hold, so the number is neither 0
        // nor `BUSY`.
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
        // SAFETY: By the type invariants this hold counts as long as it is borrowed, so the table
        // does not change.
        unsafe { &*self.0.table.get() }
    }

    /// Maps the memory for `device`, if it is not mapped yet, and writes the entries with their DMA
    /// addresses to `out`. Returns the number of DMA entries; `None` if the caller must map the
    /// memory itself. Each call that returns a number must be followed by one call of
    /// [`Self::unmap()`]. Any context.
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
            // The device is being removed; no mapping may delay that.
            let Ok(handle) = device.handle() else {
                return Ok(None);
            };
            // SAFETY: The shared table has `used` entries, and the hold keeps their pages.
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

    /// Gives back the entries of `device` that [`Self::map()`] gave to a table. The device must not
    /// use them for that table any more. Any context.
    pub(super) fn unmap(&self, device: &Device) {
        self.0.end_unused(|mappings| {
            let mut all = mappings.of_devices.iter_mut();
            if let Some(mapping) = all.find(|one| one.is_for(device)) {
                // INVARIANT: One table has given its entries back.
                mapping.users -= 1;
            }
        });
    }
}

impl<T: Source> Inner<T> {
    /// Changes the mappings by `change`, and then undoes the mappings without users, unless there
    /// is a `Sharing`.
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
            // The last hold empties the table, before the table can be filled again.
            let next = if count == 1 { BUSY } else { count - 1 };
            match holders.cmpxchg(count, next, ordering::Full) {
                Ok(_) if next != BUSY => return,
                Ok(_) => break,
                Err(now) => count = now,
            }
        }
        // No mapping is left: the `Sharing` had a hold, so it is gone, and a table with entries of
        // a mapping keeps its hold.
        // SAFETY: By the type invariant only this caller uses the table while `holders` is `BUSY`.
        unsafe { &mut *self.0.table.get() }.empty();
        // INVARIANT: The table is empty.
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
    /// `source` has `used` entries, whose pages stay until [`Self::undo()`].
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
        // INVARIANT: The entries were just mapped, and no table has them yet.
        self.entries = mapped as u32;
        self.users = 0;
        self.device = Some(device);
        Ok(())
    }

    /// Undoes the mapping of `used` entries, if there is one. No table has these entries any more.
    fn undo(&mut self, used: u32) {
        let Some(device) = mem::take(&mut self.device) else {
            return;
        };
        // SAFETY: The entries were mapped for the device. As no table has them any more, the device
        // does not use them.
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
