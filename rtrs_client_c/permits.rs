// SPDX-License-Identifier: GPL-2.0

//! The permits of a session in C. Each is the right to use one tag, from `rtrs_clt_get_permit()` to
//! `rtrs_clt_put_permit()`, for one request at a time. `rtrs_group_c` uses the same type for the
//! permits of a group.
//!
//! A caller gets a permit as a pointer to its cell here. That pointer is only compared, so a wrong
//! pointer finds nothing. The state of the cell says what may be done with the permit.

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

/// The permit is not out.
const FREE: u64 = 0;
/// A caller has the permit, and no request is in flight under it.
const HELD: u64 = 1;
/// A caller has the permit, and its request is in flight.
const BUSY: u64 = 2;

/// The state that a permit keeps for its request. `C` is called when the request ends.
struct Permit<C> {
    /// The CPU that got the permit.
    cpu: u32,
    /// Whether the request goes by the service connection.
    by_service_connection: bool,
    /// `Some` while the request is in flight.
    confirmation: Option<C>,
}

/// The permits of a session or a group, by tag.
///
/// # Invariants
///
/// - The bit of a tag in `taken` is set in three cases: the tag's cell is not [`FREE`]; a task has
///   set the bit and is about to change the cell, or has changed the cell and is about to clear the
///   bit; all tags are taken by [`Self::take_all()`].
/// - The bits behind the last tag are set.
#[pin_data]
pub struct Permits<C> {
    cells: KVVec<StateCell<Permit<C>>>,
    taken: KVec<Atomic<u64>>,
    /// Whether a caller takes all tags, or has them.
    are_all_taken: Atomic<bool>,
    /// The number of tasks that wait for a permit.
    waiting: Atomic<u32>,
    #[pin]
    given_back: Completion,
    /// Whether a task waits until all permits were given back.
    is_closing: Atomic<bool>,
    #[pin]
    given_back_at_end: Completion,
}

/// A permit that its caller uses for a request. If this is dropped, the caller keeps the permit,
/// for another request.
///
/// # Invariants
///
/// `permit` is `Some` until the request begins.
pub struct PermitUse<'a, C> {
    tag: u32,
    permit: Option<Owned<'a, Permit<C>>>,
}

/// The bit of `tag` in its word.
fn bit(tag: u32) -> u64 {
    1u64.wrapping_shl(tag % u64::BITS)
}

/// The bits in word `word` that are behind the last of `count` tags. At least one tag has its bit
/// in that word.
fn bits_behind(count: u32, word: u32) -> u64 {
    match count.wrapping_sub(word.wrapping_mul(u64::BITS)) {
        tags @ 0..u64::BITS => u64::MAX.wrapping_shl(tags),
        _ => 0,
    }
}

impl<C> Permits<C> {
    /// Makes the permits of `count` tags. Sleeps.
    pub fn new(count: u32) -> Result<Arc<Self>> {
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
            taken.push(Atomic::new(bits_behind(count, word)), GFP_KERNEL)?;
        }
        // INVARIANT: All cells are free, and only the bits behind the last tag are set.
        Arc::pin_init(
            pin_init!(Self {
                cells,
                taken,
                are_all_taken: Atomic::new(false),
                waiting: Atomic::new(0),
                given_back <- Completion::new(),
                is_closing: Atomic::new(false),
                given_back_at_end <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a free permit. Returns the address by which the caller knows it. Any context.
    pub fn get(&self, by_service_connection: bool) -> Option<Handle> {
        let tag = self.take_tag()?;
        let cell = self.cells.get(tag as usize)?;
        // By the type invariant the cell is free, and no other task takes it.
        let mut permit = cell.take(FREE)?;
        permit.cpu = cpu::current_cpu();
        permit.by_service_connection = by_service_connection;
        permit.put(HELD);
        Some(Handle::new(core::ptr::from_ref(cell).addr() as u64))
    }

    /// As [`Self::get()`], but waits until there is a permit. Ends without a permit if a caller
    /// [takes all](Self::take_all()). Sleeps.
    pub fn get_waiting(&self, by_service_connection: bool) -> Option<Handle> {
        let permit = self.get(by_service_connection);
        if permit.is_some() {
            return permit;
        }
        // A task that gives a permit back, or takes all, and is not seen below sees this.
        self.waiting.fetch_add(1, ordering::Full);
        let permit = loop {
            let permit = self.get(by_service_connection);
            if permit.is_some() || self.are_all_taken.load(ordering::Relaxed) {
                break permit;
            }
            self.given_back.wait();
        };
        self.waiting.fetch_sub(1, ordering::Full);
        permit
    }

    /// Sets the bit of a tag whose bit is not set. A full barrier if it succeeds.
    fn take_tag(&self) -> Option<u32> {
        for (word, bits) in (0u32..).zip(&self.taken) {
            let mut known = bits.load(ordering::Relaxed);
            while known != u64::MAX {
                let place = known.trailing_ones();
                match bits.cmpxchg(known, known | bit(place), ordering::Full) {
                    // The sum is the number of a tag, of which there are less than 2^32.
                    Ok(_) => return Some(word.wrapping_mul(u64::BITS).wrapping_add(place)),
                    Err(now) => known = now,
                }
            }
        }
        None
    }

    /// Takes all tags, so that there are no permits before [`Self::give_all_back()`]. `EBUSY` if a
    /// permit is out, if a task waits for a permit, or if all are taken already. Any context.
    pub(crate) fn take_all(&self) -> Result {
        // A task that begins to wait and is not seen below sees this.
        if self.are_all_taken.xchg(true, ordering::Full) {
            return Err(EBUSY);
        }
        let count = self.cells.len() as u32;
        for (word, bits) in (0u32..).zip(&self.taken) {
            let free = bits_behind(count, word);
            if bits.cmpxchg(free, u64::MAX, ordering::Full).is_err() {
                // INVARIANT: Only the words before this one are taken.
                self.give_back_words(word);
                return Err(EBUSY);
            }
        }
        if self.waiting.load(ordering::Relaxed) != 0 {
            self.give_all_back();
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Gives back the tags that [`Self::take_all()`] has taken. Any context.
    pub(crate) fn give_all_back(&self) {
        self.give_back_words(u32::MAX);
    }

    /// Gives back all tags whose bits are in the first `words` words.
    fn give_back_words(&self, words: u32) {
        let count = self.cells.len() as u32;
        for (word, bits) in (0..words).zip(&self.taken) {
            bits.xchg(bits_behind(count, word), ordering::Full);
        }
        self.are_all_taken.xchg(false, ordering::Full);
        for _ in 0..self.waiting.load(ordering::Relaxed) {
            self.given_back.complete();
        }
    }

    /// Gives `permit` back. `EINVAL` if it is not a permit that is out, `EBUSY` if its request is
    /// in flight. Any context.
    pub fn put(&self, permit: Handle) -> Result {
        let (tag, cell) = self.find(permit).ok_or(EINVAL)?;
        if !cell.change(HELD, FREE) {
            return Err(refusal(cell));
        }
        if let Some(bits) = self.taken.get((tag / u64::BITS) as usize) {
            // The bit is set, so nothing is borrowed from the bits above.
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
    pub fn wait_for_all(&self) {
        // A task that gives a permit back and is not seen below sees this.
        self.is_closing.xchg(true, ordering::Full);
        while self.cells.iter().any(|cell| cell.state() != FREE) {
            self.given_back_at_end.wait();
        }
    }

    /// Takes a permit for the request that is about to be sent under it. Errors as of
    /// [`Self::put()`]. Any context.
    pub fn use_for_request(&self, permit: Handle) -> Result<PermitUse<'_, C>> {
        let (tag, cell) = self.find(permit).ok_or(EINVAL)?;
        let owned = cell.take(HELD).ok_or_else(|| refusal(cell))?;
        // INVARIANT: There is a permit.
        Ok(PermitUse {
            tag,
            permit: Some(owned),
        })
    }

    /// Notes that the request of `tag` has ended, and returns the function to be called. When that
    /// function is called the caller may use the permit again. Nothing if no request has begun
    /// under the permit. Any context.
    pub fn ended(&self, tag: u32) -> Option<C> {
        let mut permit = self.cells.get(tag as usize)?.take(BUSY)?;
        let confirmation = permit.confirmation.take();
        // Held first, as the caller may use the permit at once.
        permit.put(HELD);
        confirmation
    }

    /// Notes that the request of `tag` was not sent after all. Any context.
    pub fn not_sent(&self, tag: u32) {
        drop(self.ended(tag));
    }

    /// The tag and the cell of a permit. Nothing if `permit` is not the address of a cell.
    fn find(&self, permit: Handle) -> Option<(u32, &StateCell<Permit<C>>)> {
        let address = usize::try_from(permit.number()).ok()?;
        let offset = address.checked_sub(self.cells.as_ptr().addr())?;
        let index = offset.checked_div(size_of::<StateCell<Permit<C>>>())?;
        let cell = self.cells.get(index)?;
        let is_cell = core::ptr::from_ref(cell).addr() == address;
        // There are less than 2^32 cells.
        is_cell.then_some((index as u32, cell))
    }
}

impl<C> PermitUse<'_, C> {
    /// The tag of the permit.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The CPU that got the permit.
    pub fn cpu(&self) -> u32 {
        self.permit.as_ref().map_or(0, |permit| permit.cpu)
    }

    /// Whether the request goes by the service connection.
    pub fn is_by_service_connection(&self) -> bool {
        let permit = self.permit.as_ref();
        permit.is_some_and(|permit| permit.by_service_connection)
    }

    /// Has the request end from here on by [`Permits::ended()`], which returns `confirmation`.
    pub fn begin(mut self, confirmation: C) {
        if let Some(mut permit) = self.permit.take() {
            permit.confirmation = Some(confirmation);
            permit.put(BUSY);
        }
    }
}

impl<C> Drop for PermitUse<'_, C> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.put(HELD);
        }
    }
}

/// The error for a permit whose cell is not [`HELD`].
fn refusal<C>(cell: &StateCell<Permit<C>>) -> Error {
    match cell.state() {
        FREE => EINVAL,
        _ => EBUSY,
    }
}
