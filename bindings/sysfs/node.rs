// SPDX-License-Identifier: GPL-2.0

//! The objects behind directories and devices, with the data of their files.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    mem::offset_of,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        Arc, //
    },
    types::Opaque, //
};

use super::registration::Registration;
use crate::{
    bindings,
    kobject::{
        AsKobject,
        Kobject,
        LinkTarget, //
    },
    prelude::*, //
};

/// A C structure that begins with a kobject, which counts the references.
///
/// # Safety
///
/// The structure begins with the kobject. Only `del` removes the object from sysfs, and when it
/// returns, no file of the object is in use.
pub(crate) unsafe trait Object {
    /// Removes the object from sysfs with everything below it. Sleeps.
    ///
    /// # Safety
    ///
    /// Must be called once, for an initialised object. A device must have been added to sysfs.
    unsafe fn del(object: *mut Self);
}

// SAFETY: `kobject_del()` removes all files, and waits for those in use.
unsafe impl Object for bindings::kobject {
    unsafe fn del(object: *mut Self) {
        // SAFETY: By the function's requirement.
        unsafe { bindings::kobject_del(object) };
    }
}

// SAFETY: The first field is the kobject, as is checked below. `device_del()` removes all files and
// waits for those in use, as `kobject_del()` does.
unsafe impl Object for bindings::device {
    unsafe fn del(object: *mut Self) {
        // SAFETY: By the function's requirement.
        unsafe { bindings::device_del(object) };
    }
}

const _: () = assert!(offset_of!(bindings::device, kobj) == 0);

/// An object with the data of its files. It is freed when its last reference is dropped, in Rust or
/// in C.
///
/// # Invariants
///
/// - `object` is initialised, its release function calls [`Node::free`], and it is never moved.
/// - All files of the object are made from attributes for the data of `registration`.
/// - `object` has the same offset in every kind of node, so [`registration`] works for each kind.
#[pin_data]
#[repr(C)]
pub(crate) struct Node<O: Object> {
    #[pin]
    registration: Registration,
    #[pin]
    object: Opaque<O>,
}

const _: () = assert!(
    offset_of!(Node<bindings::device>, object) == offset_of!(Node<bindings::kobject>, object)
);

// SAFETY: The object counts its references, and the registration may be used by any task.
unsafe impl<O: Object> Send for Node<O> {}

// SAFETY: As above.
unsafe impl<O: Object> Sync for Node<O> {}

// SAFETY: A `Node` is made by `Node::new` only, and is freed when the count of its kobject is 0.
unsafe impl<O: Object> AlwaysRefCounted for Node<O> {
    fn inc_ref(&self) {
        self.kobject().inc_ref();
    }

    unsafe fn dec_ref(node: NonNull<Self>) {
        // SAFETY: The caller gives up a reference. Until then the node is valid.
        unsafe { Kobject::dec_ref(node.as_ref().kobject().into()) };
    }
}

impl<O: Object> Node<O> {
    /// Makes a node that is not in sysfs yet, with an object that `init` initialises. Sleeps.
    ///
    /// # Safety
    ///
    /// `init` gets a zeroed object, makes the object's first reference, and sets a release function
    /// that calls [`Self::free`]. The release function must not be generic, so that it is part of
    /// this crate.
    pub(crate) unsafe fn new<T: Send + Sync + 'static>(
        data: Arc<T>,
        init: impl FnOnce(*mut O),
    ) -> Result<ARef<Self>> {
        let node = KBox::pin_init(
            pin_init!(Self {
                registration <- Registration::new(data),
                // The C code requires a zeroed object.
                object <- Opaque::zeroed(),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: The object is initialised below; it has no files yet.
        // SAFETY: The node is never moved, and `free` frees it.
        let node = KBox::into_raw(unsafe { Pin::into_inner_unchecked(node) });
        // SAFETY: The node is valid.
        init(unsafe { (*node).object.get() });
        // SAFETY: The node is valid, and the reference that `init` made is handed over.
        Ok(unsafe { ARef::from_raw(NonNull::new_unchecked(node)) })
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut O {
        self.object.get()
    }

    /// The kobject.
    pub(crate) fn kobject(&self) -> &Kobject {
        // SAFETY: The object begins with the kobject, and has a reference while `self` is borrowed.
        unsafe { Kobject::from_raw(self.as_raw().cast()) }
    }

    /// Removes the node from sysfs, and drops the data. A second caller waits for the first.
    /// Sleeps.
    ///
    /// # Safety
    ///
    /// `T` must be that of [`Self::new`]. A device must have been added to sysfs.
    pub(crate) unsafe fn remove<T: Send + Sync + 'static>(&self) {
        // SAFETY: By the type invariant the object is initialised, and `Registration` calls this
        // once.
        let remove = || unsafe { O::del(self.as_raw()) };
        // SAFETY: By the safety requirement. After `del` no attribute is in use.
        unsafe { self.registration.remove::<T>(remove) };
    }

    /// Drops the data of a node that is not in sysfs.
    ///
    /// # Safety
    ///
    /// `T` must be that of [`Self::new`], and the object must never have been added to sysfs.
    pub(crate) unsafe fn forget<T: Send + Sync + 'static>(&self) {
        // SAFETY: By the safety requirement. There is no attribute.
        unsafe { self.registration.remove::<T>(|| ()) };
    }

    /// Frees the node of an object.
    ///
    /// # Safety
    ///
    /// Only to be called by the release function of the object of a node, when the last reference
    /// is dropped.
    pub(crate) unsafe fn free(object: *mut O) {
        let object: *mut Opaque<O> = object.cast();
        // SAFETY: By the safety requirement.
        let node = unsafe { container_of!(object, Self, object) };
        // SAFETY: The node came from a box, and this was the last reference.
        drop(unsafe { KBox::from_raw(node) });
    }
}

/// The registration of the node of a kobject, for every kind of node.
///
/// # Safety
///
/// `kobject` must be that of a node that stays for `'a`.
pub(super) unsafe fn registration<'a>(kobject: *mut bindings::kobject) -> &'a Registration {
    let object: *mut Opaque<bindings::kobject> = kobject.cast();
    // SAFETY: By the safety requirement. An object begins with its kobject, and by the type
    // invariant of `Node` has the same offset in every kind of node.
    unsafe { &(*container_of!(object, Node<bindings::kobject>, object)).registration }
}

// SAFETY: Only `remove` removes the object from sysfs, and first waits for `while_live`.
unsafe impl<O: Object> AsKobject for Node<O> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        self.registration.while_live(|| run(self.kobject()))
    }
}

// SAFETY: By the type invariant the object is initialised.
unsafe impl<O: Object> LinkTarget for Node<O> {
    fn target(&self) -> ARef<Kobject> {
        self.kobject().into()
    }
}
