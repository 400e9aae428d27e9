// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk: what is kept of it, and which devices lose access by a
//! command.
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
    sync::rcu,
    sysfs::SysfsOutput,
    time::Deadline, //
};
use proto::{
    reservation::{
        Access,
        Refused,
        Table, //
    },
    rnbd::{
        Command,
        Kind,
        Report,
        Wwid, //
    },
    Errno, //
};
use rtrs_core::error::from_errno;

use crate::machine::Machine;

/// How long a command or a report waits for requests before it tells so, in ms.
const WAIT_MS: Msecs = 500;

/// A device that a session has open, as the reservations of its disk know it.
pub(crate) trait Reserved: Send + Sync {
    /// Sets what the client may do from now on. A request that looks at a lower access later is
    /// refused; [`Self::begin_drain`] waits for requests that have looked at the access before. Any
    /// context; one call at a time.
    fn set_access(&self, access: Access);

    /// Lets no request at the disk until the requests are over that the device has let in before.
    /// Called when a grace period of RCU has passed since the access was set. Sleeps, but not for
    /// requests.
    fn begin_drain(&self);

    /// Waits until those requests are over, at most `timeout` ms; returns whether they are. Sleeps.
    fn finish_drain(&self, timeout: Msecs) -> bool;
}

/// An open device of a disk.
struct Open {
    place: u64,
    machine: Machine,
    device: Arc<dyn Reserved>,
    access: Access,
    /// The number of the last command by which it has lost access, while requests that it let in
    /// before have not been waited for; else 0.
    undrained: u64,
    /// The number of the first such command.
    undrained_since: u64,
    /// The log tells that requests are waited for.
    is_told: bool,
}

/// # Invariants
///
/// - `access` of each open device is what `table` says of its machine, and is set in the device.
/// - `place` is another one for each open device, and `last_number` at most.
struct State {
    table: KBox<Table<Machine>>,
    opens: KVec<Open>,
    /// Counts open devices and commands, for their numbers.
    last_number: u64,
}

/// The reservations of a disk.
///
/// # Invariants
///
/// `table` changes with `turn` locked. While `turn` is not locked, each device with an `undrained`
/// command is being drained, or its requests are over.
#[pin_data]
pub(crate) struct Reservations {
    /// The name that the disk's directory has, or had when the disk was last open.
    #[pin]
    name: Mutex<Arc<CString>>,
    /// Locked by one command at a time, for as long as a grace period of RCU; taken before `state`.
    #[pin]
    turn: Mutex<()>,
    /// Not locked while anything is waited for.
    #[pin]
    state: Mutex<State>,
}

/// An empty table. Its room on the stack is this function's alone. Sleeps.
#[inline(never)]
fn new_table() -> Result<KBox<Table<Machine>>> {
    Ok(KBox::new(Table::new(), GFP_KERNEL)?)
}

impl Reservations {
    /// None, of a disk whose directory has this name. Sleeps.
    pub(crate) fn new(name: &CStr) -> Result<Arc<Self>> {
        let name = Arc::new(CString::try_from(name)?, GFP_KERNEL)?;
        let state = State {
            table: new_table()?,
            opens: KVec::new(),
            last_number: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                name <- new_mutex!(name, "Reservations::name"),
                turn <- new_mutex!((), "Reservations::turn"),
                state <- new_mutex!(state, "Reservations::state"),
            }),
            GFP_KERNEL,
        )
    }

    /// The name that the disk's directory has, or had when the disk was last open. Sleeps.
    pub(crate) fn name(&self) -> Arc<CString> {
        self.name.lock().clone()
    }

    /// The disk is opened, and its directory has this name now. Sleeps.
    pub(crate) fn set_name(&self, name: &CStr) -> Result {
        if name != &**self.name() {
            let name = Arc::new(CString::try_from(name)?, GFP_KERNEL)?;
            *self.name.lock() = name;
        }
        Ok(())
    }

    /// Whether no machine is registered. Sleeps.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().table.is_empty()
    }

    /// Whether there is a reservation. Sleeps.
    pub(crate) fn is_reserved(&self) -> bool {
        self.state.lock().table.reservation().is_some()
    }

    /// The place of a device that is about to be attached. Sleeps.
    pub(crate) fn next_place(&self) -> u64 {
        self.state.lock().next_number()
    }

    /// Adds a device that `machine` opens, at its place, and tells the device what it may do.
    /// Sleeps.
    pub(crate) fn attach(
        self: &Arc<Self>,
        place: u64,
        machine: Machine,
        device: Arc<dyn Reserved>,
    ) -> Result<Attached> {
        let mut state = self.state.lock();
        let access = state.table.access(&machine);
        let open = Open {
            place,
            machine,
            device: device.clone(),
            access,
            undrained: 0,
            undrained_since: 0,
            is_told: false,
        };
        state.opens.push(open, GFP_KERNEL)?;
        device.set_access(access);
        Ok(Attached {
            reservations: self.clone(),
            place,
        })
    }

    /// Does a command of the machine that has the open device `place`; [`Self::wait`] is to follow.
    /// `admit` is called before a machine registers while no machine is registered; what it gives
    /// is dropped when the machine is registered. Sleeps, but not for requests.
    ///
    /// The errors of [`Table::execute`] and of `admit`; `ENOTCONN` if the device is closed.
    pub(crate) fn execute<A>(
        &self,
        place: u64,
        command: &Command,
        admit: impl FnOnce() -> Result<A>,
    ) -> Result {
        let turn = self.turn.lock();
        let is_first = command.can_be_first() && self.state.lock().is_first(place);
        let admitted = is_first.then(admit).transpose()?;
        let change = self.change(place, command);
        drop(admitted);
        let change = change?;
        if change.has_lost {
            // A request that is about to be let through has looked at the old access: by then it is
            // inside, and is waited for.
            rcu::synchronize_rcu();
            // INVARIANT: All devices that have lost access by this command are drained.
            self.state.lock().begin_drain(change.number);
        }
        drop(turn);
        self.log(&change);
        Ok(())
    }

    /// Changes the table, and tells the open devices what their clients may do.
    fn change(&self, place: u64, command: &Command) -> Result<Change> {
        let mut state = self.state.lock();
        let mut opens = state.opens.iter();
        // Not if it was closed meanwhile: then nobody looks after its registration.
        let open = opens.find(|open| open.place == place).ok_or(ENOTCONN)?;
        let machine = open.machine.clone();
        let before = Holder::of(&state.table);
        state
            .table
            .execute(&machine, command)
            .map_err(|refused| self.refuse(&machine, &refused))?;
        let number = state.next_number();
        let has_lost = state.apply(number);
        let mut opens = state.opens.iter();
        // A machine may give its own access up.
        let lost = opens.find(|open| open.undrained == number && open.machine != machine);
        let lost = lost.map(|open| open.machine.clone());
        Ok(Change {
            number,
            has_lost,
            lost,
            machine,
            before,
            after: Holder::of(&state.table),
        })
    }

    /// Logs why a command is refused if machines cannot do anything about it; returns the error
    /// number.
    fn refuse(&self, machine: &Machine, refused: &Refused) -> Error {
        if *refused == Refused::Full {
            pr_info_ratelimited!(
                "device {:?}: {} cannot register: {}\n",
                self.name(),
                machine,
                refused.message().as_str()
            );
        }
        from_errno(refused.errno())
    }

    /// Removes the reservation and all registrants, for the administrator. No device loses access
    /// by that. Sleeps.
    pub(crate) fn clear(&self) {
        let turn = self.turn.lock();
        let mut state = self.state.lock();
        state.table.reset();
        let number = state.next_number();
        state.apply(number);
        drop(state);
        drop(turn);
        pr_info_ratelimited!(
            "device {:?}: the administrator has removed the reservation and all keys\n",
            self.name()
        );
    }

    /// Waits until the requests of all devices that have lost access up to now are over;
    /// `EINPROGRESS` if that takes longer than [`WAIT_MS`]. Sleeps.
    pub(crate) fn wait(&self) -> Result {
        let deadline = Deadline::after(WAIT_MS);
        let last = self.state.lock().last_number;
        while let Some(victim) = self.undrained(last) {
            if victim.device.finish_drain(deadline.left()) {
                self.state.lock().drained(&victim);
                continue;
            }
            if self.state.lock().is_first_told(&victim) {
                pr_info_ratelimited!(
                    "device {:?}: waiting for requests of {}, which has lost access\n",
                    self.name(),
                    victim.machine
                );
            }
            return Err(from_errno(Errno::EINPROGRESS));
        }
        Ok(())
    }

    /// A device that has lost access by command `last` or an earlier command, and is drained.
    fn undrained(&self, last: u64) -> Option<Victim> {
        // Not before the drains have begun.
        let _turn = self.turn.lock();
        let state = self.state.lock();
        let is_it = |open: &&Open| open.undrained != 0 && open.undrained_since <= last;
        let open = state.opens.iter().find(is_it)?;
        Some(Victim {
            place: open.place,
            number: open.undrained,
            device: open.device.clone(),
            machine: open.machine.clone(),
        })
    }

    /// How the disk is reserved; [`Self::wait`] is to follow before that is told. Sleeps, but not
    /// for requests.
    pub(crate) fn report(&self) -> Report {
        self.state.lock().table.report()
    }

    /// Writes the state for the administrator. Sleeps, but not for requests.
    pub(crate) fn show(&self, out: &mut SysfsOutput<'_>) -> Result {
        // Not before the drains have begun: a device would seem to have no requests.
        let _turn = self.turn.lock();
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
        let is_waited_for = |open: &&Open| open.undrained != 0 && !open.device.finish_drain(0);
        for open in state.opens.iter().filter(is_waited_for) {
            out.print(fmt!("waiting for {}\n", open.machine))?;
        }
        for (machine, key) in table.registrants() {
            out.print(fmt!("{:#018x} {}\n", key, machine))?;
        }
        Ok(())
    }

    /// Writes a line about a disk with the name `wwid` that no session has open. Sleeps.
    pub(crate) fn show_line(&self, wwid: &Wwid, out: &mut SysfsOutput<'_>) -> Result {
        let state = self.state.lock();
        let kind = state.table.reservation().map(|(kind, _)| kind);
        out.write_bytes(self.name().to_bytes());
        out.print(fmt!(
            " type {} registrants {}",
            kind.map_or("none", |kind| kind.as_str()),
            state.table.registrants().count()
        ))?;
        if !wwid.is_empty() {
            out.write_bytes(b" wwid ");
            out.write_bytes(wwid.as_bytes());
        }
        out.print(fmt!("\n"))
    }

    /// Logs a change of the holder, and which machine has lost access.
    fn log(&self, change: &Change) {
        if let Some(lost) = &change.lost {
            pr_info_ratelimited!(
                "device {:?}: {} has lost access by a command of {}\n",
                self.name(),
                lost,
                change.machine
            );
        }
        if change.before == change.after {
            return;
        }
        match &change.after {
            None => pr_info_ratelimited!(
                "device {:?} is not reserved any more, by a command of {}\n",
                self.name(),
                change.machine
            ),
            Some(holder) => pr_info_ratelimited!(
                "device {:?} is reserved by {} ({})\n",
                self.name(),
                holder,
                holder.kind.as_str()
            ),
        }
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        // It does not come to its end.
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Whether no machine is registered and the device `place` is open.
    fn is_first(&self, place: u64) -> bool {
        self.table.is_empty() && self.opens.iter().any(|open| open.place == place)
    }

    /// Whether the log does not tell yet that the requests of a device are waited for; from here on
    /// it does.
    fn is_first_told(&mut self, victim: &Victim) -> bool {
        let mut opens = self.opens.iter_mut();
        let open = opens.find(|open| open.place == victim.place);
        open.is_some_and(|open| !core::mem::replace(&mut open.is_told, true))
    }

    /// Tells the open devices what the table says now; returns whether one of them may do less.
    /// [`Self::begin_drain`] is to follow then.
    fn apply(&mut self, number: u64) -> bool {
        let mut has_lost = false;
        for open in &mut self.opens {
            let access = self.table.access(&open.machine);
            if access == open.access {
                continue;
            }
            open.device.set_access(access);
            if access < open.access {
                if open.undrained == 0 {
                    open.undrained_since = number;
                    open.is_told = false;
                }
                open.undrained = number;
                has_lost = true;
            }
            // INVARIANT: It was set in the device.
            open.access = access;
        }
        has_lost
    }

    /// Has the devices drained that have lost access by the command `number`.
    fn begin_drain(&self, number: u64) {
        for open in self.opens.iter().filter(|open| open.undrained == number) {
            open.device.begin_drain();
        }
    }

    /// The requests are over that a device has let in before the command `victim.number`. The
    /// device may have lost access again meanwhile, or be closed.
    fn drained(&mut self, victim: &Victim) {
        let mut opens = self.opens.iter_mut();
        let Some(open) = opens.find(|open| open.place == victim.place) else {
            return;
        };
        if open.undrained == victim.number {
            open.undrained = 0;
        } else {
            open.undrained_since = victim.number.wrapping_add(1);
        }
    }
}

/// What a command has changed.
struct Change {
    /// The number of the command.
    number: u64,
    machine: Machine,
    /// Whether a device has lost access.
    has_lost: bool,
    /// Another machine that has lost access.
    lost: Option<Machine>,
    before: Option<Holder>,
    after: Option<Holder>,
}

/// A device whose requests have to be waited for.
struct Victim {
    place: u64,
    number: u64,
    device: Arc<dyn Reserved>,
    machine: Machine,
}

/// The holder of a reservation; no machine if all registrants hold it.
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

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.machine {
            Some(machine) => fmt::Display::fmt(machine, f),
            None => f.write_str("all registrants"),
        }
    }
}

/// That a device is in the list of its disk. Dropped when its requests are over; sleeps then.
///
/// # Invariants
///
/// The device with this place is in the list until this is dropped.
pub(crate) struct Attached {
    reservations: Arc<Reservations>,
    place: u64,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let removed = {
            let mut state = self.reservations.state.lock();
            let mut places = state.opens.iter();
            let place = places.position(|open| open.place == self.place);
            place.and_then(|place| state.opens.remove(place).ok())
        };
        // Not under the lock: it may be the last reference to the device.
        drop(removed);
    }
}
