// SPDX-License-Identifier: GPL-2.0

//! The devices of a session.

use core::ptr;
use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    mm::without_io,
    prelude::*, //
};
use proto::name::Name;

use crate::device::Device;

/// The devices of a session, in the order of their indices.
///
/// The transport waits for the lock when it tells of a lost link, so memory is allocated
/// [`without_io`] while the lock is held.
///
/// # Invariants
///
/// The devices are sorted by their indices, and no two have the same index.
#[pin_data]
pub(crate) struct DeviceList {
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
}

impl DeviceList {
    /// Makes an empty list.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            devices <- new_mutex!(KVec::new(), "DeviceList::devices"),
        })
    }

    /// Adds a device. `EEXIST` if the list has a device of this path. Sleeps.
    pub(crate) fn add(&self, device: &Arc<Device>) -> Result {
        let mut devices = self.devices.lock();
        if has_path(&devices, &device.remote.path) {
            return Err(EEXIST);
        }
        let place = place_behind(&devices, Some(device.remote.index()));
        without_io(|| devices.push(device.clone(), GFP_KERNEL))?;
        // INVARIANT: The device, which is the last one now, moves to its place. No other device has
        // its index while the device is there.
        if let Some(behind) = devices.get_mut(place..) {
            behind.rotate_right(1);
        }
        Ok(())
    }

    /// Removes a device, if the list has it. Sleeps.
    pub(crate) fn remove(&self, device: &Device) {
        let removed = {
            let mut devices = self.devices.lock();
            let place = devices.iter().position(|other| ptr::eq(&**other, device));
            place.and_then(|place| devices.remove(place).ok())
        };
        // Dropped without the lock.
        drop(removed);
    }

    /// Whether there is a device of this path. Sleeps.
    pub(crate) fn has(&self, path: &Name) -> bool {
        has_path(&self.devices.lock(), path)
    }

    /// Calls `run` with each device, in order. No device comes or goes meanwhile. The transport may
    /// wait for the end, so `run` waits for nothing that requests may wait for. Sleeps.
    pub(crate) fn for_each(&self, run: impl FnMut(&Arc<Device>)) {
        self.devices.lock().iter().for_each(run);
    }

    /// Whether `wanted` holds for a device; `wanted` waits for nothing. Sleeps.
    pub(crate) fn any(&self, wanted: impl FnMut(&Arc<Device>) -> bool) -> bool {
        self.devices.lock().iter().any(wanted)
    }

    /// The devices, in order, without memory for a copy of the list. Devices may come and go
    /// meanwhile: each device that is in the list all the time is returned, and no device is
    /// returned twice. Sleeps.
    pub(crate) fn each(&self) -> impl Iterator<Item = Arc<Device>> + '_ {
        let mut last = None;
        core::iter::from_fn(move || {
            let devices = self.devices.lock();
            let next = devices.get(place_behind(&devices, last))?.clone();
            last = Some(next.remote.index());
            Some(next)
        })
    }
}

/// The place of the first device behind the index `last` in a sorted list.
fn place_behind(devices: &[Arc<Device>], last: Option<u32>) -> usize {
    devices.partition_point(|device| Some(device.remote.index()) <= last)
}

fn has_path(devices: &[Arc<Device>], path: &Name) -> bool {
    devices.iter().any(|device| device.remote.path == *path)
}
