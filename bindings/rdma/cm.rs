// SPDX-License-Identifier: GPL-2.0

//! The RDMA connection manager.
//!
//! Would be: `rust/kernel/rdma/cm.rs`.
//!
//! C header: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

use super::Device;
use crate::{
    bindings,
    net::{
        socket_address::SocketAddress,
        Namespace, //
    },
    preempt,
    prelude::*, //
};
use core::{
    cell::Cell,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    sync::{
        atomic::ordering,
        Arc, //
    }, //
};

mod event;
mod peer;
mod scope;

pub use event::{
    Event,
    NewId, //
};

use event::{
    connection_data,
    reject,
    translate, //
};
use scope::Scope;

/// Receives the events of an [`Id`].
pub trait EventHandler: Send + Sync + Sized + 'static {
    /// An event. Process context. Events of an id are serialised, except for an id that listens on
    /// all addresses, which gets requests of several devices at once.
    ///
    /// Must not wait for anything that waits for the id to be dropped. Must not drop a queue pair
    /// that was accepted or connects: an iWARP device waits for an event that comes after this one.
    /// A *listening* id that is dropped here is left behind, see [`preempt`](crate::preempt).
    fn event(&self, event: Event<'_>);
}

/// The port space of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortSpace {
    /// Addresses are IP addresses.
    Tcp,
    /// Addresses are GIDs.
    Ib,
}

/// The parameters of a connection, besides private data (`rdma_conn_param`).
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParameters {
    /// RDMA reads that the peer may have in flight.
    pub responder_resources: u8,
    /// RDMA reads that this end may have in flight.
    pub initiator_depth: u8,
    /// How often an unacknowledged packet is sent again; ignored by `accept()`.
    pub retry_count: u8,
    /// How often a message is sent again that found no receive; 7 means for ever.
    pub rnr_retry_count: u8,
    /// The time in ms for which the device waits at least for an acknowledgement before it sends
    /// again. 0 means the default of the CM for the kind of network.
    pub ack_timeout_ms: u32,
}

impl Default for ConnectionParameters {
    /// The parameters of the C modules.
    fn default() -> Self {
        Self {
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout_ms: 0,
        }
    }
}

impl ConnectionParameters {
    fn as_raw(&self, private_data: &[u8]) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).map_err(|_| EINVAL)?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ..Default::default()
        })
    }

    /// The exponent of the acknowledgement timeout, which is 4096 ns times two to the power of the
    /// exponent. `None` for the default of the CM.
    fn ack_timeout_exponent(&self) -> Option<u8> {
        let units = (u64::from(self.ack_timeout_ms) * 1_000_000).div_ceil(4096);
        // The largest exponent stands for more than two hours.
        (units != 0).then(|| units.next_power_of_two().trailing_zeros().min(31) as u8)
    }
}

#[repr(C)]
struct Inner<H> {
    scope: Scope,
    cm_id: *mut bindings::rdma_cm_id,
    handler: Arc<H>,
}

impl<H: EventHandler> Inner<H> {
    fn new(handler: Arc<H>) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                scope: Scope::new(Self::free),
                cm_id: ptr::null_mut(),
                handler,
            },
            GFP_KERNEL,
        )?)
    }

    /// # Safety
    ///
    /// `scope` must be the start of a leaked box of this type, which the caller gives up.
    unsafe fn free(scope: NonNull<Scope>) {
        // SAFETY: By the function's requirement.
        drop(unsafe { KBox::from_raw(scope.as_ptr().cast::<Self>()) });
    }
}

/// An endpoint of the connection manager (`rdma_cm_id`): a listener or a connection.
///
/// Dropping an id sleeps and waits for its running event handler; no event comes afterwards. An id
/// that is dropped by its own event handler is destroyed when the handler returns. A listening id
/// that is dropped while it handles a request is left behind, and so is an id that is dropped where
/// sleeping is not allowed; see [`preempt`](crate::preempt).
///
/// # Invariants
///
/// - `inner` comes from `KBox::into_raw` and is owned by this type.
/// - `inner.cm_id` is a valid id with `inner` as its context and `handle::<H>` as its event
///   handler.
pub struct Id<H: EventHandler> {
    inner: NonNull<Inner<H>>,
}

// SAFETY: The CM's functions may be called from any task. A method that changes the id in a way
// that the CM does not serialise takes `&mut self`, or is unsafe.
unsafe impl<H: EventHandler> Send for Id<H> {}

// SAFETY: As above.
unsafe impl<H: EventHandler> Sync for Id<H> {}

impl<H: EventHandler> Id<H> {
    /// Makes an id in the network namespace `net`. The RDMA core lists the id under the name
    /// `owner`. Sleeps.
    pub fn new(
        handler: Arc<H>,
        net: &Namespace,
        port_space: PortSpace,
        owner: &'static CStr,
    ) -> Result<Self> {
        let port_space = match port_space {
            PortSpace::Tcp => bindings::rdma_ucm_port_space_RDMA_PS_TCP,
            PortSpace::Ib => bindings::rdma_ucm_port_space_RDMA_PS_IB,
        };
        let inner = KBox::into_raw(Inner::new(handler)?);
        // SAFETY: The context stays valid until the id is destroyed. No event comes before a
        // function is called on the id.
        let cm_id = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(handle::<H>),
                inner.cast(),
                port_space,
                bindings::ib_qp_type_IB_QPT_RC,
                owner.as_char_ptr(),
            )
        });
        let cm_id = match cm_id {
            Ok(cm_id) => cm_id,
            Err(error) => {
                // SAFETY: No other code has the pointer.
                drop(unsafe { KBox::from_raw(inner) });
                return Err(error);
            }
        };
        // SAFETY: `inner` comes from a box, and as no event has come yet, no other code uses it.
        let inner = unsafe {
            (*inner).cm_id = cm_id;
            NonNull::new_unchecked(inner)
        };
        // INVARIANT: As set up above.
        Ok(Self { inner })
    }

    fn inner(&self) -> &Inner<H> {
        // SAFETY: By the type invariant `inner` comes from a box and is owned by `self`. It is not
        // changed after the id was made.
        unsafe { self.inner.as_ref() }
    }

    /// The C structure.
    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.inner().cm_id
    }

    /// The handler.
    pub fn handler(&self) -> &Arc<H> {
        &self.inner().handler
    }

    /// Resolves `destination`, as seen from `source` if given; an event tells the outcome. Sleeps.
    pub fn resolve_address(
        &mut self,
        source: Option<&SocketAddress>,
        destination: &SocketAddress,
        timeout_ms: u32,
    ) -> Result {
        let source = source.map_or(ptr::null(), SocketAddress::as_raw);
        // SAFETY: The id and the addresses are valid. The addresses are copied, and the source is
        // not written to.
        to_result(unsafe {
            bindings::rdma_resolve_addr(
                self.as_raw(),
                source.cast_mut(),
                destination.as_raw(),
                timeout_ms as c_ulong,
            )
        })
    }

    /// Resolves the route to the resolved address; an event tells the outcome. Sleeps.
    pub fn resolve_route(&mut self, timeout_ms: u32) -> Result {
        // Without this check the CM would use a null device.
        if self.device().is_none() {
            return Err(EINVAL);
        }
        // SAFETY: The id is valid and has a device.
        to_result(unsafe { bindings::rdma_resolve_route(self.as_raw(), timeout_ms as c_ulong) })
    }

    /// Binds to a local address. Sleeps.
    pub fn bind(&mut self, address: &SocketAddress) -> Result {
        // SAFETY: The id and the address are valid; the address is copied and not written to.
        to_result(unsafe { bindings::rdma_bind_addr(self.as_raw(), address.as_raw().cast_mut()) })
    }

    /// Listens on the bound address, keeping up to `backlog` requests. Sleeps.
    pub fn listen(&mut self, backlog: u32) -> Result {
        let backlog = c_int::try_from(backlog).map_err(|_| EINVAL)?;
        // SAFETY: The id is valid.
        to_result(unsafe { bindings::rdma_listen(self.as_raw(), backlog) })
    }

    /// The device, once the address is resolved, and for requested connections.
    pub fn device(&self) -> Option<&Device> {
        let inner = self.inner();
        if !inner.scope.has_device.load(ordering::Acquire) {
            return None;
        }
        // SAFETY: The id has a device. The removal of the device waits until the id is destroyed.
        Some(unsafe { Device::from_raw((*inner.cm_id).device) })
    }

    /// The port of the device, from 1; 0 if there is none yet.
    pub fn port_num(&self) -> u32 {
        if self.device().is_none() {
            return 0;
        }
        // SAFETY: The id is valid; the number does not change once there is a device.
        unsafe { (*self.as_raw()).port_num }
    }

    /// The local address. Sleeps.
    pub fn local_address(&self) -> SocketAddress {
        // SAFETY: The id is valid, and the address is one of its fields.
        self.locked(|| unsafe {
            SocketAddress::from_raw(&raw const (*self.as_raw()).route.addr.src_addr)
        })
    }

    /// The peer's address. Sleeps.
    pub fn peer_address(&self) -> SocketAddress {
        // SAFETY: The id is valid, and the address is one of its fields.
        self.locked(|| unsafe {
            SocketAddress::from_raw(&raw const (*self.as_raw()).route.addr.dst_addr)
        })
    }

    /// Runs `f` with the id's handler mutex held. In the event handler the CM holds the mutex
    /// already.
    ///
    /// While a listening id handles a request, the mutex may be held or not, and is not needed: a
    /// listening id has its address, and is not connected.
    fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let scope = &self.inner().scope;
        let inside = scope.is_inside() || scope.is_in_request();
        if !inside {
            // SAFETY: The id is valid, and this task does not hold the mutex, as it is in none of
            // the id's event handlers.
            unsafe { bindings::rdma_lock_handler(self.as_raw()) };
        }
        let result = f();
        if !inside {
            // SAFETY: Locked above.
            unsafe { bindings::rdma_unlock_handler(self.as_raw()) };
        }
        result
    }

    /// Sets the acknowledgement timeout that the queue pair gets when it is connected.
    fn set_ack_timeout(&self, parameters: &ConnectionParameters) -> Result {
        match parameters.ack_timeout_exponent() {
            Some(exponent) => to_result({
                // SAFETY: The id is valid.
                unsafe { bindings::rdma_set_ack_timeout(self.as_raw(), exponent) }
            }),
            None => Ok(()),
        }
    }

    /// # Safety
    ///
    /// No other task connects, disconnects, accepts or refuses meanwhile: if this fails, the CM
    /// frees objects that these calls use.
    pub(super) unsafe fn connect(&self, data: &[u8], parameters: &ConnectionParameters) -> Result {
        let mut param = parameters.as_raw(data)?;
        self.set_ack_timeout(parameters)?;
        to_result(self.locked(|| {
            // SAFETY: The id is valid and its handler mutex is held; the parameters and the data
            // are copied.
            unsafe { bindings::rdma_connect_locked(self.as_raw(), &mut param) }
        }))
    }

    /// # Safety
    ///
    /// As for [`Self::connect()`].
    pub(super) unsafe fn accept(&self, data: &[u8], parameters: &ConnectionParameters) -> Result {
        let mut param = parameters.as_raw(data)?;
        self.set_ack_timeout(parameters)?;
        // SAFETY: The id is valid and its handler mutex is held; the parameters and the data are
        // copied.
        to_result(self.locked(|| unsafe { bindings::rdma_accept(self.as_raw(), &mut param) }))
    }

    pub(super) fn disconnect(&self) {
        if self.device().is_some() {
            // SAFETY: The id is valid and has a device.
            unsafe { bindings::rdma_disconnect(self.as_raw()) };
        }
    }

    /// Refuses the connection that was requested, giving the peer `private_data`. Sleeps.
    ///
    /// The id must be dropped afterwards.
    pub fn reject(&mut self, private_data: &[u8]) -> Result {
        // SAFETY: By the exclusive reference no other task uses the id.
        unsafe { self.reject_shared(private_data) }
    }

    /// # Safety
    ///
    /// As for [`Self::connect()`].
    pub(super) unsafe fn reject_shared(&self, private_data: &[u8]) -> Result {
        if self.device().is_none() {
            return Err(EINVAL);
        }
        // SAFETY: The id is valid and has a device.
        unsafe { reject(self.as_raw(), private_data) }
    }
}

impl<H: EventHandler> Drop for Id<H> {
    fn drop(&mut self) {
        let scope = &self.inner().scope;
        if scope.is_in_request() || !preempt::may_sleep() {
            return preempt::leave_behind(&raw mut bindings::__this_module, "an RDMA CM id");
        }
        if scope.is_inside() {
            // The running event handler, which drops the id, destroys the id and frees its context
            // when it returns.
            scope.destroy.store(true, ordering::Relaxed);
            return;
        }
        // SAFETY: The id is valid, and this is not its event handler. A queue pair of the id is
        // destroyed already.
        unsafe { bindings::rdma_destroy_id(self.as_raw()) };
        // SAFETY: With the id gone, no other code has the pointer.
        drop(unsafe { KBox::from_raw(self.inner.as_ptr()) });
    }
}

impl NewId<'_> {
    /// Takes the id. Its further events go to `handler`.
    pub fn take<H: EventHandler>(self, handler: Arc<H>) -> Result<Id<H>> {
        let mut inner = Inner::new(handler)?;
        inner.cm_id = self.raw;
        inner.scope.has_device.store(true, ordering::Release);
        // This task holds the new id's handler mutex until the listener's event handler returns.
        inner.scope.enter();
        let inner = KBox::into_raw(inner);
        // SAFETY: The pointer comes from a box.
        let inner = unsafe { NonNull::new_unchecked(inner) };
        // SAFETY: The id is valid, and its handler mutex is held, so no other task reads these
        // fields now.
        unsafe {
            (*self.raw).context = inner.as_ptr().cast();
            (*self.raw).event_handler = Some(handle::<H>);
        }
        self.taken.set(Some(inner.cast()));
        // INVARIANT: As set up above.
        Ok(Id { inner })
    }
}

/// The event handler of all ids.
///
/// # Safety
///
/// Only to be called by the CM, for an id with an `Inner<H>` as its context, or for a connection
/// that was requested from such a listening id.
unsafe extern "C" fn handle<H: EventHandler>(
    cm_id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: By the function's requirement; the context is not freed before the id is destroyed,
    // which waits for this handler.
    let inner = unsafe { NonNull::new_unchecked((*cm_id).context.cast::<Inner<H>>()) };
    // SAFETY: As above; shared references only.
    let this = unsafe { inner.as_ref() };
    // SAFETY: The CM passes a valid event.
    let event = unsafe { &*event };

    if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        // `this` is that of the listening id, which may handle several requests at a time.
        let taken = Cell::new(None);
        let event = Event::ConnectRequest {
            id: NewId {
                raw: cm_id,
                // SAFETY: The event is one of a connection, so the union holds its parameters.
                queue_pair: unsafe { event.param.conn.qp_num },
                taken: &taken,
                _current: PhantomData,
            },
            // SAFETY: The event is valid and of a connection.
            private_data: unsafe { connection_data(event) },
        };
        this.scope.in_request(|| this.handler.event(event));
        return match taken.get() {
            // SAFETY: This is the new id's event handler.
            Some(scope) => unsafe { Scope::leave(scope) },
            None => ECONNREFUSED.to_errno(),
        };
    }

    this.scope.enter();
    if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED {
        this.scope.has_device.store(true, ordering::Release);
    }
    // SAFETY: The event is valid and of this id.
    this.handler.event(unsafe { translate(cm_id, event) });
    // SAFETY: This is the id's event handler.
    unsafe { Scope::leave(inner.cast()) }
}
