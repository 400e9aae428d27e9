// SPDX-License-Identifier: GPL-2.0

//! Persistent reservations of a disk: the rules of SPC-4, for machines in place of I_T nexuses.
//!
//! Machines register a key with a disk. A registrant can reserve the disk; then it is the holder,
//! and other machines can only read the disk, or not use it at all, as the type of the reservation
//! says. A registrant can remove the keys of other registrants; a machine without a key is a
//! stranger again, with a stranger's access. The results are those that the kernel's drivers return
//! for a disk of SPC-4: a conflict is `EBADE`, which the block layer knows as
//! `BLK_STS_RESV_CONFLICT`, and a field that makes no sense is `EINVAL` (`sd_scsi_to_pr_err()` of
//! `drivers/scsi/sd.c`). Where `drivers/target/target_core_pr.c` and `drivers/nvme/target/pr.c`
//! differ, the standard decides.

use core::fmt;

use crate::{
    errno::Errno,
    rnbd::{
        Command,
        Kind,
        Op,
        Report,
        MAX_REGISTRANTS, //
    },
    text::impl_error, //
};

/// What a machine may do with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Access {
    /// Flush only: that changes nothing, and makes durable what was written when it was allowed.
    None = 0,
    /// Read.
    ReadOnly = 1,
    /// Everything.
    ReadWrite = 2,
}

impl Access {
    /// The access with this number; [`Access::None`] for any other number.
    pub const fn from_u32(number: u32) -> Self {
        match number {
            2 => Self::ReadWrite,
            1 => Self::ReadOnly,
            _ => Self::None,
        }
    }

    /// The number.
    pub const fn to_u32(self) -> u32 {
        self as u32
    }

    /// Whether an operation is allowed.
    pub const fn allows(self, op: Op) -> bool {
        match self {
            Self::ReadWrite => true,
            Self::ReadOnly => !op.changes_device(),
            Self::None => matches!(op, Op::Flush),
        }
    }
}

/// What a machine is to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds the reservation, alone or with all other registrants.
    Holder,
    /// It is registered and does not hold the reservation.
    Registrant,
    /// It is not registered.
    Stranger,
}

impl Kind {
    /// Whether all registrants hold the reservation.
    pub const fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// What a machine may do with a disk that is reserved in this way (SPC-4, the table of commands
    /// that are allowed in the presence of reservations).
    pub const fn access(self, role: Role) -> Access {
        match (self, role) {
            (_, Role::Holder)
            | (
                Self::WriteExclusiveRegistrants
                | Self::ExclusiveAccessRegistrants
                | Self::WriteExclusiveAll
                | Self::ExclusiveAccessAll,
                Role::Registrant,
            ) => Access::ReadWrite,
            (
                Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll,
                _,
            ) => Access::ReadOnly,
            (
                Self::ExclusiveAccess | Self::ExclusiveAccessRegistrants | Self::ExclusiveAccessAll,
                _,
            ) => Access::None,
        }
    }
}

/// Why a command is refused. A refused command changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The machine does not have that key, another machine holds the reservation, or no machine has
    /// the key that is to be removed.
    Conflict,
    /// The command releases another kind of reservation than the disk has.
    WrongKind,
    /// The command preempts the key 0, but the disk has no reservation that all registrants hold.
    NoKey,
    /// [`MAX_REGISTRANTS`] machines are registered already.
    Full,
}

impl Refused {
    /// The error number.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Conflict => Errno::EBADE,
            Self::WrongKind | Self::NoKey => Errno::EINVAL,
            Self::Full => Errno::ENOSPC,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "reservation conflict",
            Self::WrongKind => "the reservation is of another type than the command releases",
            Self::NoKey => {
                "the key 0 can be preempted only if all registrants hold the reservation"
            }
            Self::Full => {
                "the disk has no room for another machine: remove keys of machines that are \
                 registered"
            }
        })
    }
}

impl_error!(Refused);

/// A machine that is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registrant<I> {
    machine: I,
    key: u64,
}

/// The reservation of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    kind: Kind,
    /// The place of the holder in the table; 0, and without meaning, if all registrants hold it.
    holder: usize,
}

/// The registrants and the reservation of a disk. `I` tells one machine from another.
///
/// # Invariants
///
/// - Each machine is registered at most once, and no key is 0.
/// - There is a reservation only while a machine that holds it is registered. That machine is at
///   the place `holder`, or is any registrant if all registrants hold the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<I> {
    registrants: [Option<Registrant<I>>; MAX_REGISTRANTS],
    reservation: Option<Held>,
    /// The number of changes of keys, modulo 2^32 (`PRGENERATION`).
    generation: u32,
}

impl<I: Clone + PartialEq> Default for Table<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Clone + PartialEq> Table<I> {
    /// A table without registrants.
    pub const fn new() -> Self {
        Self {
            registrants: [const { None }; MAX_REGISTRANTS],
            reservation: None,
            generation: 0,
        }
    }

    /// Fills the table with these machines and keys, in this order, and the reservation, as
    /// [`Self::registrants`] and [`Self::held`] gave them. The table is filled in place, as it is
    /// large for a stack.
    ///
    /// `None`, and an empty table, if the invariants do not allow these contents.
    pub fn restore(
        &mut self,
        generation: u32,
        held: Option<(Kind, usize)>,
        registrants: impl Iterator<Item = (I, u64)>,
    ) -> Option<()> {
        self.reset();
        let filled = self.fill(held, registrants);
        if filled.is_none() {
            self.reset();
        }
        self.generation = generation;
        filled
    }

    /// Adds machines and the reservation to an empty table; `None` if the invariants do not allow
    /// these.
    fn fill(
        &mut self,
        held: Option<(Kind, usize)>,
        registrants: impl Iterator<Item = (I, u64)>,
    ) -> Option<()> {
        let mut free = 0usize;
        for (machine, key) in registrants {
            if key == 0 || self.place_of(&machine).is_some() {
                return None;
            }
            // INVARIANT: Checked above.
            *self.registrants.get_mut(free)? = Some(Registrant { machine, key });
            free = free.wrapping_add(1);
        }
        if let Some((kind, holder)) = held {
            // INVARIANT: A machine is registered at this place, and at 0 if all are holders.
            self.registrant(holder)
                .filter(|_| holder == 0 || !kind.is_of_all())?;
            self.reservation = Some(Held { kind, holder });
        }
        Some(())
    }

    /// The kind of the reservation, and how many of [`Self::registrants`] come before the holder; 0
    /// if all are holders.
    pub fn held(&self) -> Option<(Kind, usize)> {
        let held = self.reservation?;
        let before = self.registrants.iter().take(held.holder).flatten().count();
        Some((held.kind, if held.kind.is_of_all() { 0 } else { before }))
    }

    /// What a machine is to the reservation; without one [`Role::Registrant`] if it is registered.
    pub fn role(&self, machine: &I) -> Role {
        match (self.place_of(machine), self.reservation) {
            (None, _) => Role::Stranger,
            (Some(_), Some(held)) if held.kind.is_of_all() => Role::Holder,
            (Some(place), Some(held)) if held.holder == place => Role::Holder,
            (Some(_), _) => Role::Registrant,
        }
    }

    /// What a machine may do with the disk.
    pub fn access(&self, machine: &I) -> Access {
        self.reservation.map_or(Access::ReadWrite, |held| {
            held.kind.access(self.role(machine))
        })
    }

    /// The registered machines and their keys.
    pub fn registrants(&self) -> impl Iterator<Item = (&I, u64)> {
        let registrants = self.registrants.iter().flatten();
        registrants.map(|registrant| (&registrant.machine, registrant.key))
    }

    /// Whether no machine is registered. Then there is no reservation either.
    pub fn is_empty(&self) -> bool {
        self.registrants().next().is_none()
    }

    /// The kind of the reservation. Unless all registrants hold it, also the holder and the
    /// holder's key.
    pub fn reservation(&self) -> Option<(Kind, Option<(&I, u64)>)> {
        let held = self.reservation?;
        let holder = self.registrant(held.holder);
        let holder = holder.filter(|_| !held.kind.is_of_all());
        Some((
            held.kind,
            holder.map(|holder| (&holder.machine, holder.key)),
        ))
    }

    /// The number of changes of keys.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How the disk is reserved, for clients.
    pub fn report(&self) -> Report {
        let held = self.reservation();
        let held = held.map(|(kind, holder)| (kind, holder.map_or(0, |(_, key)| key)));
        let keys = self.registrants().map(|(_, key)| key);
        Report::new(self.generation, held, keys)
    }

    /// Removes the reservation and all registrants, for the administrator.
    pub fn reset(&mut self) {
        // INVARIANT: Neither a registrant nor a reservation is left.
        for place in &mut self.registrants {
            *place = None;
        }
        self.reservation = None;
        self.count_change();
    }

    /// Carries out a command of `machine`. A refused command changes nothing.
    pub fn execute(&mut self, machine: &I, command: &Command) -> Result<(), Refused> {
        match *command {
            Command::Register {
                key,
                new,
                ignore_key,
            } => self.register(machine, (!ignore_key).then_some(key), new),
            Command::Reserve { key, kind } => {
                let place = self.place_with_key(machine, key)?;
                self.reserve(machine, place, kind)
            }
            Command::Release { key, kind } => {
                self.place_with_key(machine, key)?;
                self.release(machine, kind)
            }
            Command::Clear { key } => {
                self.place_with_key(machine, key)?;
                self.reset();
                Ok(())
            }
            Command::Preempt { key, victim, kind } => {
                let place = self.place_with_key(machine, key)?;
                self.preempt(place, victim, kind)
            }
        }
    }

    fn registrant(&self, place: usize) -> Option<&Registrant<I>> {
        self.registrants.get(place)?.as_ref()
    }

    fn place_of(&self, machine: &I) -> Option<usize> {
        let is_theirs = |registrant: &Registrant<I>| registrant.machine == *machine;
        let mut places = self.registrants.iter();
        places.position(|place| place.as_ref().is_some_and(is_theirs))
    }

    /// The place of a machine that is registered with this key.
    fn place_with_key(&self, machine: &I, key: u64) -> Result<usize, Refused> {
        let place = self.place_of(machine).ok_or(Refused::Conflict)?;
        match self.registrant(place) {
            Some(registrant) if registrant.key == key => Ok(place),
            _ => Err(Refused::Conflict),
        }
    }

    fn count_change(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registers a machine, changes or removes its key; `key` is what the machine says it has.
    fn register(&mut self, machine: &I, key: Option<u64>, new: u64) -> Result<(), Refused> {
        let Some(place) = self.place_of(machine) else {
            return self.add(machine, key, new);
        };
        if let Some(key) = key {
            self.place_with_key(machine, key)?;
        }
        if new == 0 {
            self.remove(place);
        } else if let Some(Some(registrant)) = self.registrants.get_mut(place) {
            // INVARIANT: `new` is not 0.
            registrant.key = new;
        }
        self.count_change();
        Ok(())
    }

    /// Registers a machine that is not registered. As in SPC-4, to register the key 0 does nothing.
    fn add(&mut self, machine: &I, key: Option<u64>, new: u64) -> Result<(), Refused> {
        if key.is_some_and(|key| key != 0) {
            return Err(Refused::Conflict);
        }
        if new == 0 {
            return Ok(());
        }
        let free = self.registrants.iter_mut().find(|place| place.is_none());
        // INVARIANT: The machine is not registered, and the key is not 0.
        *free.ok_or(Refused::Full)? = Some(Registrant {
            machine: machine.clone(),
            key: new,
        });
        self.count_change();
        Ok(())
    }

    /// Removes a registrant, and the reservation if no holder is left.
    fn remove(&mut self, place: usize) {
        if let Some(registrant) = self.registrants.get_mut(place) {
            *registrant = None;
        }
        // INVARIANT: A reservation without a holder ends here.
        if let Some(held) = self.reservation {
            let is_held = if held.kind.is_of_all() {
                !self.is_empty()
            } else {
                held.holder != place
            };
            if !is_held {
                self.reservation = None;
            }
        }
    }

    /// Takes the reservation; does nothing if the machine has it already.
    fn reserve(&mut self, machine: &I, place: usize, kind: Kind) -> Result<(), Refused> {
        match self.reservation {
            None => {
                // INVARIANT: The machine at this place is registered.
                self.reservation = Some(Held {
                    kind,
                    holder: place,
                });
                Ok(())
            }
            Some(held) if held.kind == kind && self.role(machine) == Role::Holder => Ok(()),
            Some(_) => Err(Refused::Conflict),
        }
    }

    /// Gives the reservation up; does nothing if the machine does not have it.
    fn release(&mut self, machine: &I, kind: Kind) -> Result<(), Refused> {
        let Some(held) = self.reservation else {
            return Ok(());
        };
        if self.role(machine) != Role::Holder {
            return Ok(());
        }
        if held.kind != kind {
            return Err(Refused::WrongKind);
        }
        self.reservation = None;
        Ok(())
    }

    /// Removes the registrants with the key `victim`, for the machine at `place`; see SPC-4,
    /// "Preempting". The table has the cases:
    ///
    /// | reservation | victim | removed | reservation afterwards |
    /// |---|---|---|---|
    /// | one holder's | the holder's key | all with it but the machine | the machine's, of `kind` |
    /// | of all registrants | 0 | each other registrant | the machine's, of `kind` |
    /// | none, or of one holder | 0 | nothing: refused | the same |
    /// | any | another key | all with it, also the machine | the same |
    fn preempt(&mut self, place: usize, victim: u64, kind: Kind) -> Result<(), Refused> {
        let of_all = self.reservation.is_some_and(|held| held.kind.is_of_all());
        if victim == 0 && !of_all {
            return Err(Refused::NoKey);
        }
        let holder_key = self
            .reservation
            .filter(|held| !held.kind.is_of_all())
            .and_then(|held| self.registrant(held.holder))
            .map(|holder| holder.key);
        let takes = victim == 0 || holder_key == Some(victim);
        let mut removed = false;
        for other in 0..MAX_REGISTRANTS {
            let is_victim = |registrant: &Registrant<I>| victim == 0 || registrant.key == victim;
            if self.registrant(other).is_some_and(is_victim) && !(takes && other == place) {
                self.remove(other);
                removed = true;
            }
        }
        if takes {
            // INVARIANT: The machine at this place is registered, and was not removed.
            self.reservation = Some(Held {
                kind,
                holder: place,
            });
        } else if !removed {
            return Err(Refused::Conflict);
        }
        self.count_change();
        Ok(())
    }
}
