// SPDX-License-Identifier: GPL-2.0

//! Clients: users that are told when RDMA devices come and go.
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

/// A user that is told of each RDMA device (`ib_client`).
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

    /// Called for a device that was added, or existed when the client was registered. Process
    /// context.
    ///
    /// After an error [`Self::remove()`] is not called for the device.
    fn add(&self, device: &Device) -> Result;

    /// Called for a device that is being removed, and for each device when the client is being
    /// unregistered. Process context.
    ///
    /// Every object that was made from the device must be dropped here or soon after, as the
    /// removal of the device waits for that.
    fn remove(&self, device: &Device);
}

/// Gives the [`Slot`] of a [`Client`]; implemented by [`rdma_client!`](crate::rdma_client).
///
/// # Safety
///
/// `slot()` must return the same slot every time, and no other type may have that slot.
pub unsafe trait HasSlot: Sized + 'static {
    /// The slot for the type's only registration.
    fn slot() -> &'static Slot<Self>;
}

/// Makes the [`Slot`](crate::rdma::client::Slot) of a type that is to be a
/// [`Client`](crate::rdma::client::Client).
#[macro_export]
macro_rules! rdma_client {
    ($type:ty) => {
        // SAFETY: The static is local to this function, so no other type has it. The implementation
        // has no parameters, so it is for one type.
        unsafe impl $crate::rdma::client::HasSlot for $type {
            fn slot() -> &'static $crate::rdma::client::Slot<Self> {
                static SLOT: $crate::rdma::client::Slot<$type> = $crate::rdma::client::Slot::new();
                &SLOT
            }
        }
    };
}

/// The place in which the callbacks of a [`Client`] find the client.
///
/// # Invariants
///
/// The pointer is null, or comes from `Arc::into_raw` and is owned by the [`Registration`].
pub struct Slot<C>(Atomic<*mut C>);

// SAFETY: A slot only gives out `&C`, to callbacks in any task.
unsafe impl<C: Send + Sync> Sync for Slot<C> {}

impl<C> Slot<C> {
    /// Makes an empty slot, for [`rdma_client!`](crate::rdma_client).
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }
}

/// The registration of a [`Client`]. Dropping it calls [`Client::remove()`] for each device, and
/// waits for callbacks that are running; this sleeps. Where sleeping is not allowed the client
/// stays registered, see [`preempt`](crate::preempt).
///
/// [`Client::add()`] and [`Client::remove()`] must not drop the registration: the drop waits for
/// them.
///
/// # Invariants
///
/// `client` is registered and owned by this type, and the slot of `C` is set.
#[must_use = "the client is not registered any more otherwise"]
pub struct Registration<C: Client> {
    client: NonNull<bindings::ib_client>,
    _client: PhantomData<Arc<C>>,
}

// SAFETY: A registration may be dropped in any task.
unsafe impl<C: Client> Send for Registration<C> {}

// SAFETY: A registration has no methods that take `&self`.
unsafe impl<C: Client> Sync for Registration<C> {}

impl<C: Client> Registration<C> {
    /// Registers `client`. [`Client::add()`] is called for each device before this returns.
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
            // SAFETY: The pointer comes from `into_raw()` above.
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
        // SAFETY: The pointer comes from a box.
        let client = unsafe { NonNull::new_unchecked(KBox::into_raw(raw)) };
        // INVARIANT: The client was registered above, and the slot was set.
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
        // SAFETY: A type has only one slot, so the pointer is the one that the caller has set, and
        // comes from `into_raw()`. No callback uses it any more.
        drop(unsafe { Arc::from_raw(client.cast_const()) });
    }
}

impl<C: Client> Drop for Registration<C> {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            return preempt::leave_behind(&raw mut bindings::__this_module, "an RDMA client");
        }
        // SAFETY: By the type invariant the client is registered.
        unsafe { bindings::ib_unregister_client(self.client.as_ptr()) };
        // SAFETY: `new()` has set the slot, and unregistering has waited for the callbacks.
        unsafe { Self::clear_slot() };
        // SAFETY: The structure comes from a box that this value owns, and the core does not use it
        // any more.
        drop(unsafe { KBox::from_raw(self.client.as_ptr()) });
    }
}

/// # Safety
///
/// Only to be called by the RDMA core for a registered client of type `C`.
unsafe extern "C" fn add<C: Client>(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: The device stays during the call.
    let device = unsafe { Device::from_raw(device) };
    // SAFETY: The client in the slot stays while it is registered.
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
