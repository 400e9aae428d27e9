// SPDX-License-Identifier: GPL-2.0

//! The state that the members of a group share: requests, and the writes that members have not
//! confirmed.

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        },
    }, //
};
use proto::group::{
    member::{
        Member,
        Refusal,
        State, //
    },
    missed::Range,
    pending::{
        End,
        Party,
        Word, //
    },
    reads::{
        average,
        ReadPolicy, //
    },
    Members,
    MAX_MEMBERS, //
};

use crate::{
    events::{
        Ended,
        GroupEvents, //
    },
    slots::{
        Slot,
        Slots, //
    }, //
};

/// The fewest ranges that the list of a member has room for.
const MIN_PLACES: u32 = 64;

/// The state that the members of a group share.
#[pin_data]
pub(crate) struct Core {
    pub(crate) slots: Slots,
    pub(crate) events: Arc<dyn GroupEvents>,
    #[pin]
    states: SpinLockIrq<States>,
    /// How long reads of each member take, in ns; 0 if that is not known.
    latency: [Atomic<u64>; MAX_MEMBERS],
    reads: Atomic<u64>,
}

/// The lists of the members, and the number of the next write. One lock is for all of them, so each
/// write is sent to a member or is on the member's list.
struct States {
    members: KVec<Member<KVVec<Range>>>,
    next: u64,
    policy: ReadPolicy,
}

/// Why a member has not confirmed a request.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// The server's error, or the request was not sent. The member does not have all of it, and is
    /// not at work on it.
    Refused(Error),
    /// There was no response. The member may have it, or get it still, until its session has a path
    /// again.
    Unanswered(Error),
}

/// The writes that a member has not confirmed, at some moment.
pub struct Missing {
    /// The state of the member.
    pub state: State,
    /// The writes, in the order of their numbers.
    pub ranges: KVVec<Range>,
    /// Whether the member has confirmed none of these writes.
    pub is_exact: bool,
}

impl Core {
    /// A core without members or tags. Sleeps.
    pub(crate) fn new(events: Arc<dyn GroupEvents>, policy: ReadPolicy) -> Result<Arc<Self>> {
        let states = States {
            members: KVec::new(),
            next: 1,
            policy,
        };
        Arc::pin_init(
            pin_init!(Self {
                slots: Slots::new(),
                events,
                states <- new_spinlock_irq!(states, "rtrs_group::Core::states"),
                latency: [const { Atomic::new(0) }; MAX_MEMBERS],
                reads: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes `members` members, in sync, and `tags` tags with data of up to `max_segments`
    /// segments. Sleeps.
    pub(crate) fn make(&self, members: usize, tags: u32, max_segments: u32) -> Result {
        let mut states = KVec::with_capacity(members, GFP_KERNEL)?;
        // All writes that are in flight when a member fails may be on its list, with gaps between
        // them.
        let places = usize::try_from(tags.max(MIN_PLACES))?;
        for _ in 0..members {
            let list = KVVec::from_elem(Range::EMPTY, places, GFP_KERNEL)?;
            states.push(Member::new(list), GFP_KERNEL)?;
        }
        self.slots.make(tags, max_segments, members)?;
        // The old members are dropped without the lock.
        let old = core::mem::replace(&mut self.states.lock().members, states);
        drop(old);
        Ok(())
    }

    /// Numbers a write. Returns the number and the members that get the write; it is on the list of
    /// each other member. `ECONNABORTED` if no member takes writes; then there is no such write.
    pub(crate) fn begin_write(&self) -> Result<(u64, Members)> {
        let mut states = self.states.lock();
        let States { members, next, .. } = &mut *states;
        if members.iter().all(|one| one.state() == State::Behind) {
            return Err(ECONNABORTED);
        }
        let number = *next;
        *next = number.wrapping_add(1);
        let numbered = members.iter_mut().enumerate();
        let members = numbered.fold(Members::NONE, |taken, (index, one)| {
            match one.begin(number) {
                true => taken.with(index),
                false => taken,
            }
        });
        Ok((number, members))
    }

    /// Chooses the member for a read, among the members in sync that are `allowed`.
    pub(crate) fn choose(&self, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let (in_sync, policy) = {
            let states = self.states.lock();
            let numbered = states.members.iter().enumerate();
            let in_sync = numbered.filter(|(_, one)| one.state() == State::InSync);
            let in_sync = in_sync.fold(Members::NONE, |all, (index, _)| all.with(index));
            (in_sync, states.policy)
        };
        let can_be = in_sync.iter().filter(|member| allowed(*member));
        let can_be = can_be.fold(Members::NONE, Members::with);
        let turn = self.reads.fetch_add(1, ordering::Relaxed);
        policy.choose(can_be, turn, |member| self.latency(member))
    }

    pub(crate) fn set_policy(&self, policy: ReadPolicy) {
        self.states.lock().policy = policy;
    }

    /// How long reads of a member take, in ns; 0 if that is not known.
    pub(crate) fn latency(&self, member: usize) -> u64 {
        let latency = self.latency.get(member);
        latency.map_or(0, |latency| latency.load(ordering::Relaxed))
    }

    /// Handles the end of the request of `tag` at `member`. Any context.
    pub(crate) fn member_ended(&self, tag: u32, member: usize, result: Result<(), Failure>) {
        let Some(slot) = self.slots.get(tag) else {
            return;
        };
        let (how, errno) = match result {
            Ok(()) => {
                if slot.number() == 0 {
                    self.note_latency(member, slot.age(self.slots.now()));
                }
                (End::Confirmed, 0)
            }
            Err(Failure::Refused(error)) => (End::Refused, error.to_errno()),
            Err(Failure::Unanswered(error)) => {
                self.failed(member, slot.number());
                (End::Unanswered, error.to_errno())
            }
        };
        if let Some(over) = slot.end(Party::Member(member), how, errno) {
            self.over(tag, slot, over);
        }
    }

    /// Notes that the request of `tag`, which is in `slot`, was sent to all its members. Any
    /// context.
    #[inline]
    pub(crate) fn sender_ended(&self, tag: u32, slot: &Slot) {
        if let Some(over) = slot.end(Party::Sender, End::Confirmed, 0) {
            self.over(tag, slot, over);
        }
    }

    /// Tells the user of the end of the request of `tag`, which is in `slot`. All parties have
    /// ended it.
    #[inline(never)]
    fn over(&self, tag: u32, slot: &Slot, over: Word) {
        let over = slot.over(over);
        // If no member has confirmed the write, the write has failed, and no member lacks it.
        if !over.confirmed.is_empty() {
            for member in over.failed.iter() {
                self.failed(member, over.number);
            }
        }
        slot.give_back();
        self.events.ended(&Ended {
            tag,
            number: over.number,
            confirmed: over.confirmed,
            failed: over.failed,
            unanswered: over.unanswered,
            result: over.result,
        });
    }

    /// Notes that `member` has not confirmed write `number`. Does nothing for 0.
    fn failed(&self, member: usize, number: u64) {
        if number == 0 {
            return;
        }
        let fell_behind = {
            let mut states = self.states.lock();
            let one = states.members.get_mut(member);
            one.is_some_and(|one| one.failed(number))
        };
        if fell_behind {
            self.events.fell_behind(member, number);
        }
    }

    fn note_latency(&self, member: usize, latest: i64) {
        if let Some(place) = self.latency.get(member) {
            // If two reads end at the same time, one time may be lost. An average bears that.
            let known = place.load(ordering::Relaxed);
            place.store(average(known, latest.unsigned_abs()), ordering::Relaxed);
        }
    }

    /// Changes the state of a member. `ENODEV` if there is no such member, `EINVAL` if the change
    /// does not begin with its state, `EBUSY` if there are writes on its list, `ENOSPC` if the list
    /// has no place for the writes that would be left.
    pub(crate) fn change(
        &self,
        member: usize,
        change: impl FnOnce(&mut Member<KVVec<Range>>) -> Result<(), Refusal>,
    ) -> Result {
        let mut states = self.states.lock();
        let one = states.members.get_mut(member).ok_or(ENODEV)?;
        change(one).map_err(|refusal| match refusal {
            Refusal::WrongState => EINVAL,
            Refusal::MissesWrites => EBUSY,
            Refusal::NoPlace => ENOSPC,
        })
    }

    /// The writes that `member` has not confirmed. Sleeps. `ENODEV` if there is no such member.
    pub(crate) fn missing(&self, member: usize) -> Result<Missing> {
        let places = usize::try_from(self.slots.count().max(MIN_PLACES))?;
        let mut ranges = KVVec::with_capacity(places, GFP_KERNEL)?;
        let states = self.states.lock();
        let one = states.members.get(member).ok_or(ENODEV)?;
        for range in one.missed().ranges() {
            // There is room: the list has as many places.
            let _ = ranges.push_within_capacity(*range);
        }
        Ok(Missing {
            state: one.state(),
            ranges,
            is_exact: one.missed().is_exact(),
        })
    }
}
