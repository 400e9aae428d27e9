// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! Would be: `rust/kernel/rdma/qp.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    cm::{
        ConnectionParameters,
        EventHandler,
        Id, //
    },
    cq::Reservation,
    drain::drain,
    mr::{
        self,
        RegionCompleted, //
    },
    pd::Membership,
    poller::{
        Hook,
        Polled, //
    },
    receive::Receives,
    CompletionQueue,
    ProtectionDomain,
    WorkCompletion,
    WrId, //
};
use crate::{
    bindings,
    compat,
    preempt,
    prelude::*,
    rdma::message_buffers::{
        Incoming,
        MessageBuffer, //
    },
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        set_once::SetOnce, //
    }, //
};
use core::{
    mem::MaybeUninit,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    container_of,
    error::to_result,
    sync::{
        Arc, //
    }, //
};

/// Receives the completions of a [`QueuePair`], besides the events of its id.
pub trait Handler: EventHandler {
    /// What the handler keeps for a burst of completions: all that one look at a queue of
    /// [`CompletionQueue::in_bursts()`] finds. With other queues each completion is a burst.
    type Burst: Default;

    /// A burst begins that has more than one completion. As [`Self::completion()`].
    fn burst_begins(&self) {}

    /// A completion. Called in the context of the completion queue, of which it depends whether
    /// sleeping is allowed; serialised per completion queue.
    fn completion(&self, _: &QueuePairRef<Self>, _: &WorkCompletion<'_>, _: &mut Self::Burst) {}

    /// A request has completed that used the memory which the region with this key has mapped: a
    /// write from it, or an invalidation. As [`Self::completion()`].
    fn region_completed(&self, _: &QueuePairRef<Self>, _key: u32, _: &WorkCompletion<'_>) {}

    /// The burst has ended. As [`Self::completion()`].
    fn burst_ends(&self, _: &QueuePairRef<Self>, _: Self::Burst) {}
}

/// What a queue pair is to hold.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Send-side work requests in flight, signaled or not; room for draining is added to it.
    pub max_send_wr: u32,
    /// Receives in flight; room for draining is added to it.
    pub max_recv_wr: u32,
    /// Scatter entries per send-side request.
    pub max_send_sge: u32,
    /// Scatter entries per receive.
    pub max_recv_sge: u32,
}

/// A receive: its name, and its buffer if it has one.
pub type Receive<'a> = (WrId, Option<&'a MessageBuffer<Incoming>>);

/// A reliable-connected queue pair, with the CM id that it belongs to.
///
/// Completions and CM events go to the id's handler.
///
/// Dropping it disconnects, waits until every request in flight has completed (that is, the
/// handler is called, mostly with [`Status::Flushed`](super::Status::Flushed)), and destroys the
/// queue pair and the id. No handler runs any more when that is done. It sleeps, and must not
/// happen with anything held that a handler waits for. In the id's own event handler it is allowed.
/// In a completion handler, or where sleeping is not allowed, it is left behind; see
/// [`preempt`](crate::preempt).
///
/// # Invariants
///
/// `lent.inner` comes from `KBox::into_raw`, and is owned by this value alone.
pub struct QueuePair<H: Handler> {
    lent: QueuePairRef<H>,
}

/// A queue pair as completion handlers get it: they can post on it, but neither connect nor end it.
///
/// # Invariants
///
/// `inner` points to what a [`QueuePair`] owns, which is not freed while this value is used. Nobody
/// has an exclusive reference to it until then.
pub struct QueuePairRef<H: Handler> {
    inner: NonNull<Inner<H>>,
}

/// # Invariants
///
/// - `qp` is the queue pair of `id`, on the completion queue of `completions`, in `domain`.
/// - `cqes` has the length given at creation and stays where it is; all call `complete::<H>`.
/// - `domain_serial` is that of `domain`.
/// - The queue pair takes `max_send_sge` scatter entries in a send-side request.
/// - `serial` is a number that no other queue pair has or had, and not 0.
/// - `invalidated` is the key that the device has invalidated last at the peer's request, on this
///   queue pair; 0 if there was none, or if a table was to be registered with it here since.
/// - `region_completed` is that of `H`.
#[repr(C)]
pub(super) struct Inner<H: Handler> {
    /// First, as the completion of a region's request does not know `H`.
    region_completed: RegionCompleted,
    // Declared in the order in which they have to go. What posting needs is in one cache line.
    id: Id<H>,
    pub(super) qp: *mut bindings::ib_qp,
    pub(super) cqes: KVVec<bindings::ib_cqe>,
    pub(super) domain_serial: u64,
    pub(super) serial: u64,
    pub(super) max_send_sge: u32,
    pub(super) invalidated: Atomic<u32>,
    /// Set before draining: handlers must not post behind the drain requests.
    pub(super) closing: Atomic<bool>,
    hook: Hook,
    pub(super) receives: SetOnce<Receives>,
    completions: Reservation,
    domain: Membership,
}

/// The number of queue pairs that were made.
static MADE: Atomic<u64> = Atomic::new(0);

/// What can be made before it is certain that the id becomes part of a queue pair.
struct Prepared<H: Handler> {
    completions: Reservation,
    cqes: KVVec<bindings::ib_cqe>,
    /// All but the context, which is the box.
    attributes: bindings::ib_qp_init_attr,
    inner: KBox<MaybeUninit<Inner<H>>>,
}

// SAFETY: Verbs may be called from any thread, and so may the handler.
unsafe impl<H: Handler> Send for QueuePairRef<H> {}

// SAFETY: As above; posting is serialised by the device's driver.
unsafe impl<H: Handler> Sync for QueuePairRef<H> {}

impl<H: Handler> QueuePairRef<H> {
    pub(super) fn inner(&self) -> &Inner<H> {
        // SAFETY: It is not freed while this value is used, and only shared.
        unsafe { self.inner.as_ref() }
    }

    /// The handler.
    pub fn handler(&self) -> &Arc<H> {
        self.inner().id.handler()
    }

    /// The protection domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.inner().domain
    }

    /// The completion queue.
    pub fn completion_queue(&self) -> &CompletionQueue {
        &self.inner().completions
    }
}

impl<H: Handler> Deref for QueuePair<H> {
    type Target = QueuePairRef<H>;

    fn deref(&self) -> &QueuePairRef<H> {
        &self.lent
    }
}

impl<H: Handler> Id<H> {
    /// Makes the queue pair. `wr_ids` is the number of [`WrId`](super::WrId)s. Sleeps.
    ///
    /// Gives the id back if it fails: with `ENODEV` if the id has no device, `EINVAL` if the
    /// completion queue has not enough entries left or a capability is beyond the device's, and
    /// with any error of the driver.
    pub fn create_queue_pair(
        self,
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        capabilities: &Capabilities,
        wr_ids: u32,
    ) -> Result<QueuePair<H>, (Self, Error)> {
        let prepared = Membership::new(domain).and_then(|domain| {
            let prepared = QueuePair::prepare(&domain, completions, capabilities, wr_ids)?;
            Ok((domain, prepared))
        });
        let (domain, prepared) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((self, error)),
        };
        let Prepared {
            completions,
            cqes,
            attributes,
            inner,
        } = prepared;
        // No device, no queue pair; the CM compares the devices of id and domain.
        if self.device().is_none() {
            return Err((self, ENODEV));
        }
        // Nothing is posted before this returns, so nothing completes; see `event()` for events.
        let inner = inner.write(Inner {
            region_completed: region_completed::<H>,
            id: self,
            qp: ptr::null_mut(),
            cqes,
            domain_serial: domain.serial(),
            serial: MADE.fetch_add(1u64, ordering::Relaxed).wrapping_add(1),
            max_send_sge: capabilities.max_send_sge,
            invalidated: Atomic::new(0),
            closing: Atomic::new(false),
            hook: Hook { burst: burst::<H> },
            receives: SetOnce::new(),
            completions,
            domain,
        });
        QueuePair::create(inner, attributes)
    }
}

impl<H: Handler> QueuePair<H> {
    /// Makes the queue pair of `inner`. Sleeps.
    fn create(
        inner: KBox<Inner<H>>,
        mut attributes: bindings::ib_qp_init_attr,
    ) -> Result<Self, (Id<H>, Error)> {
        let (cm_id, domain) = (inner.id.as_raw(), inner.domain.as_raw());
        let inner = KBox::into_raw(inner);
        let fail = move |error| {
            // SAFETY: It was made above, and there is no queue pair, so nobody else has the
            // pointer.
            let inner = KBox::into_inner(unsafe { KBox::from_raw(inner) });
            Err((inner.id, error))
        };
        attributes.qp_context = inner.cast();
        // SAFETY: The id is valid; the CM checks that the domain is of the id's device.
        let made = to_result(unsafe { bindings::rdma_create_qp(cm_id, domain, &mut attributes) });
        if let Err(error) = made {
            return fail(error);
        }
        // SAFETY: The id is valid. `inner` is still only ours, as nothing was posted, and stays
        // until `drop`, which takes the hook out.
        let hooked = unsafe {
            // INVARIANT: `rdma_create_qp()` made the queue pair with what is in `inner`.
            (*inner).qp = (*cm_id).qp;
            (*inner).completions.hook(&raw mut (*inner).hook)
        };
        if let Err(error) = hooked {
            // SAFETY: Nothing was posted on the queue pair.
            unsafe { bindings::rdma_destroy_qp(cm_id) };
            return fail(error);
        }
        // SAFETY: `inner` comes from a box, so it is not null.
        let inner = unsafe { NonNull::new_unchecked(inner) };
        // INVARIANT: This is the only owner, and what it lends.
        Ok(Self {
            lent: QueuePairRef { inner },
        })
    }

    /// Makes what a queue pair needs of its own. Sleeps. `EINVAL` if the completion queue is of
    /// another device than the domain, or if the queues would be too long.
    fn prepare(
        domain: &ProtectionDomain,
        completions: &Arc<CompletionQueue>,
        capabilities: &Capabilities,
        wr_ids: u32,
    ) -> Result<Prepared<H>> {
        let max_send_wr = capabilities.max_send_wr.checked_add(1).ok_or(EINVAL)?;
        let max_recv_wr = capabilities.max_recv_wr.checked_add(1).ok_or(EINVAL)?;
        let entries = capabilities
            .max_send_wr
            .checked_add(capabilities.max_recv_wr);
        if completions.device() != domain.device() {
            // A driver takes it for one of its own.
            return Err(EINVAL);
        }
        let completions = completions.reserve(entries.ok_or(EINVAL)?)?;
        let mut cqes = KVVec::with_capacity(usize::try_from(wr_ids)?, GFP_KERNEL)?;
        for _ in 0..wr_ids {
            let cqe = bindings::ib_cqe {
                done: Some(complete::<H>),
            };
            cqes.push(cqe, GFP_KERNEL)?;
        }
        let attributes = bindings::ib_qp_init_attr {
            event_handler: Some(event::<H>),
            send_cq: completions.as_raw(),
            recv_cq: completions.as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr,
                max_recv_wr,
                max_send_sge: capabilities.max_send_sge,
                max_recv_sge: capabilities.max_recv_sge,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        let inner = KBox::<Inner<H>>::new_uninit(GFP_KERNEL)?;
        Ok(Prepared {
            completions,
            cqes,
            attributes,
            inner,
        })
    }

    /// The CM id.
    pub fn id(&self) -> &Id<H> {
        &self.inner().id
    }

    /// Its number, as the peer is told it in the request for the connection
    /// ([`NewId::queue_pair()`](super::cm::NewId::queue_pair)); 0 on iWARP. The route is to be
    /// resolved. Sleeps.
    pub fn number_at_peer(&self) -> u32 {
        if self.id().tells_queue_pair() {
            // SAFETY: By the invariant of `Inner` the queue pair is valid; its number does not
            // change.
            unsafe { (*self.inner().qp).qp_num }
        } else {
            0
        }
    }

    /// Connects to the peer, whose route has been resolved; an event tells the outcome. Sleeps.
    pub fn connect(&mut self, private_data: &[u8], parameters: &ConnectionParameters) -> Result {
        // SAFETY: The exclusive reference is the owner's; with what handlers are lent none of that
        // can be done.
        unsafe { self.id().connect(private_data, parameters) }
    }

    /// Accepts the connection that was requested; an event tells when it is established. Sleeps.
    pub fn accept(&mut self, private_data: &[u8], parameters: &ConnectionParameters) -> Result {
        // SAFETY: As in `connect()`.
        unsafe { self.id().accept(private_data, parameters) }
    }

    /// Refuses the connection that was requested, if it could not be accepted. Sleeps.
    pub fn reject(&mut self, private_data: &[u8]) -> Result {
        // SAFETY: As in `connect()`.
        unsafe { self.id().reject_shared(private_data) }
    }

    /// Ends the connection: all requests in flight are flushed, the peer is told. Sleeps.
    ///
    /// The outcome does not matter: what is not connected has nothing to end.
    /// Must not be called where sleeping is not allowed.
    pub fn disconnect(&self) {
        self.id().disconnect();
    }

    /// Ends the connection and waits until every request in flight has completed. Sleeps.
    ///
    /// Handlers may still post, and what they post may still be in flight afterwards, to be
    /// flushed. No queue pair can be made in the domain any more. `EDEADLK`, and nothing is done,
    /// where it would wait for itself: in a completion handler, or where sleeping is not allowed.
    /// Another error is the driver's, which could not say that all is done: dropping the queue pair
    /// ends it.
    pub fn drain(&self) -> Result {
        if !self.may_wait() {
            return Err(EDEADLK);
        }
        self.disconnect();
        // SAFETY: The queue pair is valid, and on that completion queue.
        unsafe { drain(self.inner().qp, self.completion_queue()) }?;
        self.inner().domain.drained();
        Ok(())
    }

    /// Whether the caller may wait for completion handlers.
    fn may_wait(&self) -> bool {
        preempt::may_sleep() && !self.completion_queue().is_handling()
    }
}

impl<H: Handler> Drop for QueuePair<H> {
    fn drop(&mut self) {
        // The completion handler may still run, with what it was lent. From here on it cannot post.
        self.inner().closing.store(true, ordering::Relaxed);
        if !self.may_wait() {
            return preempt::leave_behind(&raw mut bindings::__this_module, "a queue pair");
        }
        compat::smp_mb();
        // A handler that was running before may post behind the first drain requests, but it has
        // returned when these have completed, as handlers of one completion queue do not run
        // concurrently. The second pass drains what it posted.
        // Destroying it ends what a driver could not end.
        let _ = self.drain();
        let _ = self.drain();
        self.completion_queue().unhook();
        // SAFETY: The id is valid and has a queue pair, on which nothing is in flight; the device
        // waits for event handlers that are running.
        unsafe { bindings::rdma_destroy_qp(self.id().as_raw()) };
        self.inner().domain.drained();
        // SAFETY: It comes from a box and is owned by this value alone. With the queue pair gone
        // and the hook taken out, no callback gets the pointer.
        drop(unsafe { KBox::from_raw(self.inner.as_ptr()) });
    }
}

/// Handles a burst of completions.
///
/// # Safety
///
/// Only to be called by a poller that `hook` is in.
unsafe fn burst<H: Handler>(hook: *mut Hook, polled: &mut Polled<'_>) {
    // SAFETY: The hook is part of an `Inner`, which stays until it is taken out.
    let inner = unsafe { container_of!(hook, Inner<H>, hook) };
    // SAFETY: A pointer to what contains a field is not null.
    let inner = unsafe { NonNull::new_unchecked(inner) };
    // INVARIANT: The owner waits for the handler before it frees that.
    let lent = QueuePairRef { inner };
    let (handler, cqes, cq) = (lent.handler(), &lent.inner().cqes, polled.cq());
    let mut burst = H::Burst::default();
    let mut has_begun = false;
    while let Some(batch) = polled.next_batch() {
        if batch.len() > 1 && !has_begun {
            has_begun = true;
            handler.burst_begins();
        }
        for wc in batch {
            // SAFETY: `wr_cqe` is what was posted, in failed completions too.
            let cqe = unsafe { *wc.__bindgen_anon_1.wr_cqe };
            let offset = cqe.addr().wrapping_sub(cqes.as_ptr().addr());
            let index = offset / size_of::<bindings::ib_cqe>();
            if index < cqes.len() {
                // At most `u32::MAX`, as that many were asked for.
                let completion = WorkCompletion::new(WrId(index as u32), wc);
                handler.completion(&lent, &completion, &mut burst);
            } else {
                // SAFETY: It is a marker of `drain()`, or a region's, whose `done` are both called
                // for a completion of their queue.
                unsafe { Polled::call(cq, wc) };
            }
        }
    }
    handler.burst_ends(&lent, burst);
}

/// Called for each completion.
///
/// # Safety
///
/// Only to be called by the RDMA core for requests posted by a `QueuePair<H>`.
unsafe extern "C" fn complete<H: Handler>(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: The core passes a valid completion; the queue pair is set in all, failed ones too.
    let wc = unsafe { &*wc };
    // SAFETY: The queue pair is not destroyed before it is drained, and its context is the `Inner`
    // it was created with.
    let inner = unsafe { (*wc.qp).qp_context }.cast::<Inner<H>>();
    // SAFETY: `qp_context` is not null.
    let inner = unsafe { NonNull::new_unchecked(inner) };
    // INVARIANT: The owner waits for the handler before it frees that.
    let lent = QueuePairRef { inner };
    // SAFETY: `wr_cqe` is what was posted, in failed completions too.
    let cqe = unsafe { *wc.__bindgen_anon_1.wr_cqe };
    let base = lent.inner().cqes.as_ptr();
    // SAFETY: `cqe` was taken from the array at `base` when the request was posted.
    let index = unsafe { cqe.cast_const().offset_from(base) };
    let Ok(index) = u32::try_from(index) else {
        return;
    };
    let completion = WorkCompletion::new(WrId(index), wc);
    let mut burst = H::Burst::default();
    lent.handler().completion(&lent, &completion, &mut burst);
    lent.handler().burst_ends(&lent, burst);
}

/// # Safety
///
/// `context` is an `Inner<H>`, whose owner waits for the handler before it frees it.
unsafe fn region_completed<H: Handler>(
    context: *mut c_void,
    region: &mr::Raw,
    wc: &bindings::ib_wc,
) {
    // SAFETY: By the function's requirement it is not null.
    let inner = unsafe { NonNull::new_unchecked(context.cast::<Inner<H>>()) };
    // INVARIANT: By the function's requirement.
    let lent = QueuePairRef { inner };
    let completion = WorkCompletion::new(WrId(region.key()), wc);
    if completion.is_success() {
        region.work_request_done();
    }
    lent.handler()
        .region_completed(&lent, region.key(), &completion);
}

/// Called for events of the queue pair, in any context.
///
/// # Safety
///
/// Only to be called by the RDMA core for a queue pair made by `QueuePair::<H>::new()`.
unsafe extern "C" fn event<H: Handler>(event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: The core passes a valid event.
    let event = unsafe { (*event).event };
    if event == bindings::ib_event_type_IB_EVENT_COMM_EST {
        // The peer's first message overtook the CM's last.
        let inner = context.cast::<Inner<H>>();
        // SAFETY: The context is an `Inner`, which is not freed before the queue pair is destroyed.
        let id = unsafe { (*inner).id.as_raw() };
        // SAFETY: The id goes after the queue pair.
        unsafe { bindings::rdma_notify(id, event) };
    }
    // All other events are fatal and followed by completions with errors or by CM events.
}
