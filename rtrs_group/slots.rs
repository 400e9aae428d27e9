// SPDX-License-Identifier: GPL-2.0

//! The requests of a group, one for each tag.

use kernel::time::{
    Instant,
    Monotonic, //
};
use kernel_ext::{
    prelude::*,
    scatterlist::SharedTable,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    }, //
};
use proto::group::{
    pending::{
        ended,
        End,
        Party,
        Word, //
    },
    Members, //
};

/// The most devices for which the data of a write is mapped once. For each further device every
/// member maps the data.
const MAX_DEVICES: usize = 4;

/// Value of [`Slot::owner`]: the tag is free.
const FREE: u32 = 0;

/// Value of [`Slot::owner`]: there is a permit, or the request is in flight.
const TAKEN: u32 = 1;

/// The request of one tag.
///
/// # Invariants
///
/// - `number`, `sent_to`, `began` and `data` are only set by the owner of the tag, before its
///   request is sent to a member.
/// - `word` has the parties that have still to end the request that was begun last.
pub(crate) struct Slot {
    owner: Atomic<u32>,
    word: Atomic<u64>,
    number: Atomic<u64>,
    sent_to: Atomic<u32>,
    /// The first error; 0 if there is none.
    errno: Atomic<i32>,
    /// When the request was begun, in ns since the group was made. 0 for a write with a number.
    began: Atomic<i64>,
    pub(crate) data: SharedTable,
}

/// A request that all parties have ended.
pub(crate) struct Over {
    pub(crate) number: u64,
    pub(crate) confirmed: Members,
    pub(crate) failed: Members,
    pub(crate) unanswered: Members,
    pub(crate) result: Result,
}

impl Slot {
    fn new(max_segments: u32, members: usize) -> Result<Self> {
        // INVARIANT: There was no request.
        Ok(Self {
            owner: Atomic::new(FREE),
            word: Atomic::new(0),
            number: Atomic::new(0),
            sent_to: Atomic::new(0),
            errno: Atomic::new(0),
            began: Atomic::new(0),
            data: SharedTable::new(max_segments, members.min(MAX_DEVICES))?,
        })
    }

    /// Takes the tag, if it is free. Any context.
    pub(crate) fn take(&self) -> bool {
        let taken = self.owner.cmpxchg(FREE, TAKEN, ordering::Acquire);
        taken.is_ok()
    }

    /// Gives the tag back. Any context.
    pub(crate) fn give_back(&self) {
        self.owner.store(FREE, ordering::Release);
    }

    /// The number of the write; 0 for a request without one.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(ordering::Relaxed)
    }

    /// Begins write `number`, or another request (0), which the owner of the tag is about to send
    /// to `members`, at the time `now`. `Party::Sender` has to end the request as well.
    pub(crate) fn begin(&self, number: u64, members: Members, now: i64) {
        self.number.store(number, ordering::Relaxed);
        self.sent_to.store(members.to_bits(), ordering::Relaxed);
        self.errno.store(0, ordering::Relaxed);
        self.began.store(now, ordering::Relaxed);
        // INVARIANT: All parties have still to end the request. A party that ends it sees the
        // fields.
        let word = Word::begin(members).to_u64();
        self.word.store(word, ordering::Release);
    }

    /// For how many ns the request has been in flight.
    pub(crate) fn age(&self, now: i64) -> i64 {
        now.wrapping_sub(self.began.load(ordering::Relaxed))
    }

    /// Notes that `party` has ended the request in the way `how`, with an errno or 0. The last
    /// party gets the word, from which [`Self::over`] makes the result for all parties.
    #[inline]
    pub(crate) fn end(&self, party: Party, how: End, errno: i32) -> Option<Word> {
        if errno != 0 {
            // The first error stays.
            let _ = self.errno.cmpxchg(0, errno, ordering::Relaxed);
        }
        let change = ended(party, how);
        let before = self.word.fetch_add(change, ordering::Full);
        let word = Word::after(before, change);
        word.is_over().then_some(word)
    }

    /// The result of the request whose last party got `word`.
    #[inline]
    pub(crate) fn over(&self, word: Word) -> Over {
        let sent_to = Members::from_bits(self.sent_to.load(ordering::Relaxed));
        let confirmed = sent_to.without(word.failed());
        let errno = self.errno.load(ordering::Relaxed);
        let result = match confirmed.is_empty() {
            true if errno == 0 => Err(ECONNABORTED),
            true => kernel::error::to_result(errno),
            false => Ok(()),
        };
        Over {
            number: self.number(),
            confirmed,
            failed: word.failed(),
            unanswered: word.unanswered(),
            result,
        }
    }
}

/// All slots, by tag. Made when the members are known.
pub(crate) struct Slots {
    slots: SetOnce<KVVec<Slot>>,
    origin: Instant<Monotonic>,
}

impl Slots {
    /// Makes an object without slots.
    pub(crate) fn new() -> Self {
        Self {
            slots: SetOnce::new(),
            origin: Instant::now(),
        }
    }

    /// Makes `count` slots, with data of up to `max_segments` segments, for `members` members.
    /// Sleeps.
    pub(crate) fn make(&self, count: u32, max_segments: u32, members: usize) -> Result {
        let mut slots = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        for _ in 0..count {
            slots.push(Slot::new(max_segments, members)?, GFP_KERNEL)?;
        }
        if !self.slots.populate(slots) {
            return Err(EEXIST);
        }
        Ok(())
    }

    /// The slot of `tag`. Any context.
    pub(crate) fn get(&self, tag: u32) -> Option<&Slot> {
        self.slots.as_ref()?.get(tag as usize)
    }

    /// The number of slots.
    pub(crate) fn count(&self) -> u32 {
        // `make` was asked for that many, which fits.
        self.slots.as_ref().map_or(0, |slots| slots.len() as u32)
    }

    /// How often data was mapped for a device, in all slots.
    pub(crate) fn times_mapped(&self) -> u64 {
        let slots = self.slots.as_ref().into_iter().flatten();
        slots.fold(0, |sum, slot| sum.wrapping_add(slot.data.times_mapped()))
    }

    /// The time in ns since the group was made. Any context.
    pub(crate) fn now(&self) -> i64 {
        self.origin.elapsed().as_nanos()
    }
}
