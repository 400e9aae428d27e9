// SPDX-License-Identifier: GPL-2.0

//! What the members of a group share: its requests, and who has confirmed what.

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

/// What the members of a group share.
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

/// The lists of the members and the number of the next write: so that each write is sent to a
/// member, or is on its list.
struct States {
    members: KVec<Member<KVVec<Range>>>,
    next: u64,
    policy: ReadPolicy,
}

/// Why a member has not confirmed a request.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// The server's error, or the request was not sent: the member does not have it.
    Refused(Error),
    /// There was no response: the member may have it, or get it still.
    Unanswered(Error),
}

/// What a member has not confirmed, at some moment.
pub struct Missing {
    /// The state.
    pub state: State,
    /// The writes, in the order of their numbers.
    pub ranges: KVVec<Range>,
    /// Whether the member has confirmed none of them.
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
        // What is in flight when a member fails may all be on its list, with gaps between.
        let places = usize::try_from(tags.max(MIN_PLACES))?;
        for _ in 0..members {
            let list = KVVec::from_elem(Range::EMPTY, places, GFP_KERNEL)?;
            states.push(Member::new(list), GFP_KERNEL)?;
        }
        self.slots.make(tags, max_segments, members)?;
        // What was there before is dropped without the lock.
        let old = core::mem::replace(&mut self.states.lock().members, states);
        drop(old);
        Ok(())
    }

    /// Numbers a write, and says which members it is to be sent to; it is on the list of each
    /// other one. `ECONNABORTED`, and there is no such write, if no member takes writes.
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

    /// The member to read, of those in sync that are in `allowed`.
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

    /// `member` has ended the request of `tag`. Any context.
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

    /// The request of `tag`, which is in `slot`, was sent to all members that get it. Any context.
    #[inline]
    pub(crate) fn sender_ended(&self, tag: u32, slot: &Slot) {
        if let Some(over) = slot.end(Party::Sender, End::Confirmed, 0) {
            self.over(tag, slot, over);
        }
    }

    /// All parties have ended the request of `tag`, which is in `slot`.
    #[inline(never)]
    fn over(&self, tag: u32, slot: &Slot, over: Word) {
        let over = slot.over(over);
        // A write that no member has is one that has failed, not one that members lack.
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

    /// `member` has not confirmed write `number`, if that is not 0.
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
            // Of two that end at the same time one may be lost, which an average bears.
            let known = place.load(ordering::Relaxed);
            place.store(average(known, latest.unsigned_abs()), ordering::Relaxed);
        }
    }

    /// Changes the state of a member. `ENODEV` if there is no such one, `EINVAL` if its state is
    /// another than that needed, `EBUSY` if there are writes on its list, `ENOSPC` if the list has
    /// no place for what would be left.
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

    /// What `member` has not confirmed. Sleeps. `ENODEV` if there is no such one.
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
