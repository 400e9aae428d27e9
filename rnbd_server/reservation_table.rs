// SPDX-License-Identifier: GPL-2.0

//! The table of a disk, and the open devices whose clients it lets in.

use kernel::{
    fmt,
    sync::Arc,
    time::Msecs, //
};
use kernel_ext::prelude::*;
use proto::{
    reservation::{
        Access,
        Table, //
    },
    rnbd::{
        Kind,
        Wwid, //
    }, //
};

use crate::machine::Machine;

/// A device that a session has open, as the reservations of its disk know it.
pub(crate) trait Reserved: Send + Sync {
    /// Sets what the client may do from now on. A request that looks at the access later is refused
    /// if it needs more. [`Self::finish_drain`] waits for requests that have looked before. Any
    /// context; one call at a time.
    fn set_access(&self, access: Access);

    /// Lets no request in until the requests that the device has let in before are over. Called
    /// when a grace period of RCU has passed since the access was set. Sleeps, but not for
    /// requests.
    fn begin_drain(&self);

    /// Waits until those requests are over, `timeout` ms at most. Returns whether they are. Sleeps.
    fn finish_drain(&self, timeout: Msecs) -> bool;
}

/// An open device of a disk.
pub(crate) struct Open {
    pub(crate) place: u64,
    pub(crate) machine: Machine,
    pub(crate) device: Arc<dyn Reserved>,
    pub(crate) access: Access,
    /// The number of the last command by which the device has lost access, while requests that the
    /// device let in before have not been waited for; otherwise 0.
    pub(crate) undrained: u64,
    /// The number of the first such command.
    pub(crate) undrained_since: u64,
    /// The log says that requests are waited for.
    pub(crate) is_told: bool,
}

/// The table of a disk, and its open devices.
///
/// # Invariants
///
/// - `access` of each open device is what `table` says of its machine, and is set in the device.
/// - Each open device has another `place`, which is at most `last_number`.
/// - If `is_saved`, the disk's file says what `table` says, or what the table says that a command
///   has written and is about to put in place. There is no file if the table is empty.
pub(crate) struct State {
    pub(crate) table: KBox<Table<Machine>>,
    /// The wwid by which the store keeps the table; `None` as long as the disk has none.
    pub(crate) kept_as: Option<Wwid>,
    pub(crate) is_saved: bool,
    pub(crate) opens: KVec<Open>,
    /// The number of the command whose drains are to begin; otherwise 0.
    pub(crate) settling: u64,
    /// Counts open devices and commands, for their numbers.
    pub(crate) last_number: u64,
}

/// An empty table. Not inlined, so that callers need no room on the stack for it. Sleeps.
#[inline(never)]
pub(crate) fn new_table() -> Result<KBox<Table<Machine>>> {
    Ok(KBox::new(Table::new(), GFP_KERNEL)?)
}

/// A copy of a table. Not inlined, so that callers need no room on the stack for it. Sleeps.
#[inline(never)]
pub(crate) fn copy(table: &Table<Machine>) -> Result<KBox<Table<Machine>>> {
    Ok(KBox::new(table.clone(), GFP_KERNEL)?)
}

impl State {
    /// A number that no open device and no command has had.
    pub(crate) fn next_number(&mut self) -> u64 {
        // 64 bits do not run out.
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Replaces the table, and tells the open devices what their clients may do.
    /// [`Self::begin_drain`] is to follow, after a grace period of RCU, if a device may do less.
    pub(crate) fn put(&mut self, table: KBox<Table<Machine>>) -> Put {
        self.table = table;
        let number = self.next_number();
        let has_lost = self.apply(number);
        self.settling = if has_lost { number } else { 0 };
        Put { number, has_lost }
    }

    /// Whether no machine is registered and the device `place` is open.
    pub(crate) fn is_first(&self, place: u64) -> bool {
        self.table.is_empty() && self.opens.iter().any(|open| open.place == place)
    }

    /// Whether the log has not said yet that the requests of a device are waited for; from here on
    /// it has.
    pub(crate) fn is_first_told(&mut self, victim: &Victim) -> bool {
        let mut opens = self.opens.iter_mut();
        let open = opens.find(|open| open.place == victim.place);
        open.is_some_and(|open| !core::mem::replace(&mut open.is_told, true))
    }

    /// Tells the open devices what the table says now. Returns whether a device may do less.
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
            // INVARIANT: The access was set in the device.
            open.access = access;
        }
        has_lost
    }

    /// Whether the drain of a device that has lost access is yet to begin.
    pub(crate) fn is_settling(&self, open: &Open) -> bool {
        open.undrained != 0 && open.undrained == self.settling
    }

    /// Drains the devices that have lost access by the command `number`.
    pub(crate) fn begin_drain(&mut self, number: u64) {
        self.settling = 0;
        for open in self.opens.iter().filter(|open| open.undrained == number) {
            open.device.begin_drain();
        }
    }

    /// Notes that the requests are over that a device has let in before the command
    /// `victim.number`. The device may have lost access again in the meantime, or be closed.
    pub(crate) fn drained(&mut self, victim: &Victim) {
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

/// The effect of replacing the table.
pub(crate) struct Put {
    /// The number of the command.
    pub(crate) number: u64,
    /// Whether a device has lost access.
    pub(crate) has_lost: bool,
}

/// A device whose requests have to be waited for.
pub(crate) struct Victim {
    pub(crate) place: u64,
    pub(crate) number: u64,
    pub(crate) device: Arc<dyn Reserved>,
    pub(crate) machine: Machine,
}

/// The holder of a reservation; no machine if all registrants hold it.
#[derive(PartialEq)]
pub(crate) struct Holder {
    pub(crate) kind: Kind,
    pub(crate) machine: Option<Machine>,
}

impl Holder {
    pub(crate) fn of(table: &Table<Machine>) -> Option<Self> {
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
