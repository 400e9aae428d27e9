// SPDX-License-Identifier: GPL-2.0

//! Notices of devices that come and go.
//!
//! Would be: `rust/kernel/rdma/client.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::Device;
use crate::{
    bindings,
    preempt,
    prelude::*, //
};
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    error::from_result,
    str::CStr,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// Is told of each RDMA device (`ib_client`).
///
/// The RDMA core passes no context to its callbacks, so there is one [`Slot`] for each
/// implementing type, made by [`rdma_client!`](crate::rdma_client):
///
/// ```ignore
/// kernel_ext::rdma_client!(MyClient);
///
/// impl Client for MyClient {
///     const NAME: &'static CStr = c"rtrs_server";
///     // ...
/// }
/// ```
pub trait Client: HasSlot + Send + Sync + Sized + 'static {
    /// The name.
    const NAME: &'static CStr;

    /// A device came, or was there when the client was registered. Process context.
    ///
    /// After an error [`Self::remove()`] is not called for the device.
    fn add(&self, device: &Device) -> Result;

    /// A device goes, or the client is being unregistered. Process context.
    ///
    /// Everything made of the device has to be dropped here or soon after, as removal waits for
    /// it.
    fn remove(&self, device: &Device);
}

/// Says where the [`Slot`] of a [`Client`] is; implemented by
/// [`rdma_client!`](crate::rdma_client).
///
/// # Safety
///
/// `slot()` must return the same slot every time, which no other type has.
pub unsafe trait HasSlot: Sized + 'static {
    /// The place for the one registration.
    fn slot() -> &'static Slot<Self>;
}

/// Makes the [`Slot`](crate::rdma::client::Slot) of a type that is to be a
/// [`Client`](crate::rdma::client::Client).
#[macro_export]
macro_rules! rdma_client {
    ($type:ty) => {
        // SAFETY: The static is in here, so that nobody else has it; the implementation has no
        // parameters, so that it is for one type.
        unsafe impl $crate::rdma::client::HasSlot for $type {
            fn slot() -> &'static $crate::rdma::client::Slot<Self> {
                static SLOT: $crate::rdma::client::Slot<$type> = $crate::rdma::client::Slot::new();
                &SLOT
            }
        }
    };
}

/// The place where the callbacks of a [`Client`] find it.
///
/// # Invariants
///
/// Null, or from `Arc::into_raw`, owned by the [`Registration`].
pub struct Slot<C>(Atomic<*mut C>);

// SAFETY: Only gives out `&C` to callbacks, which come from any thread.
unsafe impl<C: Send + Sync> Sync for Slot<C> {}

impl<C> Slot<C> {
    /// Makes an empty slot, for [`rdma_client!`](crate::rdma_client).
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }
}

/// The registration of a [`Client`]; dropping it calls [`Client::remove()`] for each device and
/// waits. Sleeps; where that is not allowed it stays registered, see [`preempt`](crate::preempt).
///
/// Not to be dropped by [`Client::add()`] or [`Client::remove()`], which it waits for.
///
/// # Invariants
///
/// `client` is registered and owned by this type, and the slot of `C` is set.
#[must_use = "the client is not registered any more otherwise"]
pub struct Registration<C: Client> {
    client: NonNull<bindings::ib_client>,
    _client: PhantomData<Arc<C>>,
}

// SAFETY: May be dropped in any task.
unsafe impl<C: Client> Send for Registration<C> {}

// SAFETY: Has no methods.
unsafe impl<C: Client> Sync for Registration<C> {}

impl<C: Client> Registration<C> {
    /// Registers `client`; [`Client::add()`] is called for each device before this returns.
    ///
    /// `EBUSY` if there is a registration of the type already. Sleeps.
    pub fn new(client: Arc<C>) -> Result<Self> {
        let mut raw = KBox::new(
            bindings::ib_client {
                name: C::NAME.as_char_ptr(),
                add: Some(add::<C>),
                remove: Some(remove::<C>),
                ..Default::default()
            },
            GFP_KERNEL,
        )?;
        let client = Arc::into_raw(client).cast_mut();
        let slot = &C::slot().0;
        if slot
            .cmpxchg(ptr::null_mut(), client, ordering::Full)
            .is_err()
        {
            // SAFETY: Comes from `into_raw()` above.
            drop(unsafe { Arc::from_raw(client) });
            return Err(EBUSY);
        }
        // SAFETY: The structure stays where it is until it is unregistered.
        let error = unsafe { bindings::ib_register_client(&mut *raw) };
        if error != 0 {
            // SAFETY: No callback is running or will run.
            unsafe { Self::clear_slot() };
            return Err(Error::from_errno(error));
        }
        // SAFETY: Comes from a box.
        let client = unsafe { NonNull::new_unchecked(KBox::into_raw(raw)) };
        // INVARIANT: Registered above.
        Ok(Self {
            client,
            _client: PhantomData,
        })
    }

    /// # Safety
    ///
    /// The slot must have been set by the caller, and no callback may run any more.
    unsafe fn clear_slot() {
        let client = C::slot().0.xchg(ptr::null_mut(), ordering::Full);
        // SAFETY: This is the slot that was set, as a type has only one, so that the pointer comes
        // from `into_raw()`; nobody else uses it.
        drop(unsafe { Arc::from_raw(client.cast_const()) });
    }
}

impl<C: Client> Drop for Registration<C> {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            return preempt::leave_behind(&raw mut bindings::__this_module, "an RDMA client");
        }
        // SAFETY: It is registered as long as this exists.
        unsafe { bindings::ib_unregister_client(self.client.as_ptr()) };
        // SAFETY: Set by `new()`; callbacks are finished.
        unsafe { Self::clear_slot() };
        // SAFETY: It comes from a box that this owns; the core does not use it any more.
        drop(unsafe { KBox::from_raw(self.client.as_ptr()) });
    }
}

/// # Safety
///
/// Only to be called by the RDMA core for a registered client of type `C`.
unsafe extern "C" fn add<C: Client>(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: The device stays during the call.
    let device = unsafe { Device::from_raw(device) };
    // SAFETY: What is in a slot stays while the client is registered.
    let client = unsafe { C::slot().0.load(ordering::Acquire).as_ref() };
    from_result(|| client.ok_or(ENODEV)?.add(device).map(|()| 0))
}

/// # Safety
///
/// As [`add()`].
unsafe extern "C" fn remove<C: Client>(device: *mut bindings::ib_device, _data: *mut c_void) {
    // SAFETY: The device stays during the call.
    let device = unsafe { Device::from_raw(device) };
    // SAFETY: As in `add()`.
    if let Some(client) = unsafe { C::slot().0.load(ordering::Acquire).as_ref() } {
        client.remove(device);
    }
}
