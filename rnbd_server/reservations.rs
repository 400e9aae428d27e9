// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk: the table that is kept, and the devices that lose access by a
//! command.
//!
//! The rules are in [`proto::reservation`]. Requests are not looked at here: a device is told once
//! that its client may not do everything, see [`Reserved`].

use kernel::{
    new_mutex,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
    time::Msecs, //
};
use kernel_ext::{
    mm::without_io,
    pr_err_ratelimited,
    pr_info_ratelimited,
    pr_warn_ratelimited,
    prelude::*,
    sync::rcu,
    sysfs::SysfsOutput,
    time::Deadline, //
};
use proto::{
    reservation::{
        Refused,
        Table, //
    },
    rnbd::{
        Command,
        Report,
        Wwid, //
    },
    Errno, //
};
use rtrs_core::error::from_errno;

use crate::{
    machine::Machine,
    reservation_store::ReservationStore,
    reservation_table::{
        copy,
        new_table,
        Holder,
        Open,
        Put,
        Reserved,
        State,
        Victim, //
    }, //
};

/// How long a command or a report waits for requests before it ends with `EINPROGRESS`, in ms.
const WAIT_MS: Msecs = 500;

/// The reservations of a disk.
///
/// With a lock held, memory is allocated in [`without_io`]. To get memory, the kernel may write to
/// a disk that this machine maps from a server whose sessions are being opened again, and these
/// sessions wait for the same locks.
///
/// # Invariants
///
/// - `table` changes with `turn` locked.
/// - While `turn` is not locked, each device with an `undrained` command is being drained, or its
///   requests are over.
#[pin_data]
pub(crate) struct Reservations {
    /// The name that the disk's directory has, or had when the disk was last open.
    #[pin]
    name: Mutex<Arc<CString>>,
    /// Locked by one command at a time, for as long as a grace period of RCU and the store's file
    /// take; taken before `state`.
    #[pin]
    turn: Mutex<()>,
    /// Not locked while anything is waited for.
    #[pin]
    state: Mutex<State>,
    /// Where the table is kept over a restart of the server.
    store: Option<Arc<ReservationStore>>,
}

impl Reservations {
    /// Makes empty reservations, of a disk whose directory has no name yet. [`Self::load`] is to
    /// follow. Sleeps.
    pub(crate) fn new(store: Option<Arc<ReservationStore>>) -> Result<Arc<Self>> {
        let name = Arc::new(CString::try_from(c"")?, GFP_KERNEL)?;
        let state = State {
            table: new_table()?,
            kept_as: None,
            is_saved: false,
            opens: KVec::new(),
            settling: 0,
            last_number: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                name <- new_mutex!(name, "Reservations::name"),
                turn <- new_mutex!((), "Reservations::turn"),
                state <- new_mutex!(state, "Reservations::state"),
                store,
            }),
            GFP_KERNEL,
        )
    }

    /// The name that the disk's directory has, or had when the disk was last open. Sleeps.
    pub(crate) fn name(&self) -> Arc<CString> {
        self.name.lock().clone()
    }

    /// Notes the name of the disk's directory, when the disk is opened. Sleeps.
    pub(crate) fn set_name(&self, name: &CStr) -> Result {
        if name != &**self.name() {
            let name = Arc::new(CString::try_from(name)?, GFP_KERNEL)?;
            *self.name.lock() = name;
        }
        Ok(())
    }

    /// Logs a warning if there is a store and it has no place for the disk. Called when the disk is
    /// opened. Sleeps.
    pub(crate) fn tell_if_not_kept(&self) {
        if self.store.is_some() && self.is_only_here() {
            pr_warn_ratelimited!(
                "device {:?} has no wwid: its reservations are not in state_dir, and are lost when \
                 rnbd_server is unloaded\n",
                self.name()
            );
        }
    }

    /// Takes over the store's table of the disk with the name `wwid`, unless that was done before.
    /// Called before a device of the disk is attached. Sleeps.
    ///
    /// Errors of [`ReservationStore::load`]: then it is unknown how the disk is reserved, and no
    /// device may be attached. `EUCLEAN`, which is logged, if machines have registered before the
    /// disk's wwid was known and the store has registrants, too: which registrants count is
    /// unknown.
    pub(crate) fn load(&self, wwid: &Wwid) -> Result {
        without_io(|| self.load_in_turn(wwid))
    }

    fn load_in_turn(&self, wwid: &Wwid) -> Result {
        let Some(store) = &self.store else {
            return Ok(());
        };
        if wwid.is_empty() || self.state.lock().kept_as.is_some() {
            return Ok(());
        }
        let turn = self.turn.lock();
        if self.state.lock().kept_as.is_some() {
            return Ok(());
        }
        let saved = store.load(wwid)?;
        // Machines may have registered while the disk had no wwid. They are written with the next
        // command.
        let is_empty = self.is_empty();
        if saved.is_some() && !is_empty {
            pr_err_ratelimited!(
                "device {:?}: machines have registered before its wwid was known, and state_dir \
                 has reservations of {:?}: the disk is not opened until either is cleared \
                 (clear_reservations, ctl/kept_reservations)\n",
                self.name(),
                wwid
            );
            return Err(from_errno(Errno::EUCLEAN));
        }
        let mut state = self.state.lock();
        state.kept_as = Some(*wwid);
        // INVARIANT: The table is what the file says, or empty as there is no file.
        state.is_saved = is_empty;
        let Some(table) = saved else {
            return Ok(());
        };
        let put = state.put(table);
        drop(state);
        self.settle(&put);
        drop(turn);
        Ok(())
    }

    /// Whether the store has all that is to be known while no device is open. Sleeps.
    pub(crate) fn is_saved(&self) -> bool {
        self.state.lock().is_saved
    }

    /// Whether the disk has no place in the store, since its wwid is not known. Sleeps.
    pub(crate) fn is_only_here(&self) -> bool {
        self.state.lock().kept_as.is_none()
    }

    /// Whether no machine is registered. Sleeps.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().table.is_empty()
    }

    /// Whether there is a reservation. Sleeps.
    pub(crate) fn is_reserved(&self) -> bool {
        self.state.lock().table.reservation().is_some()
    }

    /// Returns the place of a device that is about to be attached. Sleeps.
    pub(crate) fn next_place(&self) -> u64 {
        self.state.lock().next_number()
    }

    /// Adds a device that `machine` opens, at `place`, and tells the device what its client may do.
    /// Sleeps.
    pub(crate) fn attach(
        self: &Arc<Self>,
        place: u64,
        machine: Machine,
        device: Arc<dyn Reserved>,
    ) -> Result<Attached> {
        without_io(|| self.add_open(place, machine, device))?;
        Ok(Attached {
            reservations: self.clone(),
            place,
        })
    }

    fn add_open(&self, place: u64, machine: Machine, device: Arc<dyn Reserved>) -> Result {
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
        Ok(())
    }

    /// Does a command of the machine that has the open device `place`; [`Self::wait`] is to follow.
    /// If no machine is registered, `admit` is called before the first one registers; its result is
    /// dropped when that machine is registered. When this returns, the store has written the
    /// change. Sleeps, but not for requests.
    ///
    /// Errors of [`Table::execute`], of `admit` and of [`ReservationStore::save`]: then nothing has
    /// changed. `ENOTCONN` if the device is closed.
    pub(crate) fn execute<A>(
        &self,
        place: u64,
        command: &Command,
        admit: impl FnOnce() -> Result<A>,
    ) -> Result {
        without_io(|| self.execute_in_turn(place, command, admit))
    }

    fn execute_in_turn<A>(
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
        self.settle(&change.put);
        drop(turn);
        self.log(&change);
        Ok(())
    }

    /// Drains the devices that have lost access. Called with `turn` locked.
    fn settle(&self, put: &Put) {
        if put.has_lost {
            // A request that has looked at the old access has entered by the end of the grace
            // period, and is waited for.
            rcu::synchronize_rcu();
            // INVARIANT: All devices that have lost access by this command are drained.
            self.state.lock().begin_drain(put.number);
        }
    }

    /// Changes the table, and tells the open devices what their clients may do. Called with `turn`
    /// locked.
    fn change(&self, place: u64, command: &Command) -> Result<Change> {
        let (machine, mut table) = self.begin(place)?;
        let before = Holder::of(&table);
        table
            .execute(&machine, command)
            .map_err(|refused| self.refuse(&machine, &refused))?;
        self.save(&table)?;
        // The device may be closed by now. The command counts all the same, since it is written.
        // The table is kept: the caller still has the disk open.
        let after = Holder::of(&table);
        let mut state = self.state.lock();
        let put = state.put(table);
        let mut opens = state.opens.iter();
        // A machine may give its own access up.
        let lost = opens.find(|open| open.undrained == put.number && open.machine != machine);
        let lost = lost.map(|open| open.machine.clone());
        Ok(Change {
            put,
            lost,
            machine,
            before,
            after,
        })
    }

    /// The machine that has the open device `place`, and a copy of the table.
    fn begin(&self, place: u64) -> Result<(Machine, KBox<Table<Machine>>)> {
        let state = self.state.lock();
        let mut opens = state.opens.iter();
        // Not if the device was closed meanwhile: no client could then take care of its
        // registration.
        let open = opens.find(|open| open.place == place).ok_or(ENOTCONN)?;
        Ok((open.machine.clone(), copy(&state.table)?))
    }

    /// Has the store write a table that is to replace the present one. Called with `turn` locked.
    fn save(&self, table: &Table<Machine>) -> Result {
        let kept_as = {
            let state = self.state.lock();
            let is_done = state.is_saved && *state.table == *table;
            state.kept_as.filter(|_| !is_done)
        };
        let (Some(store), Some(wwid)) = (&self.store, kept_as) else {
            return Ok(());
        };
        store.save(&wwid, table).map_err(|failed| {
            if failed.may_be_done {
                self.save_again(store, &wwid);
            }
            failed.error
        })?;
        // INVARIANT: The caller puts the table in place before anything else is written.
        self.state.lock().is_saved = true;
        Ok(())
    }

    /// Returns a copy of the present table if the store is to have it, and may have another one.
    fn unsaved(&self) -> Result<Option<KBox<Table<Machine>>>> {
        let state = self.state.lock();
        if self.store.is_none() || state.kept_as.is_none() || state.is_saved {
            return Ok(None);
        }
        copy(&state.table).map(Some)
    }

    /// Has the store write the present table: a command has failed, and the file may say what that
    /// command asked for. If this fails, too, the next command or report has the table written.
    /// Called with `turn` locked.
    fn save_again(&self, store: &ReservationStore, wwid: &Wwid) {
        self.state.lock().is_saved = false;
        let table = copy(&self.state.lock().table);
        if table.is_ok_and(|table| store.save(wwid, &table).is_ok()) {
            // INVARIANT: The file says what the table says.
            self.state.lock().is_saved = true;
        }
    }

    /// Logs the reason of a refusal that machines cannot do anything about. Returns the error
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
    /// by this. Sleeps. Errors of [`ReservationStore::save`]: then nothing has changed.
    pub(crate) fn clear(&self) -> Result {
        without_io(|| self.clear_in_turn())
    }

    fn clear_in_turn(&self) -> Result {
        let turn = self.turn.lock();
        let mut table = copy(&self.state.lock().table)?;
        table.reset();
        self.save(&table)?;
        self.state.lock().put(table);
        drop(turn);
        pr_info_ratelimited!(
            "device {:?}: the administrator has removed the reservation and all keys\n",
            self.name()
        );
        Ok(())
    }

    /// Removes the store's file of the disk with the name `wwid`, whatever the file says. Returns
    /// whether there was a file. `ENOENT` if the file was read. Sleeps. Errors of
    /// [`ReservationStore::remove`].
    pub(crate) fn remove_unread(&self, wwid: &Wwid) -> Result<bool> {
        without_io(|| {
            let _turn = self.turn.lock();
            if !self.is_only_here() {
                return Err(ENOENT);
            }
            self.store.as_ref().ok_or(ENOENT)?.remove(wwid)
        })
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

    /// Returns a device that has lost access by command `last` or an earlier one, and is being
    /// drained.
    fn undrained(&self, last: u64) -> Option<Victim> {
        // All drains have begun once `turn` is locked.
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

    /// How the disk is reserved; [`Self::wait`] is to follow before the client is told. Sleeps, but
    /// not for requests.
    ///
    /// The store has what the report says, since a client may rely on the report. Errors of
    /// [`ReservationStore::save`] if the present table was not written yet and cannot be written.
    pub(crate) fn report(&self) -> Result<Report> {
        without_io(|| {
            let _turn = self.turn.lock();
            if let Some(table) = self.unsaved()? {
                self.save(&table)?;
            }
            Ok(self.state.lock().table.report())
        })
    }

    /// Writes the state for the administrator. Sleeps, but not for requests.
    pub(crate) fn show(&self, out: &mut SysfsOutput<'_>) -> Result {
        // Without `turn`: the store may hang, and the removal of the disk's directory waits for
        // this function.
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
        let is_waited_for = |open: &&Open| {
            let is_drained = || !state.is_settling(open) && open.device.finish_drain(0);
            open.undrained != 0 && !is_drained()
        };
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

    /// Logs a change of the holder, and a machine that has lost access.
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

/// What a command has changed.
struct Change {
    put: Put,
    machine: Machine,
    /// A machine, other than the one that gave the command, that has lost access.
    lost: Option<Machine>,
    before: Option<Holder>,
    after: Option<Holder>,
}

/// Keeps a device in the list of its disk. Dropped when the device's requests are over; sleeps
/// then.
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
        // Not under the lock: this may be the last reference to the device.
        drop(removed);
    }
}
