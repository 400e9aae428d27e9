// SPDX-License-Identifier: GPL-2.0

//! Callbacks: functions of callers in C.

use super::{
    argument::{
        Call,
        FromC, //
    },
    handle::Handle, //
};
use crate::{
    prelude::*,
    rdma::chunk::single::{
        Chunk,
        ChunkData, //
    },
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use core::ptr::{
    self,
    NonNull, //
};

/// A private pointer of a caller in C. Only the caller uses it.
#[derive(Clone, Copy)]
pub struct Private(*mut c_void);

// SAFETY: The pointer is only passed back to the caller.
unsafe impl Send for Private {}

// SAFETY: As above.
unsafe impl Sync for Private {}

impl Private {
    /// The null pointer.
    pub const NULL: Self = Self(ptr::null_mut());
}

impl<'call> FromC<'call> for Private {
    type Raw = (*mut c_void,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        Self(raw)
    }
}

/// A [`Private`] that can be changed. Any context.
pub struct PrivateCell(Atomic<*mut c_void>);

// SAFETY: The pointer is only passed back to the caller.
unsafe impl Send for PrivateCell {}

// SAFETY: As above.
unsafe impl Sync for PrivateCell {}

impl PrivateCell {
    /// Makes a cell with the null pointer.
    pub const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Stores another pointer.
    pub fn set(&self, private: Private) {
        self.0.store(private.0, ordering::Release);
    }

    /// The pointer that was stored last.
    #[inline]
    pub fn get(&self) -> Private {
        Private(self.0.load(ordering::Acquire))
    }
}

type NumberFunction = unsafe extern "C" fn(private: *mut c_void, number: c_int);

/// C: a structure of a private pointer and a function, which takes that pointer and an `int` or an
/// `enum`.
#[repr(C)]
pub struct RawNumberCallback {
    private: *mut c_void,
    function: Option<NumberFunction>,
}

/// A callback that takes a number.
///
/// # Invariants
///
/// `function` may be called with `private` and any number, in the contexts and for as long as the
/// header of the caller says.
pub struct NumberCallback {
    function: NumberFunction,
    private: Private,
}

impl NumberCallback {
    /// Calls the callback. Only to be used as [the header allows](super).
    pub fn call(&self, number: c_int) {
        // SAFETY: By the type invariant the function may be called, as the crate of the header
        // keeps the header's promises.
        unsafe { (self.function)(self.private.0, number) };
    }
}

/// `None` for null, or without a function. The caller passes null or a valid structure, which is
/// copied.
impl<'call> FromC<'call> for Option<NumberCallback> {
    type Raw = (*const RawNumberCallback,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises null or a valid structure.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: By the header the caller promises that the function may be called.
        Some(NumberCallback {
            function: raw.function?,
            private: Private(raw.private),
        })
    }
}

type ValueFunction<T> = unsafe extern "C" fn(private: *mut c_void, value: *const T);

/// C: a structure of a private pointer and a function, which takes that pointer and a pointer to a
/// structure. `T` has the layout of the second structure.
#[repr(C)]
pub struct RawValueCallback<T> {
    private: *mut c_void,
    function: Option<ValueFunction<T>>,
}

/// A callback that takes a pointer to a value, which it does not keep.
///
/// # Invariants
///
/// `function` may be called with `private` and any value, in the contexts and for as long as the
/// header of the caller says.
pub struct ValueCallback<T> {
    function: ValueFunction<T>,
    private: Private,
}

impl<T> ValueCallback<T> {
    /// Calls the callback. Only to be used as [the header allows](super).
    pub fn call(&self, value: &T) {
        // SAFETY: By the type invariant the function may be called, as the crate of the header
        // keeps the header's promises.
        unsafe { (self.function)(self.private.0, value) };
    }
}

/// `None` for null, or without a function. The caller passes null or a valid structure, which is
/// copied.
impl<'call, T> FromC<'call> for Option<ValueCallback<T>> {
    type Raw = (*const RawValueCallback<T>,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises null or a valid structure.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: By the header the caller promises that the function may be called.
        Some(ValueCallback {
            function: raw.function?,
            private: Private(raw.private),
        })
    }
}

type RequestFunction = unsafe extern "C" fn(
    private: *mut c_void,
    operation: *const c_void,
    data: *mut c_void,
    len: usize,
    message: *const c_void,
    message_len: usize,
) -> c_int;

type EventFunction =
    unsafe extern "C" fn(handle: *const c_void, event: c_uint, private: *mut c_void) -> c_int;

/// C: a structure of two functions, for requests and for events.
#[repr(C)]
pub struct RawServerCallbacks {
    request: Option<RequestFunction>,
    event: Option<EventFunction>,
}

/// The callbacks of a server, for requests with data and for events.
///
/// # Invariants
///
/// Both functions may be called in process context, with the caller's private pointer and with
/// memory that the caller may use, for as long as the header of the caller says.
#[derive(Clone, Copy)]
pub struct ServerCallbacks {
    request: RequestFunction,
    event: EventFunction,
}

impl ServerCallbacks {
    /// Hands a request to the server. Returns 0 or a negative errno. Sleeps. Only to be used as
    /// [the header allows](super).
    #[inline]
    pub fn request(
        &self,
        private: Private,
        operation: Handle,
        data: CallbackMemory,
        message: CallbackMemory,
    ) -> c_int {
        // SAFETY: By the type invariant the function may be called with this memory, as the crate
        // of the header keeps the header's promises.
        unsafe {
            (self.request)(
                private.0,
                operation.to_c(),
                data.address.as_ptr().cast(),
                data.len,
                message.address.as_ptr().cast(),
                message.len,
            )
        }
    }

    /// Tells the server of an event of the object that the caller knows as `handle`. Returns 0 or a
    /// negative errno. Sleeps. Only to be used as [the header allows](super).
    pub fn event(&self, handle: Handle, event: c_uint, private: Private) -> c_int {
        // SAFETY: As above.
        unsafe { (self.event)(handle.to_c(), event, private.0) }
    }
}

/// `None` for null, or if a function is missing. The caller passes null or a valid structure, which
/// is copied.
impl<'call> FromC<'call> for Option<ServerCallbacks> {
    type Raw = (*const RawServerCallbacks,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises null or a valid structure.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: By the header the caller promises that the function may be called.
        Some(ServerCallbacks {
            request: raw.request?,
            event: raw.event?,
        })
    }
}

/// Memory that a callback gets, of at least a page. The caller may also write behind the `len`
/// bytes of data, up to the end of the first page.
///
/// # Invariants
///
/// The memory is that of a chunk. Chunks are only accessed by copying, so the caller may access the
/// memory in any way as long as the chunk exists.
#[derive(Clone, Copy)]
pub struct CallbackMemory {
    address: NonNull<u8>,
    len: usize,
}

impl CallbackMemory {
    /// The first `len` bytes of `chunk`. `None` if the chunk is not one block, or is shorter.
    pub fn of_chunk(chunk: &Chunk, len: usize) -> Option<Self> {
        Self::of_data(&chunk.data(len)?, len)
    }

    /// The memory of the chunk of `data`, with `len` bytes of data. `None` if the chunk is not one
    /// block.
    #[inline]
    pub fn of_data(data: &ChunkData<'_>, len: usize) -> Option<Self> {
        // INVARIANT: The memory is that of a chunk.
        data.address().map(|address| Self { address, len })
    }
}
