// SPDX-License-Identifier: GPL-2.0

//! Requests that take longer than their disk allows. Would extend `kernel::block::mq::request`.

use super::{
    request::{
        op_of,
        Op, //
    },
    set_data::SetData, //
};
use crate::{
    bindings,
    prelude::*,
    time, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    sync::ArcBorrow,
    time::msecs_to_jiffies, //
};

/// A request that has taken longer than its disk allows, during
/// [`Operations::timeout`](super::operations::Operations::timeout).
///
/// This value names the request and does not own it: the request may be completed or given back at
/// any moment, and then its tag may go to another request. Only a successful
/// [`RequestTable::take_expired`](super::request_table::RequestTable::take_expired) rules that out.
///
/// # Invariants
///
/// `raw` is a request. The disk of the request has data `D`, and the tag set of the disk has data
/// `S`. Until the callback returns, the block layer holds two references: one keeps the request
/// from being used again, and one keeps the queue of the disk.
pub struct ExpiredRequest<'a, D, S> {
    raw: NonNull<bindings::request>,
    _callback: PhantomData<(&'a D, &'a S)>,
}

/// Reads a field of the C structure, to which the completion of the request may be writing.
macro_rules! read {
    ($request:expr, $field:ident) => {
        // SAFETY: By the type invariant the request is valid memory. All bit patterns are valid for
        // the types of the fields, and the access is volatile.
        unsafe { (&raw const (*$request.raw.as_ptr()).$field).read_volatile() }
    };
}

impl<D, S> ExpiredRequest<'_, D, S> {
    /// # Safety
    ///
    /// `raw` must meet the type invariant for as long as the result is used, and not be null.
    pub(super) unsafe fn from_raw(raw: *mut bindings::request) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            // SAFETY: By the safety requirement the pointer is not null.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _callback: PhantomData,
        }
    }

    /// The C structure, only for comparison.
    pub(super) fn as_raw(&self) -> *mut bindings::request {
        self.raw.as_ptr()
    }

    /// The present tag of the request, see [`OwnedRequest::tag`]; `u32::MAX` if the request was
    /// given back and so has no tag.
    ///
    /// [`OwnedRequest::tag`]: super::request::OwnedRequest::tag
    pub fn tag(&self) -> u32 {
        read!(self, tag) as u32
    }

    /// The operation of the request.
    pub fn op(&self) -> Op {
        op_of(read!(self, cmd_flags))
    }

    /// The first sector, of 512 bytes; any number if the request has just been completed.
    pub fn sector(&self) -> u64 {
        read!(self, __sector)
    }

    /// The length in bytes; any number if the request has just been completed.
    pub fn bytes(&self) -> u32 {
        read!(self, __data_len)
    }

    /// The time in ms for which the driver has had the request: since the request came, or since
    /// the last callback that did not end it, as its time begins anew then.
    pub fn elapsed_ms(&self) -> u32 {
        let (allowed, deadline) = (read!(self, timeout), read!(self, deadline));
        let began = (deadline as u64).wrapping_sub(u64::from(allowed));
        // SAFETY: Any number may be converted.
        let elapsed = unsafe { bindings::jiffies64_to_msecs(time::now().wrapping_sub(began)) };
        u32::try_from(elapsed).unwrap_or(u32::MAX)
    }

    /// Sets the time that the request has from now on, in ms, if the callback does not end it.
    pub fn begin_anew(&self, ms: u32) {
        let jiffies = c_uint::try_from(msecs_to_jiffies(ms)).unwrap_or(c_uint::MAX);
        // SAFETY: By the type invariant the request is valid memory, and is not used for another
        // request until the callback returns. The block layer lets drivers set this field, and
        // reads it when the time begins.
        unsafe { (&raw mut (*self.raw.as_ptr()).timeout).write_volatile(jiffies) };
    }

    /// The disk's data.
    pub fn disk(&self) -> ArcBorrow<'_, D> {
        let queue = read!(self, q);
        // SAFETY: By the type invariant the queue stays, and the block layer holds a reference to
        // its usage counter. `queuedata` comes from the `Arc` with the data. The `GenDisk` gives
        // that `Arc` up only after the removal of the disk has waited for the usage counter.
        unsafe { ArcBorrow::from_raw((*queue).queuedata.cast::<D>()) }
    }

    /// The data that the disks of the tag set share.
    pub fn set(&self) -> &S {
        let queue = read!(self, q);
        // SAFETY: By the type invariant the queue stays, and so does its tag set, whose data is an
        // `S`.
        unsafe { &SetData::of((*queue).tag_set).data }
    }
}
