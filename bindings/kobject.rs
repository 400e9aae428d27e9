// SPDX-License-Identifier: GPL-2.0

//! Kernel objects: each directory of sysfs belongs to one.
//!
//! Would be: `rust/kernel/kobject.rs`, which the kernel crate does not have.
//!
//! C header: [`include/linux/kobject.h`](srctree/include/linux/kobject.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    str::CString,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque,
    ModuleMetadata, //
};

use crate::{
    bindings,
    compat,
    prelude::*, //
};

/// A `struct kobject` that is initialised and counts its references.
#[repr(transparent)]
pub struct Kobject(Opaque<bindings::kobject>);

// SAFETY: Kobjects may be used and released by any task that may sleep.
unsafe impl Send for Kobject {}

// SAFETY: As above. The functions that are used here synchronise among themselves.
unsafe impl Sync for Kobject {}

// SAFETY: A kobject is freed only when its count is zero.
unsafe impl AlwaysRefCounted for Kobject {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid, so there is a reference.
        unsafe { bindings::kobject_get(self.as_raw()) };
    }

    unsafe fn dec_ref(object: NonNull<Self>) {
        // SAFETY: The caller gives up a reference.
        unsafe { bindings::kobject_put(object.as_ptr().cast()) };
    }
}

impl Kobject {
    /// The kobject behind a pointer.
    ///
    /// # Safety
    ///
    /// `raw` must be an initialised kobject with a reference that lasts for `'a`.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::kobject) -> &'a Self {
        // SAFETY: By the safety requirement, and the type is transparent.
        unsafe { &*raw.cast() }
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::kobject {
        self.0.get()
    }

    /// Whether the object's directory has an entry called `name`. Sleeps.
    ///
    /// # Safety
    ///
    /// Only under [`AsKobject::with_kobject`]: the object must not be removed from sysfs meanwhile.
    pub(crate) unsafe fn contains(&self, name: &CStr) -> bool {
        // SAFETY: The kobject is valid.
        let directory = unsafe { (*self.as_raw()).sd };
        if directory.is_null() {
            return false;
        }
        // SAFETY: By the function's requirement the object keeps its directory.
        let found = unsafe {
            bindings::kernfs_find_and_get_ns(directory, name.as_char_ptr(), core::ptr::null())
        };
        // SAFETY: The pointer is null, which is allowed, or comes with a reference that ends here.
        unsafe { bindings::kernfs_put(found) };
        !found.is_null()
    }
}

/// An object that has a directory in sysfs.
///
/// # Safety
///
/// While the function given to [`AsKobject::with_kobject`] runs, the kobject must be valid and in
/// sysfs, and must not be removed from it.
pub unsafe trait AsKobject {
    /// Calls `run` with the kobject; `None` if the object has been removed from sysfs.
    ///
    /// Sleeps. `run` must not remove the object.
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R>;
}

/// The directory of the module `M` (`/sys/module/<module>/`).
///
/// Objects in the directory must be removed before the module is unloaded.
pub struct ModuleDirectory<M>(PhantomData<M>);

impl<M: ModuleMetadata> ModuleDirectory<M> {
    /// The directory of `M`.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

// SAFETY: A module is in sysfs from before its `init` runs until its `exit` has run. Code that can
// name `M` is part of that module or of a module that depends on it, and runs at no other time.
unsafe impl<M: ModuleMetadata> AsKobject for ModuleDirectory<M> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        let module = NonNull::new(compat::this_module::<M>())?;
        // SAFETY: The module is loaded, see above, and so is its kobject.
        let kobject = unsafe { Kobject::from_raw(&raw mut (*module.as_ptr()).mkobj.kobj) };
        Some(run(kobject))
    }
}

/// An object to which a link in sysfs can lead. The object may be removed from sysfs at any time.
///
/// # Safety
///
/// The kobject must be initialised.
pub unsafe trait LinkTarget {
    /// A reference to the kobject. Any context.
    fn target(&self) -> ARef<Kobject>;
}

/// Events of which user space can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uevent {
    /// The object was added (`KOBJ_ADD`).
    Add,
    /// The object is being removed (`KOBJ_REMOVE`).
    Remove,
    /// The object has changed (`KOBJ_CHANGE`).
    Change,
    /// The object can be used (`KOBJ_ONLINE`).
    Online,
    /// The object cannot be used (`KOBJ_OFFLINE`).
    Offline,
}

/// Tells user space of an event of `object` (`kobject_uevent`).
///
/// Sleeps. `ENODEV` if the object was removed. Other errors are those of the delivery.
pub fn uevent(object: &impl AsKobject, event: Uevent) -> Result {
    let action = match event {
        Uevent::Add => bindings::kobject_action_KOBJ_ADD,
        Uevent::Remove => bindings::kobject_action_KOBJ_REMOVE,
        Uevent::Change => bindings::kobject_action_KOBJ_CHANGE,
        Uevent::Online => bindings::kobject_action_KOBJ_ONLINE,
        Uevent::Offline => bindings::kobject_action_KOBJ_OFFLINE,
    };
    let sent = object.with_kobject(|kobject| {
        // SAFETY: The kobject is valid, and is not removed from sysfs meanwhile.
        kernel::error::to_result(unsafe { bindings::kobject_uevent(kobject.as_raw(), action) })
    });
    sent.unwrap_or(Err(ENODEV))
}

/// The name in sysfs of an object called `name`: each slash becomes a `!`.
///
/// `EINVAL` for an empty name, `.` and `..`, `ENAMETOOLONG` for more than `NAME_MAX` bytes.
pub(crate) fn sysfs_name(name: &CStr) -> Result<CString> {
    match name.to_bytes() {
        b"" | b"." | b".." => return Err(EINVAL),
        bytes if bytes.len() > bindings::NAME_MAX as usize => return Err(ENAMETOOLONG),
        _ => {}
    }
    let mut copy = KVec::new();
    copy.extend_from_slice(name.to_bytes_with_nul(), GFP_KERNEL)?;
    for byte in copy.iter_mut().filter(|byte| **byte == b'/') {
        *byte = b'!';
    }
    Ok(CStr::from_bytes_with_nul(&copy)
        .map_err(|_| EINVAL)?
        .try_into()?)
}
