// SPDX-License-Identifier: GPL-2.0

//! The numbers of a session's devices.

use kernel::{
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu::RcuArc, //
    }, //
};
use proto::{
    device_number,
    name::Name,
    rnbd::Op,
    Errno, //
};
use rtrs_core::error::from_errno;
use rtrs_server::{
    Times,
    Worker, //
};

use crate::{
    handle::HandleUse,
    latency,
    session_device::{
        Noted,
        SessionDevice, //
    }, //
};

/// The number of slots that a session gets when it opens its first device.
const FIRST_SLOTS: usize = 8;

/// The devices of a session, by the number by which the client knows them.
///
/// Requests look numbers up without a lock. Changes are made by one caller at a time, under the
/// session's control lock.
///
/// # Invariants
///
/// There are slots for all numbers below `given`, and only numbers below `given` were given to
/// devices.
pub(crate) struct DeviceTable {
    /// Replaced by a longer one when there is no room for another number; never shortened.
    slots: RcuArc<KVec<Arc<Slot>>>,
    /// How many numbers were given.
    given: Atomic<u32>,
    /// The number given last.
    last: Atomic<u32>,
    /// The client is to be told of a device that was closed by force.
    has_closed: Atomic<bool>,
}

/// The slot of a number.
struct Slot {
    device: RcuArc<SessionDevice>,
    /// The device was closed by force. The client still uses the number, which must not come to
    /// mean another device.
    reserved: Atomic<bool>,
    /// What the client is told of the forced close.
    closed: RcuArc<Noted>,
}

/// What happens to the number of a device that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// The number can be used again: the client has closed the device.
    Free,
    /// The number stays reserved: the client does not know that the device is closed.
    Reserve,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.device.is_none() && !self.reserved.load(ordering::Relaxed)
    }
}

impl DeviceTable {
    /// Makes an empty table.
    pub(crate) fn new() -> Self {
        Self {
            slots: RcuArc::empty(),
            given: Atomic::new(0),
            last: Atomic::new(0),
            has_closed: Atomic::new(false),
        }
    }

    /// Lets the caller at the device with this number. `None` if there is no such device, or if its
    /// requests have to go to its worker. Any context.
    ///
    /// The worker is held while reservations restrict the client, so reservations need not be
    /// looked at here.
    #[inline]
    pub(crate) fn enter(&self, id: u32) -> Option<HandleUse> {
        let guard = rcu::read_lock();
        let slots = self.slots.load(&guard)?;
        let slot = slots.get(usize::try_from(id).ok()?)?;
        let device = slot.device.load(&guard)?;
        if device.worker().is_busy() {
            return None;
        }
        device.enter()
    }

    /// Lets a request that is with the worker at the device with this number. Sleeps.
    ///
    /// `ENOTCONN` if there is no such device or it is closed, `EBADE` if a reservation forbids
    /// `op`.
    pub(crate) fn enter_deferred(&self, id: u32, op: Op) -> Result<HandleUse> {
        loop {
            let entered = {
                // One read section for the entry and the look at the access: a command that lowers
                // the access waits for the end of the section.
                let guard = rcu::read_lock();
                let slots = self.slots.load(&guard).ok_or(ENOTCONN)?;
                let slot = slots.get(usize::try_from(id)?).ok_or(ENOTCONN)?;
                let device = slot.device.load(&guard).ok_or(ENOTCONN)?;
                device.enter().map(|entered| (entered, device.access()))
            };
            match entered {
                Some((entered, access)) if access.allows(op) => return Ok(entered),
                Some(_) => return Err(from_errno(Errno::EBADE)),
                // The device is being drained or closed.
                None if self.get(id).ok_or(ENOTCONN)?.wait_open() => {}
                None => return Err(ENOTCONN),
            }
        }
    }

    /// The worker of the device with this number. Any context.
    pub(crate) fn worker(&self, id: u32) -> Option<Worker> {
        self.worker_of(id, SessionDevice::worker)
    }

    /// The worker for commands of the device with this number. Any context.
    pub(crate) fn command_worker(&self, id: u32) -> Option<Worker> {
        self.worker_of(id, SessionDevice::commands)
    }

    fn worker_of(&self, id: u32, worker: fn(&SessionDevice) -> &Worker) -> Option<Worker> {
        let guard = rcu::read_lock();
        let slots = self.slots.load(&guard)?;
        let slot = slots.get(usize::try_from(id).ok()?)?;
        Some(worker(slot.device.load_ref(&guard)?).clone())
    }

    /// Counts a request of a device, if the device's requests are counted. Any context.
    pub(crate) fn timed(&self, times: &Times) {
        let guard = rcu::read_lock();
        let Some(slots) = self.slots.load(&guard) else {
            return;
        };
        let id = usize::try_from(latency::device_id(times.note)).ok();
        let slot = id.and_then(|id| slots.get(id));
        if let Some(device) = slot.and_then(|slot| slot.device.load_ref(&guard)) {
            latency::count(device.latency(), times);
        }
    }

    /// The first device for which `wanted` holds, in the order of their numbers.
    pub(crate) fn find(
        &self,
        wanted: impl FnMut(&SessionDevice) -> bool,
    ) -> Option<Arc<SessionDevice>> {
        self.find_from(0, wanted)
    }

    /// Does what [`Self::find`] does, among the devices with the number `first` or a higher one.
    pub(crate) fn find_from(
        &self,
        first: u32,
        mut wanted: impl FnMut(&SessionDevice) -> bool,
    ) -> Option<Arc<SessionDevice>> {
        self.slots
            .get()?
            .get(usize::try_from(first).ok()?..)?
            .iter()
            .filter_map(|slot| slot.device.get())
            .find(|device| wanted(device))
    }

    /// Calls `take` with what the client is told of each number from `first` on, in their order,
    /// until `take` returns true.
    pub(crate) fn find_noted_from(&self, first: u32, mut take: impl FnMut(u32, Noted) -> bool) {
        let Some(slots) = self.slots.get() else {
            return;
        };
        let _ = slots
            .iter()
            .zip(0u32..)
            .filter(|(_, id)| *id >= first)
            .find(|(slot, id)| {
                // The close comes first: a device that is being closed by force is still there.
                let closed = slot.closed.get().map(|noted| *noted);
                let noted = closed.or_else(|| Some(*slot.device.get()?.noted().lock()));
                noted.is_some_and(|noted| take(*id, noted))
            });
    }

    /// Notes what the client is told of a device that is about to be closed by force. Sleeps.
    pub(crate) fn note_closed(&self, id: u32, noted: Noted) -> Result {
        let slot = self.slot(id).ok_or(EINVAL)?;
        slot.closed.replace(Some(Arc::new(noted, GFP_KERNEL)?));
        self.has_closed.store(true, ordering::Release);
        Ok(())
    }

    /// Whether the client is to be told of a device that was closed by force. The caller tells the
    /// client. Any context.
    pub(crate) fn take_closed(&self) -> bool {
        self.has_closed.xchg(false, ordering::Full)
    }

    /// Whether the session has no device.
    pub(crate) fn is_empty(&self) -> bool {
        self.find(|_| true).is_none()
    }

    /// The device that was opened by this name.
    pub(crate) fn find_by_name(&self, name: &Name) -> Option<Arc<SessionDevice>> {
        self.find(|device| device.name() == name)
    }

    fn slot(&self, id: u32) -> Option<Arc<Slot>> {
        let index = usize::try_from(id).ok()?;
        self.slots.get()?.get(index).cloned()
    }

    /// The device with this number.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<SessionDevice>> {
        self.slot(id)?.device.get()
    }

    /// The number that the next device gets; see [`device_number`]. Sleeps.
    pub(crate) fn next_id(&self) -> Result<u32> {
        let slots = self.slots.get();
        let slots = slots.as_ref().map_or(&[][..], |slots| slots);
        let last = usize::try_from(self.last.load(ordering::Relaxed))?;
        let given = usize::try_from(self.given.load(ordering::Relaxed))?;
        let index = device_number::next(given, last, |index| {
            slots.get(index).is_some_and(|slot| slot.is_free())
        });
        let id = u32::try_from(index)?;
        if index >= slots.len() {
            self.lengthen(slots)?;
        }
        if index >= given {
            // INVARIANT: There is a slot for the number, and the number follows those given so far.
            self.given
                .store(id.checked_add(1).ok_or(EOVERFLOW)?, ordering::Relaxed);
        }
        self.last.store(id, ordering::Relaxed);
        Ok(id)
    }

    /// Doubles the number of slots, so that few devices wait for the grace period that this takes.
    /// Sleeps.
    fn lengthen(&self, slots: &[Arc<Slot>]) -> Result {
        let len = slots.len().checked_mul(2).ok_or(ENOMEM)?.max(FIRST_SLOTS);
        let mut longer = KVec::with_capacity(len, GFP_KERNEL)?;
        longer.extend_from_slice(slots, GFP_KERNEL)?;
        while longer.len() < len {
            let slot = Slot {
                device: RcuArc::empty(),
                reserved: Atomic::new(false),
                closed: RcuArc::empty(),
            };
            longer.push(Arc::new(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        self.slots.replace(Some(Arc::new(longer, GFP_KERNEL)?));
        Ok(())
    }

    /// Makes `device` known by its number, which came from [`DeviceTable::next_id`]. Sleeps.
    pub(crate) fn insert(&self, device: Arc<SessionDevice>) -> Result {
        let slot = self.slot(device.id()).ok_or(EINVAL)?;
        slot.device.replace(Some(device));
        Ok(())
    }

    /// Takes the device with this number out of the table, so that no new request gets at it.
    /// Sleeps.
    pub(crate) fn remove(&self, id: u32, afterwards: Afterwards) {
        if let Some(slot) = self.slot(id) {
            let reserve = afterwards == Afterwards::Reserve;
            slot.reserved.store(reserve, ordering::Relaxed);
            slot.device.replace(None);
            if !reserve {
                slot.closed.replace(None);
            }
        }
    }

    /// Takes out all devices, and gives each to `close`. Their numbers can be used again. Sleeps,
    /// for a single grace period.
    pub(crate) fn remove_all(&self, close: impl Fn(&SessionDevice)) {
        let Some(slots) = self.slots.get() else {
            return;
        };
        // Without memory each device is waited for alone.
        let mut removed = match KVec::with_capacity(slots.len(), GFP_KERNEL) {
            Ok(removed) => removed,
            Err(_) => KVec::new(),
        };
        for slot in slots.iter() {
            slot.reserved.store(false, ordering::Relaxed);
            drop(slot.closed.detach());
            if let Err(left) = removed.push_within_capacity(slot.device.detach()) {
                let _ = left.0.wait().inspect(|device| close(device));
            }
        }
        for device in removed {
            let _ = device.wait().inspect(|device| close(device));
        }
    }
}
