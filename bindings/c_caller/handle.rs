// SPDX-License-Identifier: GPL-2.0

//! What callers in C have of things of ours: pointers that nobody follows.

use super::argument::{
    Call,
    FromC, //
};
use crate::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        rcu::RcuArc, //
    }, //
};
use core::ptr;
use kernel::{
    new_mutex,
    sync::{
        rcu::Guard,
        Arc,
        ArcBorrow,
        Mutex, //
    }, //
};

/// A number that a caller in C has as a pointer. The caller only hands it back, so any is valid
/// here, and whoever gets it compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// The null pointer.
    pub const NULL: Self = Self(0);

    /// One of `number`.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// What the caller gets.
    #[inline]
    pub fn to_c(self) -> *const c_void {
        // Of the supported machines all have 64 bits.
        ptr::without_provenance(self.0 as usize)
    }
}

impl<'call> FromC<'call> for Handle {
    type Raw = (*const c_void,);

    #[inline]
    unsafe fn from_c((raw,): Self::Raw, _: &'call Call) -> Self {
        Self(raw.addr() as u64)
    }
}

/// Several of them, or null, which has none. The caller does not change them during the call.
pub struct HandleList<'call> {
    from: *const *const c_void,
    count: u32,
    _call: &'call Call,
}

impl HandleList<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self.from.is_null() {
            true => 0,
            false => self.count as usize,
        }
    }

    /// The one at place `index`. `EINVAL` if there is none.
    pub fn read(&self, index: usize) -> Result<Handle> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: It is not null, and the caller promises that many pointers.
        let raw = unsafe { *self.from.add(index) };
        Ok(Handle(raw.addr() as u64))
    }
}

impl<'call> FromC<'call> for HandleList<'call> {
    type Raw = (*const *const c_void, c_uint);

    unsafe fn from_c((from, count): Self::Raw, call: &'call Call) -> Self {
        Self {
            from,
            count,
            _call: call,
        }
    }
}

/// What is at the address `handle`, whatever that is; `None` if it cannot be read. Any context.
///
/// So whoever gave out an address finds there what was written, and from any other address comes
/// something that means nothing.
#[inline]
pub fn peek<const N: usize>(handle: Handle) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: The function takes any address; there is room for as many bytes.
    let error = unsafe {
        bindings::rnbd_helper_peek(bytes.as_mut_ptr().cast(), handle.to_c().cast(), bytes.len())
    };
    (error == 0).then_some(bytes)
}

/// What a caller gets that gets no handle (C: `ERR_PTR`).
pub fn error_pointer(error: Error) -> *const c_void {
    ptr::without_provenance(error.to_errno() as isize as usize)
}

/// The low bits of a handle of [`Handles`], which are 0, as those of a pointer.
const LOW_BITS: u32 = 3;
/// The bits of a place behind these.
const PLACE_BITS: u32 = 16;
/// How often a handle is made before one comes again. The highest bit stays 0, so that no handle
/// is an error pointer.
const SERIALS: u64 = 1 << 40;

/// Things by their handles.
///
/// The handle of a thing that was taken out finds nothing, also when its place is used again, until
/// 2^40 more handles were made.
///
/// # Invariants
///
/// - A handle that is not 0 in a place is that of its thing, and was in no place before.
/// - `free` has the places without a thing, each once, and has room for all.
pub struct Handles<T: Send + Sync + 'static> {
    places: KVVec<Place<T>>,
    serial: Atomic<u64>,
    free: Pin<KBox<Mutex<KVVec<u16>>>>,
}

struct Place<T: Send + Sync + 'static> {
    handle: Atomic<u64>,
    thing: RcuArc<T>,
}

/// The places below `count`. Sleeps.
// Not generic, and not in other modules: lockdep knows a class by the address of its name.
#[inline(never)]
fn free_places(count: u16) -> Result<Pin<KBox<Mutex<KVVec<u16>>>>> {
    let mut free = KVVec::with_capacity(usize::from(count), GFP_KERNEL)?;
    for place in 0..count {
        free.push(place, GFP_KERNEL)?;
    }
    KBox::pin_init(new_mutex!(free, "c_caller::Handles::free"), GFP_KERNEL)
}

impl<T: Send + Sync + 'static> Handles<T> {
    /// With room for `count` things. Sleeps.
    pub fn new(count: u16) -> Result<Arc<Self>> {
        let mut places = KVVec::with_capacity(usize::from(count), GFP_KERNEL)?;
        for _ in 0..count {
            let empty = Place {
                handle: Atomic::new(0),
                thing: RcuArc::empty(),
            };
            places.push(empty, GFP_KERNEL)?;
        }
        // INVARIANT: All places are free.
        let handles = Self {
            places,
            serial: Atomic::new(0),
            free: free_places(count)?,
        };
        Ok(Arc::new(handles, GFP_KERNEL)?)
    }

    /// Puts a thing in. Sleeps. `ENFILE` if there is no place for it.
    pub fn insert(&self, thing: Arc<T>) -> Result<Handle> {
        let number = self.free.lock().pop().ok_or(ENFILE)?;
        let place = self.places.get(usize::from(number)).ok_or(ENFILE)?;
        drop(place.thing.replace(Some(thing)));
        let serial = self.serial.fetch_add(1, ordering::Relaxed).wrapping_add(1) % SERIALS;
        let handle = serial << (PLACE_BITS + LOW_BITS) | (u64::from(number) + 1) << LOW_BITS;
        // INVARIANT: The serial number is a new one.
        place.handle.store(handle, ordering::Release);
        Ok(Handle(handle))
    }

    /// The number of the place that `handle` names, whether there is one or not.
    #[inline]
    pub fn place(handle: Handle) -> u16 {
        ((handle.0 >> LOW_BITS) as u16).wrapping_sub(1)
    }

    /// What `handle` is the handle of. Any context.
    #[inline]
    pub fn get<'guard>(
        &self,
        handle: Handle,
        guard: &'guard Guard,
    ) -> Option<ArcBorrow<'guard, T>> {
        let place = self.places.get(usize::from(Self::place(handle)))?;
        if handle.0 == 0 || place.handle.load(ordering::Acquire) != handle.0 {
            return None;
        }
        // The thing of that handle, or none: the place is not used for another one before a grace
        // period has passed.
        place.thing.load(guard)
    }

    /// What is at the place `number`. Any context.
    #[inline]
    pub fn at<'guard>(&self, number: u16, guard: &'guard Guard) -> Option<&'guard T> {
        self.places.get(usize::from(number))?.thing.load_ref(guard)
    }

    /// Takes a thing out, which is not found any more and is used by no reader; of several callers
    /// one gets it. Sleeps.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let number = Self::place(handle);
        let place = self.places.get(usize::from(number))?;
        if handle.0 == 0 {
            return None;
        }
        place.handle.cmpxchg(handle.0, 0, ordering::Full).ok()?;
        let thing = place.thing.replace(None);
        // INVARIANT: There is no thing, and only this caller has found its handle.
        let _ = self.free.lock().push_within_capacity(number);
        thing
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/c_caller.rs"]
mod tests;
