// SPDX-License-Identifier: GPL-2.0

//! Functions of callers in C that are called.

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

/// A pointer of a caller in C that only the caller uses.
#[derive(Clone, Copy)]
pub struct Private(*mut c_void);

// SAFETY: The pointer is only handed back.
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

// SAFETY: The pointer is only handed back.
unsafe impl Send for PrivateCell {}

// SAFETY: As above.
unsafe impl Sync for PrivateCell {}

impl PrivateCell {
    /// With the null pointer.
    pub const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Puts another one in.
    pub fn set(&self, private: Private) {
        self.0.store(private.0, ordering::Release);
    }

    /// What was put in last.
    #[inline]
    pub fn get(&self) -> Private {
        Private(self.0.load(ordering::Acquire))
    }
}

type NumberFunction = unsafe extern "C" fn(private: *mut c_void, number: c_int);

/// C: a structure of a private pointer and a function that takes it and an `int` or an `enum`.
#[repr(C)]
pub struct RawNumberCallback {
    private: *mut c_void,
    function: Option<NumberFunction>,
}

/// A function that is told a number.
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
    /// Calls it. Only as [the header allows](super).
    pub fn call(&self, number: c_int) {
        // SAFETY: By the type invariant, as the crate of the header keeps to it.
        unsafe { (self.function)(self.private.0, number) };
    }
}

/// `None` for null, and without a function. The caller hands in null or a valid structure, which is
/// copied.
impl<'call> FromC<'call> for Option<NumberCallback> {
    type Raw = (*const RawNumberCallback,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises that.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: The caller promises that, too.
        Some(NumberCallback {
            function: raw.function?,
            private: Private(raw.private),
        })
    }
}

type ValueFunction<T> = unsafe extern "C" fn(private: *mut c_void, value: *const T);

/// C: a structure of a private pointer and a function that takes it and a pointer to a structure.
/// `T` is as the latter.
#[repr(C)]
pub struct RawValueCallback<T> {
    private: *mut c_void,
    function: Option<ValueFunction<T>>,
}

/// A function that is told a value, which it does not keep.
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
    /// Calls it. Only as [the header allows](super).
    pub fn call(&self, value: &T) {
        // SAFETY: By the type invariant, as the crate of the header keeps to it.
        unsafe { (self.function)(self.private.0, value) };
    }
}

/// `None` for null, and without a function. The caller hands in null or a valid structure, which is
/// copied.
impl<'call, T> FromC<'call> for Option<ValueCallback<T>> {
    type Raw = (*const RawValueCallback<T>,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises that.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: The caller promises that, too.
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

/// The functions of a server: it is told of requests with data, and of events.
///
/// # Invariants
///
/// Both may be called in process context, with the caller's private pointer and with memory that
/// the caller may use, for as long as the header of the caller says.
#[derive(Clone, Copy)]
pub struct ServerCallbacks {
    request: RequestFunction,
    event: EventFunction,
}

impl ServerCallbacks {
    /// Hands a request over; 0, or a negative errno. Sleeps. Only as [the header allows](super).
    #[inline]
    pub fn request(
        &self,
        private: Private,
        operation: Handle,
        data: CallbackMemory,
        message: CallbackMemory,
    ) -> c_int {
        // SAFETY: By the type invariant, as the crate of the header keeps to it; so does it for
        // the memory.
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

    /// Tells of an event of the thing that the caller knows as `handle`; 0, or a negative errno.
    /// Sleeps. Only as [the header allows](super).
    pub fn event(&self, handle: Handle, event: c_uint, private: Private) -> c_int {
        // SAFETY: As above.
        unsafe { (self.event)(handle.to_c(), event, private.0) }
    }
}

/// `None` for null, and without one of the functions. The caller hands in null or a valid
/// structure, which is copied.
impl<'call> FromC<'call> for Option<ServerCallbacks> {
    type Raw = (*const RawServerCallbacks,);

    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        // SAFETY: The caller promises that.
        let raw = unsafe { raw.as_ref() }?;
        // INVARIANT: The caller promises that, too.
        Some(ServerCallbacks {
            request: raw.request?,
            event: raw.event?,
        })
    }
}

/// Memory that a callback gets, at least a page from its beginning: the caller may write behind
/// the bytes that it is told of, up to there.
///
/// # Invariants
///
/// It was that of a chunk. Chunks are only accessed by copying, so the caller may do with it what
/// it likes as long as the chunk is there.
#[derive(Clone, Copy)]
pub struct CallbackMemory {
    address: NonNull<u8>,
    len: usize,
}

impl CallbackMemory {
    /// The first `len` bytes of `chunk`. `None` if it is not one block, or shorter.
    pub fn of_chunk(chunk: &Chunk, len: usize) -> Option<Self> {
        Self::of_data(&chunk.data(len)?, len)
    }

    /// The first `len` bytes of `data`. `None` if its chunk is not one block.
    #[inline]
    pub fn of_data(data: &ChunkData<'_>, len: usize) -> Option<Self> {
        // INVARIANT: It is that of a chunk.
        data.address().map(|address| Self { address, len })
    }
}
