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
    /// The state that the handler keeps during a burst of completions: those that one run of the
    /// poller of a queue of [`CompletionQueue::in_bursts()`] finds. With other queues each
    /// completion is a burst.
    type Burst: Default;

    /// A burst of more than one completion begins. Context as of [`Self::completion()`].
    fn burst_begins(&self) {}

    /// A completion. Called in the context of the completion queue, which decides whether the
    /// handler may sleep; serialised per completion queue.
    fn completion(&self, _: &QueuePairRef<Self>, _: &WorkCompletion<'_>, _: &mut Self::Burst) {}

    /// A work request of the region with this `key` has completed: a write from the memory that the
    /// region has mapped, or an invalidation. Context as of [`Self::completion()`].
    fn region_completed(&self, _: &QueuePairRef<Self>, _key: u32, _: &WorkCompletion<'_>) {}

    /// The burst has ended. Context as of [`Self::completion()`].
    fn burst_ends(&self, _: &QueuePairRef<Self>, _: Self::Burst) {}
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Send-side work requests in flight, signalled or not. Room for draining is added to this
    /// number.
    pub max_send_wr: u32,
    /// Receives in flight. Room for draining is added to this number.
    pub max_recv_wr: u32,
    /// Scatter entries per send-side request.
    pub max_send_sge: u32,
    /// Scatter entries per receive.
    pub max_recv_sge: u32,
}

/// A receive: its work request id, and its buffer if it has one.
pub type Receive<'a> = (WrId, Option<&'a MessageBuffer<Incoming>>);

/// A reliable-connected queue pair, with the CM id that it belongs to.
///
/// Completions and CM events go to the id's handler.
///
/// Dropping a queue pair disconnects, waits until every request in flight has completed, and
/// destroys the queue pair and the id. For each of these requests the handler is called, mostly
/// with [`Status::Flushed`](super::Status::Flushed). After the drop no handler runs any more. The
/// drop sleeps; the caller must not hold anything for which a handler waits. In the id's own event
/// handler the drop is allowed. In a completion handler, or where sleeping is not allowed, the
/// queue pair is left behind; see [`preempt`](crate::preempt).
///
/// # Invariants
///
/// `lent.inner` comes from `KBox::into_raw`, and is owned by this value alone.
pub struct QueuePair<H: Handler> {
    lent: QueuePairRef<H>,
}

/// A queue pair as completion handlers get it: handlers can post on it, but neither connect nor end
/// it.
///
/// # Invariants
///
/// `inner` points to the `Inner` of a [`QueuePair`], which is not freed while this value is used.
/// Until then there is no exclusive reference to it.
pub struct QueuePairRef<H: Handler> {
    inner: NonNull<Inner<H>>,
}

/// # Invariants
///
/// - `qp` is the queue pair of `id`, on the completion queue of `completions`, in `domain`.
/// - `cqes` has the length given at creation and does not move. Each element calls `complete::<H>`.
/// - `domain_serial` is that of `domain`.
/// - The queue pair takes `max_send_sge` scatter entries in a send-side request.
/// - `serial` is a number that no other queue pair has or had, and not 0.
/// - `invalidated` is the key that the device has invalidated last at the peer's request, on this
///   queue pair. It is 0 if there was none, or if a registration with that key was posted here
///   since, even without success.
/// - `region_completed` is that of `H`.
#[repr(C)]
pub(super) struct Inner<H: Handler> {
    /// The first field, as the completion of a region's request does not know `H`.
    region_completed: RegionCompleted,
    // The fields are declared in the order in which they must be dropped. Those that posting needs
    // are in one cache line.
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

/// The parts that are made before the id becomes part of a queue pair.
struct Prepared<H: Handler> {
    completions: Reservation,
    cqes: KVVec<bindings::ib_cqe>,
    /// Complete except for the context, which is the address of the box.
    attributes: bindings::ib_qp_init_attr,
    inner: KBox<MaybeUninit<Inner<H>>>,
}

// SAFETY: Verbs may be called from any thread, and so may the handler.
unsafe impl<H: Handler> Send for QueuePairRef<H> {}

// SAFETY: As above; posting is serialised by the device's driver.
unsafe impl<H: Handler> Sync for QueuePairRef<H> {}

impl<H: Handler> QueuePairRef<H> {
    pub(super) fn inner(&self) -> &Inner<H> {
        // SAFETY: By the type invariant the `Inner` is not freed while this value is used, and
        // there are only shared references to it.
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
    /// On an error the id is returned as well. `ENODEV` if the id has no device, `EINVAL` if the
    /// completion queue has not enough entries left or a capability is beyond the device's, and any
    /// error of the driver.
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
        // Without a device no queue pair can be made. The CM compares the devices of id and domain.
        if self.device().is_none() {
            return Err((self, ENODEV));
        }
        // Nothing is posted before this function returns, so nothing completes. Events are handled
        // by `event()`.
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
            // SAFETY: The box was leaked above, and there is no queue pair, so no other code has
            // the pointer.
            let inner = KBox::into_inner(unsafe { KBox::from_raw(inner) });
            Err((inner.id, error))
        };
        attributes.qp_context = inner.cast();
        // SAFETY: The id is valid; the CM checks that the domain is of the id's device.
        let made = to_result(unsafe { bindings::rdma_create_qp(cm_id, domain, &mut attributes) });
        if let Err(error) = made {
            return fail(error);
        }
        // SAFETY: The id is valid. As nothing was posted, no other code uses `inner` yet. It stays
        // until `drop`, which takes the hook out.
        let hooked = unsafe {
            // INVARIANT: `rdma_create_qp()` made the queue pair with the domain and the completion
            // queue of `inner`.
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
        // INVARIANT: The value is the only owner of `inner`, and frees it only when it is not used
        // any more.
        Ok(Self {
            lent: QueuePairRef { inner },
        })
    }

    /// Makes the parts of a queue pair that do not need the id. Sleeps. `EINVAL` if the completion
    /// queue and the domain are of different devices, or if the queues would be too long.
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
            // A driver would take the completion queue for one of its own.
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

    /// The number of the queue pair, as the peer gets it in the request for the connection
    /// ([`NewId::queue_pair()`](super::cm::NewId::queue_pair)); 0 on iWARP. The route must be
    /// resolved before. Sleeps.
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
        // SAFETY: The exclusive reference is the owner's. A `QueuePairRef`, as handlers get it, can
        // neither connect, accept nor refuse.
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

    /// Ends the connection: all requests in flight are flushed, and the peer is told. Sleeps, and
    /// must not be called where sleeping is not allowed.
    ///
    /// An error of the CM is ignored: it means that there is no connection to end.
    pub fn disconnect(&self) {
        self.id().disconnect();
    }

    /// Ends the connection and waits until every request in flight has completed. Sleeps.
    ///
    /// Handlers may still post. Their requests are flushed, and may still be in flight afterwards.
    /// No queue pair can be made in the domain any more. `EDEADLK`, and nothing is done, in a
    /// completion handler, where the call would wait for itself, or where sleeping is not allowed.
    /// Any other error is the driver's: it is not known then whether all requests have completed.
    /// Dropping the queue pair ends them.
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
        // The completion handler may still run, with a `QueuePairRef`. From here on it cannot post.
        self.inner().closing.store(true, ordering::Relaxed);
        if !self.may_wait() {
            return preempt::leave_behind(&raw mut bindings::__this_module, "a queue pair");
        }
        compat::smp_mb();
        // A handler that was running before may post behind the first drain requests. It has
        // returned when these have completed, as handlers of one completion queue do not run
        // concurrently. The second pass drains the requests of such a handler. If the driver cannot
        // drain the queue pair, destroying it ends the requests.
        let _ = self.drain();
        let _ = self.drain();
        self.completion_queue().unhook();
        // SAFETY: The id is valid and has a queue pair, on which nothing is in flight; the device
        // waits for event handlers that are running.
        unsafe { bindings::rdma_destroy_qp(self.id().as_raw()) };
        self.inner().domain.drained();
        // SAFETY: By the type invariant `inner` comes from a box and is owned by this value alone.
        // With the queue pair gone and the hook taken out, no callback gets the pointer.
        drop(unsafe { KBox::from_raw(self.inner.as_ptr()) });
    }
}

/// Handles a burst of completions.
///
/// # Safety
///
/// Only to be called by a poller that has `hook`.
unsafe fn burst<H: Handler>(hook: *mut Hook, polled: &mut Polled<'_>) {
    // SAFETY: The hook is part of an `Inner`, which stays until the hook is taken out.
    let inner = unsafe { container_of!(hook, Inner<H>, hook) };
    // SAFETY: The pointer to the structure with the hook is not null.
    let inner = unsafe { NonNull::new_unchecked(inner) };
    // INVARIANT: The owner waits for the handler before it frees the `Inner`.
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
            // SAFETY: `wr_cqe` is the `cqe` that was posted, in failed completions too.
            let cqe = unsafe { *wc.__bindgen_anon_1.wr_cqe };
            let offset = cqe.addr().wrapping_sub(cqes.as_ptr().addr());
            let index = offset / size_of::<bindings::ib_cqe>();
            if index < cqes.len() {
                // `cqes` has at most `u32::MAX` elements, as its length was given as a `u32`.
                let completion = WorkCompletion::new(WrId(index as u32), wc);
                handler.completion(&lent, &completion, &mut burst);
            } else {
                // SAFETY: The `cqe` is that of a marker of `drain()`, or of a region. Both expect
                // that their `done` is called for a completion of their queue pair.
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
    // with which it was created.
    let inner = unsafe { (*wc.qp).qp_context }.cast::<Inner<H>>();
    // SAFETY: `qp_context` is not null.
    let inner = unsafe { NonNull::new_unchecked(inner) };
    // INVARIANT: The owner waits for the handler before it frees the `Inner`.
    let lent = QueuePairRef { inner };
    // SAFETY: `wr_cqe` is the `cqe` that was posted, in failed completions too.
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
/// `context` is an `Inner<H>`, which its owner frees only after the handler has returned.
unsafe fn region_completed<H: Handler>(
    context: *mut c_void,
    region: &mr::Raw,
    wc: &bindings::ib_wc,
) {
    // SAFETY: By the function's requirement the context is not null.
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
        // The peer's first message overtook the last message of the CM.
        let inner = context.cast::<Inner<H>>();
        // SAFETY: The context is an `Inner`, which is not freed before the queue pair is destroyed.
        let id = unsafe { (*inner).id.as_raw() };
        // SAFETY: The id is destroyed after the queue pair.
        unsafe { bindings::rdma_notify(id, event) };
    }
    // All other events are fatal and followed by completions with errors or by CM events.
}
