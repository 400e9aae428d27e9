// SPDX-License-Identifier: GPL-2.0

//! The send queue of a connection: its room, the requests that wait for room, and the responses
//! that are collected to go out in one message.

use kernel_ext::{
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        box_slot::{
            BoxList,
            BoxStack,
            Linked, //
        },
        spinlock_irq::{
            new_spinlock_irq,
            SpinLockIrq, //
        }, //
    }, //
};
use rtrs_core::connection::SignalInterval;

use crate::fifo::Fifo;

/// The send queue of a connection, and the requests (`T`) for which something is to be sent. All
/// methods may be called in any context.
///
/// # Invariants
///
/// - `credits` is the number of further responses or invalidations that the queue has room for, and
///   is never negative. It is 0 until the queue is opened.
/// - `num_waiting` is the length of `waiting`, and changes with `waiting` locked.
/// - A request is added to `waiting` before the look for credits, and credits are given back before
///   the look for waiting requests. So no request waits while there is room.
/// - [`Self::collect()`] adds to `collected` before it looks at `collecting`. [`Self::end_burst()`]
///   clears `collecting` before the look at `collected`. So no response stays there after a burst.
#[pin_data]
pub(crate) struct SendQueue<T: Send> {
    signals: SignalInterval,
    credits: Atomic<i32>,
    num_waiting: Atomic<u32>,
    #[pin]
    waiting: SpinLockIrq<Fifo<T>>,
    /// Whether the client takes coalesced responses.
    coalesces: bool,
    /// A burst is being handled, at the end of which the collected responses are sent. If there are
    /// several bursts, the first end counts.
    collecting: Atomic<bool>,
    collected: BoxStack<T>,
}

impl<T: Send> SendQueue<T> {
    /// Makes a queue that has no room before [`Self::open()`]. `coalesces`: the client takes
    /// coalesced responses.
    pub(crate) fn new(coalesces: bool) -> impl PinInit<Self> {
        pin_init!(Self {
            signals: SignalInterval::new(1),
            credits: Atomic::new(0),
            num_waiting: Atomic::new(0),
            waiting <- new_spinlock_irq!(Fifo::new(), "rtrs_server::SendQueue::waiting"),
            coalesces,
            collecting: Atomic::new(false),
            collected: BoxStack::new(),
        })
    }

    /// Opens the queue, once, with room for `credits` responses or invalidations. The session has
    /// `queue_depth` requests at a time, at most 65535.
    pub(crate) fn open(&self, credits: u32, queue_depth: u32) {
        let credits = credits.min(queue_depth);
        // At least two completions are in flight when the queue is full.
        self.signals.set_for_queue_depth(credits / 2);
        // INVARIANT: Nothing was posted yet. `credits` has at most 16 bits, so it is not negative.
        self.credits.store(credits as i32, ordering::Release);
    }

    /// Whether the response that is posted next asks for a completion.
    #[inline]
    pub(crate) fn next_is_signaled(&self) -> bool {
        self.signals.next_is_signaled()
    }

    /// How responses are signalled.
    pub(crate) fn signals(&self) -> &SignalInterval {
        &self.signals
    }

    /// Takes room for a response or an invalidation. False if there is none.
    #[inline]
    pub(crate) fn take_credit(&self) -> bool {
        let mut credits = self.credits.load(ordering::Relaxed);
        while credits > 0 {
            let less = credits.wrapping_sub(1);
            match self.credits.cmpxchg(credits, less, ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => credits = now,
            }
        }
        false
    }

    /// Gives back the room of `count` responses or invalidations.
    pub(crate) fn give_credits(&self, count: i32) {
        self.credits.fetch_add(count, ordering::Full);
    }

    /// Gives back the room of a signalled response that was sent, and of the responses before it.
    pub(crate) fn responses_sent(&self) {
        // At most the queue depth.
        self.give_credits(self.signals.interval() as i32);
    }

    /// Keeps a request until there is room; the caller then sends what [`Self::next_waiting()`]
    /// gives.
    pub(crate) fn wait(&self, request: KBox<Linked<T>>) {
        let mut waiting = self.waiting.lock();
        waiting.push(request);
        self.num_waiting.fetch_add(1, ordering::Full);
    }

    /// Whether a request waits for room.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.num_waiting.load(ordering::Relaxed) != 0
    }

    /// Takes out the request that has waited longest, if there is room. The caller gets one credit.
    pub(crate) fn next_waiting(&self) -> Option<KBox<Linked<T>>> {
        while self.has_waiting() && self.take_credit() {
            if let Some(request) = self.take_waiting() {
                return Some(request);
            }
            // Another CPU took the request. Look again: other requests may have found no room for
            // lack of this credit.
            self.give_credits(1);
        }
        None
    }

    /// Takes out the request that has waited longest, also without room.
    pub(crate) fn take_waiting(&self) -> Option<KBox<Linked<T>>> {
        let mut waiting = self.waiting.lock();
        let request = waiting.pop()?;
        self.num_waiting.fetch_sub(1, ordering::Relaxed);
        Some(request)
    }

    /// Begins a burst of several completions, or of several tasks of a worker: responses are
    /// collected, if the client takes that. True if so; then the caller ends the burst.
    #[inline]
    pub(crate) fn begin_burst(&self) -> bool {
        if self.coalesces {
            self.collecting.store(true, ordering::Relaxed);
        }
        self.coalesces
    }

    /// Ends the burst. The caller sends the collected responses.
    #[inline]
    pub(crate) fn end_burst(&self) {
        if self.is_collecting() {
            self.collecting.xchg(false, ordering::Full);
        }
    }

    /// Whether responses are being collected.
    #[inline]
    pub(crate) fn is_collecting(&self) -> bool {
        self.collecting.load(ordering::Relaxed)
    }

    /// Collects the response to a request. False if the burst has ended in the meantime: then the
    /// caller sends the collected responses.
    #[inline]
    pub(crate) fn collect(&self, request: KBox<Linked<T>>) -> bool {
        // The addition is a full barrier.
        self.collected.push(request);
        self.is_collecting()
    }

    /// Whether a response was collected and not taken out.
    #[inline]
    pub(crate) fn has_collected(&self) -> bool {
        !self.collected.is_empty()
    }

    /// Takes out the collected responses.
    pub(crate) fn take_collected(&self) -> BoxList<T> {
        self.collected.take_all()
    }
}
