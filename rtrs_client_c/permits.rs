// SPDX-License-Identifier: GPL-2.0

//! The permits of a session in C: each is the right to use one tag, from `rtrs_clt_get_permit()` to
//! `rtrs_clt_put_permit()`, for one request at a time.
//!
//! A caller has a permit as a pointer to its cell here. That pointer is only compared, so another
//! one finds nothing, and the state of the cell says what may be done with the permit.

use kernel::sync::Arc;
use kernel_ext::{
    c_caller::Handle,
    cpu,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::Completion,
        state_cell::{
            Owned,
            StateCell, //
        },
    }, //
};

use crate::callbacks::Confirmation;

/// Nobody has the permit.
const FREE: u64 = 0;
/// A caller has the permit, and no request is in flight under it.
const HELD: u64 = 1;
/// A caller has the permit, and its request is in flight.
const BUSY: u64 = 2;

/// What a permit keeps for its request.
pub(crate) struct Permit {
    /// The CPU that got the permit.
    pub(crate) cpu: u32,
    /// The request goes by the service connection.
    pub(crate) by_service_connection: bool,
    /// `Some` while the request is in flight.
    pub(crate) confirmation: Option<Confirmation>,
}

/// The permits of a session, by tag.
///
/// # Invariants
///
/// The bit of a tag in `taken` is set while its cell is not [`FREE`], and while the task that has
/// set it is about to change the cell, or that has changed the cell is about to clear it. The bits
/// behind the last tag are set.
#[pin_data]
pub(crate) struct Permits {
    cells: KVVec<StateCell<Permit>>,
    taken: KVec<Atomic<u64>>,
    /// The tasks that wait for a permit.
    waiting: Atomic<u32>,
    #[pin]
    given_back: Completion,
    /// A task waits until all permits were given back.
    is_closing: Atomic<bool>,
    #[pin]
    given_back_at_end: Completion,
}

/// The bit of `tag` in its word.
fn bit(tag: u32) -> u64 {
    1u64.wrapping_shl(tag % u64::BITS)
}

impl Permits {
    /// The permits of `count` tags. Sleeps.
    pub(crate) fn new(count: u32) -> Result<Arc<Self>> {
        let mut cells = KVVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            let permit = Permit {
                cpu: 0,
                by_service_connection: false,
                confirmation: None,
            };
            cells.push(StateCell::new(permit, FREE), GFP_KERNEL)?;
        }
        let words = count.div_ceil(u64::BITS);
        let mut taken = KVec::with_capacity(words as usize, GFP_KERNEL)?;
        for word in 0..words {
            // At least one, as there is a word for it.
            let tags = count.wrapping_sub(word.wrapping_mul(u64::BITS));
            let behind = match tags {
                0..u64::BITS => u64::MAX.wrapping_shl(tags),
                _ => 0,
            };
            taken.push(Atomic::new(behind), GFP_KERNEL)?;
        }
        // INVARIANT: All cells are free, and only the bits behind the last one are set.
        Arc::pin_init(
            pin_init!(Self {
                cells,
                taken,
                waiting: Atomic::new(0),
                given_back <- Completion::new(),
                is_closing: Atomic::new(false),
                given_back_at_end <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Gets a permit, by the address under which its caller knows it, if there is one. Any context.
    pub(crate) fn get(&self, by_service_connection: bool) -> Option<Handle> {
        let tag = self.take_tag()?;
        let cell = self.cells.get(tag as usize)?;
        // By the type invariant nobody else has it.
        let mut permit = cell.take(FREE)?;
        permit.cpu = cpu::current_cpu();
        permit.by_service_connection = by_service_connection;
        permit.put(HELD);
        Some(Handle::new(core::ptr::from_ref(cell).addr() as u64))
    }

    /// As [`Self::get()`]; waits until there is one. Sleeps.
    pub(crate) fn get_waiting(&self, by_service_connection: bool) -> Handle {
        if let Some(permit) = self.get(by_service_connection) {
            return permit;
        }
        // Whoever gives a permit back that is not seen below sees this.
        self.waiting.fetch_add(1, ordering::Full);
        let permit = loop {
            match self.get(by_service_connection) {
                Some(permit) => break permit,
                None => self.given_back.wait(),
            }
        };
        self.waiting.fetch_sub(1, ordering::Full);
        permit
    }

    /// Sets the bit of a tag whose bit is not set. Full barrier if there is one.
    fn take_tag(&self) -> Option<u32> {
        for (word, bits) in (0u32..).zip(&self.taken) {
            let mut known = bits.load(ordering::Relaxed);
            while known != u64::MAX {
                let place = known.trailing_ones();
                match bits.cmpxchg(known, known | bit(place), ordering::Full) {
                    // One of the tags, of which there are less than 2^32.
                    Ok(_) => return Some(word.wrapping_mul(u64::BITS).wrapping_add(place)),
                    Err(now) => known = now,
                }
            }
        }
        None
    }

    /// Gives `permit` back. `EINVAL` if it is none that is out, `EBUSY` if its request is in
    /// flight. Any context.
    pub(crate) fn put(&self, permit: Handle) -> Result {
        let (tag, cell) = self.find(permit).ok_or(EINVAL)?;
        if !cell.change(HELD, FREE) {
            return Err(refusal(cell));
        }
        if let Some(bits) = self.taken.get((tag / u64::BITS) as usize) {
            // It is set, so nothing is borrowed from the bits above.
            bits.fetch_sub(bit(tag), ordering::Full);
        }
        if self.waiting.load(ordering::Relaxed) != 0 {
            self.given_back.complete();
        }
        if self.is_closing.load(ordering::Relaxed) {
            self.given_back_at_end.complete();
        }
        Ok(())
    }

    /// Waits until all permits were given back. Sleeps.
    pub(crate) fn wait_for_all(&self) {
        // Whoever gives a permit back that is not seen below sees this.
        self.is_closing.xchg(true, ordering::Full);
        while self.cells.iter().any(|cell| cell.state() != FREE) {
            self.given_back_at_end.wait();
        }
    }

    /// The tag of `permit`, and what the permit keeps, for the request that is about to be sent
    /// under it. Errors as of [`Self::put()`]. Any context.
    pub(crate) fn use_for_request(&self, permit: Handle) -> Result<(u32, Owned<'_, Permit>)> {
        let (tag, cell) = self.find(permit).ok_or(EINVAL)?;
        let owned = cell.take(HELD).ok_or_else(|| refusal(cell))?;
        Ok((tag, owned))
    }

    /// The request of `tag` ends with `result`. Any context.
    pub(crate) fn confirm(&self, tag: u32, result: Result) {
        let busy = (self.cells.get(tag as usize)).and_then(|cell| cell.take(BUSY));
        let Some(mut permit) = busy else {
            return;
        };
        let confirmation = permit.confirmation.take();
        // First, as the caller may use the permit at once.
        permit.put(HELD);
        if let Some(confirmation) = confirmation {
            confirmation.call(result);
        }
    }

    /// The request of `tag` was not sent after all. Any context.
    pub(crate) fn not_sent(&self, tag: u32) {
        let busy = (self.cells.get(tag as usize)).and_then(|cell| cell.take(BUSY));
        if let Some(mut permit) = busy {
            permit.confirmation = None;
            permit.put(HELD);
        }
    }

    /// The tag and the cell of a permit; nothing if `permit` is the address of none.
    fn find(&self, permit: Handle) -> Option<(u32, &StateCell<Permit>)> {
        let address = usize::try_from(permit.number()).ok()?;
        let offset = address.checked_sub(self.cells.as_ptr().addr())?;
        let index = offset.checked_div(size_of::<StateCell<Permit>>())?;
        let cell = self.cells.get(index)?;
        let is_cell = core::ptr::from_ref(cell).addr() == address;
        // There are less than 2^32.
        is_cell.then_some((index as u32, cell))
    }
}

/// Has the permit stay with its caller, and not be used.
pub(crate) fn keep(permit: Owned<'_, Permit>) {
    permit.put(HELD);
}

/// Lets the request of `permit` be confirmed from here on.
pub(crate) fn begin(permit: Owned<'_, Permit>) {
    permit.put(BUSY);
}

/// Why nothing can be done with a permit that is not held, or is in use.
fn refusal(cell: &StateCell<Permit>) -> Error {
    match cell.state() {
        FREE => EINVAL,
        _ => EBUSY,
    }
}
