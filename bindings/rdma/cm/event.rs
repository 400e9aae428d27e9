// SPDX-License-Identifier: GPL-2.0

//! Events of the connection manager.
//!
//! Would be: part of `rust/kernel/rdma/cm.rs`.

use super::scope::Scope;
use crate::{
    bindings,
    net::socket_address::SocketAddress,
    prelude::*,
    rdma::Device, //
};
use core::{
    cell::Cell,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    error::to_result,
    types::NotThreadSafe, //
};

/// An event of an [`Id`](super::Id) (`rdma_cm_event`).
///
/// `status` is negative for an errno, positive for a reason of the CM (`enum ib_cm_rej_reason`).
#[non_exhaustive]
pub enum Event<'a> {
    /// [`Id::resolve_address()`](super::Id::resolve_address) is done; the id has a device now.
    AddressResolved,
    /// [`Id::resolve_address()`](super::Id::resolve_address) failed.
    AddressError {
        /// The cause.
        status: i32,
    },
    /// [`Id::resolve_route()`](super::Id::resolve_route) is done.
    RouteResolved,
    /// [`Id::resolve_route()`](super::Id::resolve_route) failed.
    RouteError {
        /// The cause.
        status: i32,
    },
    /// A listening id got a request for a connection.
    ConnectRequest {
        /// The new connection's id.
        id: NewId<'a>,
        /// The private data that the peer passed to `connect()`, padded with zeros.
        private_data: &'a [u8],
    },
    /// The connection is established.
    Established {
        /// On the active side, the private data that the peer passed to `accept()`, padded with
        /// zeros.
        private_data: &'a [u8],
    },
    /// The peer refused the connection.
    Rejected {
        /// The CM's reason.
        status: i32,
        /// Whether the peer's program refused, rather than its CM.
        is_consumer_defined: bool,
        /// The private data of the peer's program, padded with zeros; empty if its CM refused.
        private_data: &'a [u8],
    },
    /// The connection could not be made.
    ConnectError {
        /// The cause.
        status: i32,
    },
    /// The peer does not respond.
    Unreachable {
        /// The cause.
        status: i32,
    },
    /// The connection has ended.
    Disconnected,
    /// The device is being removed. The removal waits until the id is dropped.
    DeviceRemoval,
    /// The local address changed.
    AddressChange,
    /// The queue pair's number may be used again.
    TimewaitExit,
    /// Another event (`rdma_cm_event_type`).
    Other(u32),
}

impl Event<'_> {
    /// The event in words, for log lines.
    pub fn name(&self) -> &'static str {
        match self {
            Event::AddressResolved => "address resolved",
            Event::AddressError { .. } => "no device for the address",
            Event::RouteResolved => "route resolved",
            Event::RouteError { .. } => "no route to the peer",
            Event::ConnectRequest { .. } => "request for a connection",
            Event::Established { .. } => "established",
            Event::Rejected { .. } => "refused",
            Event::ConnectError { .. } => "could not be established",
            Event::Unreachable { .. } => "peer does not respond",
            Event::Disconnected => "disconnected by the peer",
            Event::DeviceRemoval => "device is going away",
            Event::AddressChange => "local address changed",
            Event::TimewaitExit => "queue pair number is free again",
            Event::Other(_) => "unknown event",
        }
    }
}

/// # Safety
///
/// `event` must be a valid event of `id`, and not a connect request.
pub(super) unsafe fn translate<'a>(
    id: *mut bindings::rdma_cm_id,
    event: &'a bindings::rdma_cm_event,
) -> Event<'a> {
    let status = event.status;
    match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => Event::AddressResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => Event::AddressError { status },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => Event::RouteResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => Event::RouteError { status },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => Event::Established {
            // SAFETY: The event is valid and of a connection.
            private_data: unsafe { connection_data(event) },
        },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => {
            let mut len = 0;
            // SAFETY: The id and the event are valid. The function only reads the event.
            let data = unsafe {
                bindings::rdma_consumer_reject_data(id, ptr::from_ref(event).cast_mut(), &mut len)
            };
            Event::Rejected {
                status,
                is_consumer_defined: !data.is_null(),
                // SAFETY: The data is the event's, with that length.
                private_data: unsafe { bytes(data, len) },
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => Event::ConnectError { status },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => Event::Unreachable { status },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Event::Disconnected,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Event::DeviceRemoval,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => Event::AddressChange,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => Event::TimewaitExit,
        other => Event::Other(other),
    }
}

/// # Safety
///
/// `event` must be a valid event that has connection parameters or none at all (zeros).
pub(super) unsafe fn connection_data(event: &bindings::rdma_cm_event) -> &[u8] {
    // SAFETY: The union holds connection parameters or zeros.
    let conn = unsafe { &event.param.conn };
    // SAFETY: The data is the event's, with that length.
    unsafe { bytes(conn.private_data, conn.private_data_len) }
}

/// # Safety
///
/// `data` must be null or point to `len` bytes that stay unchanged for `'a`.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: By the function's requirement.
    unsafe { slice::from_raw_parts(data.cast(), usize::from(len)) }
}

/// The id of a requested connection, in the event handler of the listener.
///
/// If the handler does not take the id, the CM refuses the connection and destroys the id.
pub struct NewId<'a> {
    pub(super) raw: *mut bindings::rdma_cm_id,
    /// The number of the peer's queue pair in the request; without meaning on iWARP.
    pub(super) queue_pair: u32,
    /// The scope of the id if the handler has taken it; read by `handle()` when the handler has
    /// returned.
    pub(super) taken: &'a Cell<Option<NonNull<Scope>>>,
    pub(super) _current: PhantomData<NotThreadSafe>,
}

impl NewId<'_> {
    /// The device.
    pub fn device(&self) -> &Device {
        // SAFETY: The id is valid during the event; a requested connection has a device.
        unsafe { Device::from_raw((*self.raw).device) }
    }

    /// The port of the device, from 1.
    pub fn port_num(&self) -> u32 {
        // SAFETY: The id is valid during the event.
        unsafe { (*self.raw).port_num }
    }

    /// The local address.
    pub fn local_address(&self) -> SocketAddress {
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        unsafe { SocketAddress::from_raw(&raw const (*self.raw).route.addr.src_addr) }
    }

    /// The peer's address.
    pub fn peer_address(&self) -> SocketAddress {
        // SAFETY: The id is valid during the event, and its handler mutex is held.
        unsafe { SocketAddress::from_raw(&raw const (*self.raw).route.addr.dst_addr) }
    }

    /// Refuses the connection, giving the peer `private_data`. The id must not be taken afterwards.
    pub fn reject(&self, private_data: &[u8]) -> Result {
        // SAFETY: The id is valid during the event and has a device.
        unsafe { reject(self.raw, private_data) }
    }
}

/// # Safety
///
/// The id must be valid and have a device.
pub(super) unsafe fn reject(id: *mut bindings::rdma_cm_id, private_data: &[u8]) -> Result {
    let len = u8::try_from(private_data.len()).map_err(|_| EINVAL)?;
    let reason = bindings::ib_cm_rej_reason_IB_CM_REJ_CONSUMER_DEFINED as u8;
    // SAFETY: By the function's requirement; the data is copied.
    to_result(unsafe { bindings::rdma_reject(id, private_data.as_ptr().cast(), len, reason) })
}
