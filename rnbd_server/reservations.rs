// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations: what is kept of a disk, and who loses access by a command.
//!
//! The rules are in [`proto::reservation`]. Requests are not looked at here: a device whose client
//! may not do everything is told so once, see [`Reserved`].

use kernel::{
    fmt,
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};
use kernel_ext::{
    pr_info_ratelimited,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu, //
    },
    sysfs::SysfsOutput, //
};
use proto::{
    name::SessName,
    reservation::{
        Access,
        Table, //
    },
    rnbd::{
        Command,
        Host,
        Kind,
        Report, //
    },
    Errno, //
};
use rtrs_core::error::from_errno;

use crate::disk::LastingId;

/// The most disks that machines are registered with.
const MAX_DISKS: u32 = 256;

/// How long a command waits for each session that has lost access, in ms.
const WAIT_MS: Msecs = 500;

/// A client's machine, as far as the client has told.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Name>);

/// What a machine is known by.
#[derive(PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Each is an allocation of its own.
enum Name {
    Host(Host),
    Session(SessName),
}

impl Machine {
    /// The machine that calls itself `host`, or is known by its session. Sleeps.
    pub(crate) fn new(host: Option<&Host>, session: &SessName) -> Result<Self> {
        let name = host.map_or_else(|| Name::Session(*session), |host| Name::Host(*host));
        Ok(Self(Arc::new(name, GFP_KERNEL)?))
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Name::Host(host) => core::write!(f, "host {host}"),
            Name::Session(session) => core::write!(f, "session {}", **session),
        }
    }
}

/// A device that a session has open, as the reservations of its disk know it.
pub(crate) trait Reserved: Send + Sync {
    /// Sets what the client may do from now on. A request that looks at a lower access later is
    /// refused; [`Self::begin_drain`] is about those that have not looked. Any context; one call at
    /// a time.
    fn set_access(&self, access: Access);

    /// Lets no request at the disk until those that were let through before are over. Called when a
    /// grace period of RCU has passed since the access was set. Sleeps, but not for requests.
    fn begin_drain(&self);

    /// Waits for that, at most `timeout` ms; whether they are over. Sleeps.
    fn finish_drain(&self, timeout: Msecs) -> bool;
}

/// A device in the list of those that a disk is open by.
struct Open {
    id: u64,
    machine: Machine,
    device: Arc<dyn Reserved>,
    access: Access,
    /// The number of the last command by which it has lost access and whose requests have not been
    /// waited for; 0 if there is none.
    undrained: u64,
}

/// # Invariants
///
/// - `access` of each open device is what `table` says of its machine, and is set in the device.
/// - `is_counted` is set while the disk is one of those that [`ReservedDisks`] counts; while it is
///   not, the table is empty.
struct State {
    table: KBox<Table<Machine>>,
    opens: KVec<Open>,
    /// Counts open devices and commands, for their numbers.
    last_id: u64,
    is_counted: bool,
}

/// The reservations of a disk.
#[pin_data]
pub(crate) struct Reservations {
    disk: LastingId,
    /// The name of the disk's directory, for the log.
    name: CString,
    count: Arc<Atomic<u32>>,
    #[pin]
    state: Mutex<State>,
}

/// The reservations of all disks that are open, or that a machine is registered with.
#[pin_data]
pub(crate) struct ReservedDisks {
    /// The number of disks that machines are registered with, at most [`MAX_DISKS`].
    count: Arc<Atomic<u32>>,
    #[pin]
    disks: Mutex<KVec<Arc<Reservations>>>,
}

impl ReservedDisks {
    /// No disk. Sleeps.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                count,
                disks <- new_mutex!(KVec::new(), "ReservedDisks::disks"),
            }),
            GFP_KERNEL,
        )
    }

    /// The reservations of a disk that is opened for the first time: those that there were when it
    /// was closed, unless another disk has taken its place. Sleeps.
    pub(crate) fn opened(&self, disk: LastingId, name: &CStr) -> Result<Arc<Reservations>> {
        let mut disks = self.disks.lock();
        if let Some(found) = disks.iter().find(|known| known.disk == disk) {
            return Ok(found.clone());
        }
        disks.retain(|known| !known.was_before(&disk));
        let reservations = Reservations::new(disk, name, self.count.clone())?;
        disks.push(reservations.clone(), GFP_KERNEL)?;
        Ok(reservations)
    }

    /// The disk was closed by the last session. Sleeps.
    pub(crate) fn closed(&self, reservations: &Arc<Reservations>) {
        if !reservations.state.lock().is_counted {
            let mut disks = self.disks.lock();
            disks.retain(|known| !Arc::ptr_eq(known, reservations));
        }
    }
}

/// An empty table. Its room on the stack is this function's alone. Sleeps.
#[inline(never)]
fn new_table() -> Result<KBox<Table<Machine>>> {
    Ok(KBox::new(Table::new(), GFP_KERNEL)?)
}

impl Reservations {
    fn new(disk: LastingId, name: &CStr, count: Arc<Atomic<u32>>) -> Result<Arc<Self>> {
        let name = CString::try_from(name)?;
        let state = State {
            table: new_table()?,
            opens: KVec::new(),
            last_id: 0,
            is_counted: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                disk,
                name,
                count,
                state <- new_mutex!(state, "Reservations::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether this is another disk that had the place of `disk` before, and that nobody has open;
    /// then it is not counted any more.
    fn was_before(&self, disk: &LastingId) -> bool {
        let mut state = self.state.lock();
        let is_stale = self.disk.has_place_of(disk) && state.opens.is_empty();
        if is_stale {
            state.table.reset();
            self.uncount_if_empty(&mut state);
        }
        is_stale
    }

    /// Adds a device that `machine` opens, and tells the device what it may do. Sleeps.
    pub(crate) fn attach(
        self: &Arc<Self>,
        machine: Machine,
        device: Arc<dyn Reserved>,
    ) -> Result<Attached> {
        let mut state = self.state.lock();
        let id = state.next_id();
        let access = state.table.access(&machine);
        let open = Open {
            id,
            machine,
            device: device.clone(),
            access,
            undrained: 0,
        };
        state.opens.push(open, GFP_KERNEL)?;
        device.set_access(access);
        Ok(Attached {
            reservations: self.clone(),
            id,
        })
    }

    /// Does a command of `machine`; [`Self::wait`] is to follow. Sleeps, but not for requests.
    ///
    /// The errors of [`Table::execute`], and `ENOSPC` for one disk too many.
    pub(crate) fn execute(&self, machine: &Machine, command: &Command) -> Result {
        let mut state = self.state.lock();
        if !state.is_counted {
            if self.count.fetch_add(1, ordering::Relaxed) >= MAX_DISKS {
                self.count.fetch_sub(1, ordering::Relaxed);
                return Err(ENOSPC);
            }
            state.is_counted = true;
        }
        let before = Holder::of(&state.table);
        let result = state.table.execute(machine, command);
        self.uncount_if_empty(&mut state);
        result.map_err(|refused| from_errno(refused.errno()))?;
        state.apply();
        let after = Holder::of(&state.table);
        drop(state);
        self.log(&before, &after);
        Ok(())
    }

    /// Removes the reservation and all registrants, for the administrator. Sleeps.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        let before = Holder::of(&state.table);
        state.table.reset();
        self.uncount_if_empty(&mut state);
        state.apply();
        let after = Holder::of(&state.table);
        drop(state);
        self.log(&before, &after);
    }

    /// Waits until the requests of all who have lost access are over; `EINPROGRESS` if that takes
    /// longer than [`WAIT_MS`]. Sleeps.
    pub(crate) fn wait(&self) -> Result {
        loop {
            let (device, id, undrained) = {
                let state = self.state.lock();
                let Some(open) = state.opens.iter().find(|open| open.undrained != 0) else {
                    return Ok(());
                };
                (open.device.clone(), open.id, open.undrained)
            };
            if !device.finish_drain(WAIT_MS) {
                return Err(from_errno(Errno::EINPROGRESS));
            }
            let mut state = self.state.lock();
            // Unless it has lost access again meanwhile, or is closed.
            let drained = |open: &&mut Open| open.id == id && open.undrained == undrained;
            if let Some(open) = state.opens.iter_mut().find(drained) {
                open.undrained = 0;
            }
        }
    }

    /// How the disk is reserved. Sleeps, but not for requests.
    pub(crate) fn report(&self) -> Report {
        self.state.lock().table.report()
    }

    /// Writes the state for the administrator. Sleeps, but not for requests.
    pub(crate) fn show(&self, out: &mut SysfsOutput<'_>) -> Result {
        let state = self.state.lock();
        let table = &state.table;
        out.print(fmt!("generation {}\n", table.generation()))?;
        match table.reservation() {
            None => out.print(fmt!("type none\n"))?,
            Some((kind, None)) => out.print(fmt!("type {}\n", kind.as_str()))?,
            Some((kind, Some((machine, key)))) => out.print(fmt!(
                "type {}\nholder {:#018x} {}\n",
                kind.as_str(),
                key,
                machine
            ))?,
        }
        for (machine, key) in table.registrants() {
            out.print(fmt!("{:#018x} {}\n", key, machine))?;
        }
        Ok(())
    }

    fn uncount_if_empty(&self, state: &mut State) {
        if state.is_counted && state.table.is_empty() {
            state.is_counted = false;
            self.count.fetch_sub(1, ordering::Relaxed);
        }
    }

    /// Logs a change of the holder.
    fn log(&self, before: &Option<Holder>, after: &Option<Holder>) {
        if before == after {
            return;
        }
        let device = &*self.name;
        match after {
            None => pr_info_ratelimited!("device {:?} is not reserved any more\n", device),
            Some(Holder { kind, machine }) => match machine {
                None => pr_info_ratelimited!(
                    "device {:?} is reserved by all who are registered ({})\n",
                    device,
                    kind.as_str()
                ),
                Some(machine) => pr_info_ratelimited!(
                    "device {:?} is reserved by {} ({})\n",
                    device,
                    machine,
                    kind.as_str()
                ),
            },
        }
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        // It does not come to its end.
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    /// Tells the open devices what the table says now, and has those drained that may do less.
    fn apply(&mut self) {
        let command = self.next_id();
        let mut has_lost = false;
        for open in &mut self.opens {
            let access = self.table.access(&open.machine);
            if access == open.access {
                continue;
            }
            open.device.set_access(access);
            if access < open.access {
                open.undrained = command;
                has_lost = true;
            }
            open.access = access;
        }
        if !has_lost {
            return;
        }
        // A request that is about to be let through has looked at the old access: by then it is
        // inside, and is waited for.
        rcu::synchronize_rcu();
        for open in &self.opens {
            if open.undrained == command {
                open.device.begin_drain();
            }
        }
    }
}

/// Who holds a reservation; no machine if all registrants do.
#[derive(PartialEq)]
struct Holder {
    kind: Kind,
    machine: Option<Machine>,
}

impl Holder {
    fn of(table: &Table<Machine>) -> Option<Self> {
        let (kind, holder) = table.reservation()?;
        Some(Self {
            kind,
            machine: holder.map(|(machine, _)| machine.clone()),
        })
    }
}

/// That a device is in the list of its disk. Dropped when its requests are over; sleeps then.
pub(crate) struct Attached {
    reservations: Arc<Reservations>,
    id: u64,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let removed = {
            let mut state = self.reservations.state.lock();
            let index = state.opens.iter().position(|open| open.id == self.id);
            index.and_then(|index| state.opens.remove(index).ok())
        };
        // Not under the lock: it may be the last reference to the device.
        drop(removed);
    }
}
