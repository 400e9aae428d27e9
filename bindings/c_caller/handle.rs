// SPDX-License-Identifier: GPL-2.0

//! Handles: pointers by which callers in C name objects. A handle is never dereferenced.

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

/// A number that a caller in C has as a pointer. The caller only passes it back. Every number is
/// valid here, as a handle is only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// The null pointer.
    pub const NULL: Self = Self(0);

    /// The handle with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The pointer for the caller.
    #[inline]
    pub fn to_c(self) -> *const c_void {
        // All supported machines have 64 bits.
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

/// A list of handles; empty for null. The caller does not change the list during the call.
pub struct HandleList<'call> {
    from: *const *const c_void,
    count: u32,
    _call: &'call Call,
}

impl HandleList<'_> {
    /// The number of handles.
    pub fn count(&self) -> usize {
        match self.from.is_null() {
            true => 0,
            false => self.count as usize,
        }
    }

    /// The handle at `index`. `EINVAL` if there is none.
    pub fn read(&self, index: usize) -> Result<Handle> {
        if index >= self.count() {
            return Err(EINVAL);
        }
        // SAFETY: The pointer is not null, and the caller promises `count` pointers.
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

/// Reads the bytes at the address `handle`, which may be any address; `None` if the address cannot
/// be read. Any context.
///
/// If the caller gave out the address, the bytes are those that it wrote there. For any other
/// address the bytes have no meaning.
#[inline]
pub fn peek<const N: usize>(handle: Handle) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: The function takes any address, and `bytes` has the room.
    let error = unsafe {
        bindings::rnbd_helper_peek(bytes.as_mut_ptr().cast(), handle.to_c().cast(), bytes.len())
    };
    (error == 0).then_some(bytes)
}

/// The pointer for a caller that gets an error instead of a handle (C: `ERR_PTR`).
pub fn error_pointer(error: Error) -> *const c_void {
    ptr::without_provenance(error.to_errno() as isize as usize)
}

/// The number of low bits of a handle of [`Handles`] that are 0, as of an aligned pointer.
const LOW_BITS: u32 = 3;
/// The number of bits of a place, above the low bits.
const PLACE_BITS: u32 = 16;
/// The number of handles that are made before one comes again. The highest bit stays 0, so no
/// handle is an error pointer.
const SERIALS: u64 = 1 << 40;

/// A table that finds objects by their handles.
///
/// The handle of an object that was taken out finds nothing, also when its place is used again,
/// until 2^40 more handles were made.
///
/// # Invariants
///
/// - If the handle in a place is not 0, it is the handle of the object there, and was in no place
///   before.
/// - `free` has the places without an object, each once, and has the capacity for all places.
pub struct Handles<T: Send + Sync + 'static> {
    places: KVVec<Place<T>>,
    serial: Atomic<u64>,
    free: Pin<KBox<Mutex<KVVec<u16>>>>,
}

struct Place<T: Send + Sync + 'static> {
    handle: Atomic<u64>,
    thing: RcuArc<T>,
}

/// A list of the places below `count`. Sleeps.
// Not generic, and not inlined into other modules, as lockdep knows a class by the address of its
// name.
#[inline(never)]
fn free_places(count: u16) -> Result<Pin<KBox<Mutex<KVVec<u16>>>>> {
    let mut free = KVVec::with_capacity(usize::from(count), GFP_KERNEL)?;
    for place in 0..count {
        free.push(place, GFP_KERNEL)?;
    }
    KBox::pin_init(new_mutex!(free, "c_caller::Handles::free"), GFP_KERNEL)
}

impl<T: Send + Sync + 'static> Handles<T> {
    /// Makes a table with room for `count` objects. Sleeps.
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

    /// Puts an object in, and returns its handle. Sleeps. `ENFILE` if there is no free place.
    pub fn insert(&self, thing: Arc<T>) -> Result<Handle> {
        let number = self.free.lock().pop().ok_or(ENFILE)?;
        let place = self.places.get(usize::from(number)).ok_or(ENFILE)?;
        drop(place.thing.replace(Some(thing)));
        let serial = self.serial.fetch_add(1, ordering::Relaxed).wrapping_add(1) % SERIALS;
        let handle = serial << (PLACE_BITS + LOW_BITS) | (u64::from(number) + 1) << LOW_BITS;
        // INVARIANT: The serial number is new, so the handle was in no place before.
        place.handle.store(handle, ordering::Release);
        Ok(Handle(handle))
    }

    /// The number of the place in `handle`. The place need not exist.
    #[inline]
    pub fn place(handle: Handle) -> u16 {
        ((handle.0 >> LOW_BITS) as u16).wrapping_sub(1)
    }

    /// The object with the handle `handle`. Any context.
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
        // This is the object of the handle, or none: the place is not used for another object
        // before a grace period has passed.
        place.thing.load(guard)
    }

    /// The object at the place `number`. Any context.
    #[inline]
    pub fn at<'guard>(&self, number: u16, guard: &'guard Guard) -> Option<&'guard T> {
        self.places.get(usize::from(number))?.thing.load_ref(guard)
    }

    /// Takes an object out. When this returns, the object is not found any more, and no reader uses
    /// it. Only one of several callers gets the object. Sleeps.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let number = Self::place(handle);
        let place = self.places.get(usize::from(number))?;
        if handle.0 == 0 {
            return None;
        }
        place.handle.cmpxchg(handle.0, 0, ordering::Full).ok()?;
        let thing = place.thing.replace(None);
        // INVARIANT: The place has no object. Only this caller has exchanged its handle, so the
        // place is put into `free` once.
        let _ = self.free.lock().push_within_capacity(number);
        thing
    }
}

#[cfg(RNBD_KUNIT)]
#[path = "../kunit/c_caller.rs"]
mod tests;
