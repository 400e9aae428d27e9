// SPDX-License-Identifier: GPL-2.0

//! Files of sysfs.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    cell::Cell,
    mem::{
        self,
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};
use kernel::{
    prelude::*,
    str::as_char_ptr_in_const_context,
    sync::Arc, //
};

use super::{
    registration::Registration,
    SysfsOutput, //
};
use crate::{
    bindings,
    device::class,
    module::ModuleReference, //
};

type Show<T> = fn(&Arc<T>, &mut SysfsOutput<'_>) -> Result;
type Store<T> = fn(&Arc<T>, &StoreContext<'_>, &[u8]) -> Result;

/// A file in the directory of an object whose data are a `T`.
///
/// Made in a `static` or `const` of the module whose functions it calls:
///
/// ```ignore
/// const ATTRIBUTES: &[Attribute<Path>] = &[
///     Attribute::read_only(c"state", |path, out| Ok(writeln!(out, "{}", path.state())?)),
///     Attribute::read_write(c"remove_path", show_usage, store_remove_path),
/// ];
/// ```
///
/// Both functions may sleep, and may run at the same time on any CPU. What `show` writes is the
/// file's content, with its newline. `store` gets all bytes that were written, and takes them all
/// unless it fails; the error is that of the `write()`.
#[repr(C)]
pub struct Attribute<T> {
    raw: RawAttribute,
    show: Option<Show<T>>,
    store: Option<Store<T>>,
}

/// The beginning of an [`Attribute`], which is the same for all types.
#[repr(C)]
pub(crate) struct RawAttribute {
    /// For the attributes of devices; directories use only the first field, the file itself.
    file: bindings::device_attribute,
    /// The module that `show` and `store` are part of.
    owner: *mut bindings::module,
    show: unsafe fn(*const RawAttribute, NonNull<c_void>, &mut SysfsOutput<'_>) -> Result,
    store: unsafe fn(*const RawAttribute, NonNull<c_void>, &StoreContext<'_>, &[u8]) -> Result,
}

// SAFETY: An attribute is never written; sysfs only reads it.
unsafe impl<T> Sync for Attribute<T> {}

impl<T: Send + Sync + 'static> Attribute<T> {
    /// A file that everybody can read (0444).
    pub const fn read_only(name: &'static CStr, show: Show<T>) -> Self {
        Self::new(name, 0o444, Some(show), None)
    }

    /// A file that everybody can read and the owner can write (0644).
    pub const fn read_write(name: &'static CStr, show: Show<T>, store: Store<T>) -> Self {
        Self::new(name, 0o644, Some(show), Some(store))
    }

    /// A file with a mode of its own.
    ///
    /// Does not compile if the mode allows what there is no function for, or allows everybody to
    /// write.
    #[inline(always)]
    pub const fn new(
        name: &'static CStr,
        mode: u16,
        show: Option<Show<T>>,
        store: Option<Store<T>>,
    ) -> Self {
        assert!(mode & !0o664 == 0);
        assert!(mode & 0o444 == 0 || show.is_some());
        assert!(mode & 0o222 == 0 || store.is_some());

        // SAFETY: All zeroes is valid for a structure of pointers and numbers.
        let mut file: bindings::device_attribute = unsafe { MaybeUninit::zeroed().assume_init() };
        file.attr.name = as_char_ptr_in_const_context(name);
        file.attr.mode = mode;
        file.__bindgen_anon_1 = bindings::device_attribute__bindgen_ty_1 {
            show: Some(class::show_device),
        };
        file.__bindgen_anon_2 = bindings::device_attribute__bindgen_ty_2 {
            store: Some(class::store_device),
        };
        Self {
            raw: RawAttribute {
                file,
                // This is evaluated where the static is, and so is that module.
                owner: &raw mut bindings::__this_module,
                show: Self::show_raw,
                store: Self::store_raw,
            },
            show,
            store,
        }
    }

    /// Calls `show`.
    ///
    /// # Safety
    ///
    /// `raw` must be the beginning of an `Attribute<T>`, `data` from an `Arc<T>` that stays.
    unsafe fn show_raw(
        raw: *const RawAttribute,
        data: NonNull<c_void>,
        out: &mut SysfsOutput<'_>,
    ) -> Result {
        // SAFETY: By the safety requirement.
        let this = unsafe { &*raw.cast::<Self>() };
        // SAFETY: By the safety requirement; the reference is not given up.
        let data = ManuallyDrop::new(unsafe { Arc::from_raw(data.as_ptr().cast::<T>()) });
        this.show.ok_or(EIO)?(&data, out)
    }

    /// Calls `store`.
    ///
    /// # Safety
    ///
    /// `raw` must be the beginning of an `Attribute<T>`, `data` from an `Arc<T>` that stays until
    /// the protection is released.
    unsafe fn store_raw(
        raw: *const RawAttribute,
        data: NonNull<c_void>,
        context: &StoreContext<'_>,
        bytes: &[u8],
    ) -> Result {
        // SAFETY: By the safety requirement.
        let this = unsafe { &*raw.cast::<Self>() };
        // SAFETY: By the safety requirement; the reference is not given up.
        let data = ManuallyDrop::new(unsafe { Arc::from_raw(data.as_ptr().cast::<T>()) });
        // The object may be removed, and its reference dropped, while `store` runs.
        let data = Arc::clone(&data);
        this.store.ok_or(EIO)?(&data, context, bytes)
    }

    /// The C structure of each of `attributes`.
    pub(crate) fn files(
        attributes: &'static [Self],
    ) -> impl Iterator<Item = *const bindings::attribute> {
        attributes
            .iter()
            .map(|attribute| &raw const attribute.raw.file.attr)
    }
}

/// Shows the file `attribute` of an object with `registration`; for the callbacks of sysfs.
///
/// # Safety
///
/// `attribute` must be that of an [`Attribute`] for the data of the object. Called by sysfs, so
/// that the object is not removed meanwhile, with a page.
pub(crate) unsafe fn show(
    registration: &Registration,
    attribute: *const bindings::attribute,
    page: *mut c_char,
) -> isize {
    let raw: *const RawAttribute = attribute.cast();
    let Some(page) = NonNull::new(page) else {
        return EINVAL.to_errno() as isize;
    };
    // SAFETY: By the safety requirement.
    let mut out = unsafe { SysfsOutput::new(page.cast()) };
    // SAFETY: By the safety requirement. The data stay until the object is removed.
    match unsafe { ((*raw).show)(raw, registration.data(), &mut out) } {
        Ok(()) => out.len() as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// Stores to the file `attribute` of an object with `registration`; for the callbacks of sysfs.
///
/// # Safety
///
/// As for [`show`]; `kobject` is that of the object, `bytes` are `count` bytes to read.
pub(crate) unsafe fn store(
    kobject: *mut bindings::kobject,
    registration: &Registration,
    attribute: *const bindings::attribute,
    bytes: *const c_char,
    count: usize,
) -> isize {
    let raw: *const RawAttribute = attribute.cast();
    let context = StoreContext {
        kobject,
        registration,
        attribute,
        released: Cell::new(ptr::null_mut()),
        kept: Cell::new(None),
    };
    // SAFETY: By the safety requirement. The buffer is a copy of what the user wrote.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
    // SAFETY: By the safety requirement. The data stay until the object is removed, which is not
    // before the protection is released.
    let result = unsafe { ((*raw).store)(raw, registration.data(), &context, bytes) };

    let released = context.released.get();
    // SAFETY: As long as the protection is not released the attribute is there; and once it is
    // there is a reference to its module.
    let owner = unsafe { (*raw).owner };
    if !released.is_null() {
        // SAFETY: This is what breaking the protection returned, and is used once. The kobject
        // with the registration may be gone afterwards.
        unsafe { bindings::sysfs_unbreak_active_protection(released) };
        // SAFETY: The reference was taken with the protection released. No code of that module
        // is run any more, this being another one, whose `module::Returned` waits for it.
        unsafe { bindings::module_put(owner) };
    }
    match result {
        Ok(()) => count as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// The call of a `store` function.
pub struct StoreContext<'a> {
    kobject: *mut bindings::kobject,
    registration: &'a Registration,
    attribute: *const bindings::attribute,
    /// What `sysfs_break_active_protection()` returned; null before.
    released: Cell<*mut bindings::kernfs_node>,
    /// A module whose functions the end of the call may run.
    kept: Cell<Option<ModuleReference>>,
}

impl StoreContext<'_> {
    /// Allows the object to be removed while this call is running, so that the call itself can
    /// do it (`sysfs_break_active_protection`).
    ///
    /// Without this, removing the object waits for the call, for ever if the call does it. The
    /// module stays loaded until the call returns. Sleeps.
    ///
    /// `ENODEV` if the object is being removed or the module unloaded elsewhere: the call must
    /// return, they are waiting for it.
    pub fn release_protection(&self) -> Result {
        if !self.released.get().is_null() {
            return Ok(());
        }
        // SAFETY: The attribute is there as long as its protection is not released.
        let owner = unsafe { (*self.attribute.cast::<RawAttribute>()).owner };
        // SAFETY: The module is there as its attribute is.
        if !unsafe { bindings::try_module_get(owner) } {
            return Err(ENODEV);
        }
        // SAFETY: The object is in sysfs while this runs, so that it has a directory.
        let released = self.registration.while_live(|| unsafe {
            bindings::sysfs_break_active_protection(self.kobject, self.attribute)
        });
        match released {
            Some(released) if !released.is_null() => {
                self.released.set(released);
                Ok(())
            }
            _ => {
                // SAFETY: The reference was taken above. The module stays nevertheless: whoever
                // unloads it waits for this call.
                unsafe { bindings::module_put(owner) };
                Err(ENODEV)
            }
        }
    }

    /// Keeps a module loaded until the call has returned and has let go of its object, whose end
    /// may run functions of that module. The last one given is kept. Any context.
    pub fn keep_module(&self, module: ModuleReference) {
        self.kept.set(Some(module));
    }

    /// The name of the file.
    pub fn file_name(&self) -> &'static CStr {
        // SAFETY: The attribute is static, and so is its name; its module is loaded as its
        // function is being called.
        unsafe { CStr::from_char_ptr((*self.attribute).name) }
    }
}

const _: () = assert!(mem::offset_of!(Attribute<()>, raw) == 0);
const _: () = assert!(mem::offset_of!(RawAttribute, file) == 0);
const _: () = assert!(mem::offset_of!(bindings::device_attribute, attr) == 0);
