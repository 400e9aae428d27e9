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
    error::to_result,
    str::as_char_ptr_in_const_context,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::{
    node,
    output::SysfsOutput,
    registration::Registration, //
};
use crate::{
    bindings,
    kobject::Kobject,
    module::ModuleReference,
    prelude::*, //
};

type Show<T> = fn(&Arc<T>, &mut SysfsOutput<'_>) -> Result;
type Store<T> = fn(&Arc<T>, &StoreContext<'_>, &[u8]) -> Result;

/// A file in the directory of an object with data of type `T`.
///
/// Must be made in a `static` or `const` of the module with the functions `show` and `store`:
///
/// ```ignore
/// const ATTRIBUTES: &[Attribute<Path>] = &[
///     Attribute::read_only(c"state", |path, out| Ok(writeln!(out, "{}", path.state())?)),
///     Attribute::read_write(c"remove_path", show_usage, store_remove_path),
/// ];
/// ```
///
/// Both functions may sleep, and may run concurrently on any CPU. `show` writes the content of the
/// file, including its newline. `store` gets all bytes that the user wrote, and takes all of them,
/// or fails; its error becomes that of the `write()`.
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
    /// The module with `show` and `store`.
    owner: *mut bindings::module,
    show: unsafe fn(*const RawAttribute, NonNull<c_void>, &mut SysfsOutput<'_>) -> Result,
    store: unsafe fn(*const RawAttribute, NonNull<c_void>, &StoreContext<'_>, &[u8]) -> Result,
}

// SAFETY: An attribute is never changed; sysfs only reads it.
unsafe impl<T> Sync for Attribute<T> {}

impl<T: Send + Sync + 'static> Attribute<T> {
    /// A file that all users can read (0444).
    pub const fn read_only(name: &'static CStr, show: Show<T>) -> Self {
        Self::new(name, 0o444, Some(show), None)
    }

    /// A file that all users can read and the owner can write (0644).
    pub const fn read_write(name: &'static CStr, show: Show<T>, store: Store<T>) -> Self {
        Self::new(name, 0o644, Some(show), Some(store))
    }

    /// A file with the given mode.
    ///
    /// Does not compile if the mode allows an access for which there is no function, or allows all
    /// users to write.
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
            show: Some(show_device),
        };
        file.__bindgen_anon_2 = bindings::device_attribute__bindgen_ty_2 {
            store: Some(store_device),
        };
        Self {
            raw: RawAttribute {
                file,
                // This is evaluated in the module of the static, so it is the address of that
                // module.
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
        // SAFETY: By the safety requirement. The reference is not given up.
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
        // SAFETY: By the safety requirement. The reference is not given up.
        let data = ManuallyDrop::new(unsafe { Arc::from_raw(data.as_ptr().cast::<T>()) });
        // The object may be removed, and its reference dropped, while `store` runs.
        let data = Arc::clone(&data);
        this.store.ok_or(EIO)?(&data, context, bytes)
    }

    /// Makes the files `attributes` in the directory of an object. Sleeps.
    ///
    /// # Safety
    ///
    /// The kobject is that of a [`Node`](node::Node) whose data are a `T`, and is in sysfs. The
    /// module of the attributes removes the node before the module is unloaded.
    pub(crate) unsafe fn add_all(attributes: &'static [Self], to: &Kobject) -> Result {
        for attribute in attributes {
            let file = &raw const attribute.raw.file.attr;
            // SAFETY: By the safety requirement; the attribute is static.
            to_result(unsafe { bindings::sysfs_create_file_ns(to.as_raw(), file, ptr::null()) })?;
        }
        Ok(())
    }
}

/// `sysfs_ops::show`.
///
/// # Safety
///
/// Called by sysfs for a file of a [`Node`](node::Node), with a page. The node is not removed
/// meanwhile.
pub(super) unsafe extern "C" fn show(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    page: *mut c_char,
) -> isize {
    let raw: *const RawAttribute = attribute.cast();
    let Some(page) = NonNull::new(page) else {
        return EINVAL.to_errno() as isize;
    };
    // SAFETY: By the safety requirement.
    let mut out = unsafe { SysfsOutput::new(page.cast(), SysfsOutput::PAGE) };
    // SAFETY: The node stays as long as the file is in use.
    let data = unsafe { node::registration(kobject) }.data();
    // SAFETY: The files of a node are the beginnings of attributes for its data, which stay until
    // it is removed.
    match unsafe { ((*raw).show)(raw, data, &mut out) } {
        Ok(()) => out.len() as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// `device_attribute::show`.
///
/// # Safety
///
/// As for [`show`].
unsafe extern "C" fn show_device(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: A device begins with its kobject, and a device attribute with its `attribute`.
    unsafe { show(device.cast(), attribute.cast(), page) }
}

/// `device_attribute::store`.
///
/// # Safety
///
/// As for [`store`].
unsafe extern "C" fn store_device(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    bytes: *const c_char,
    count: usize,
) -> isize {
    // SAFETY: A device begins with its kobject, and a device attribute with its `attribute`.
    unsafe { store(device.cast(), attribute.cast(), bytes, count) }
}

/// `sysfs_ops::store`.
///
/// # Safety
///
/// As for [`show`], and `bytes` is valid for reads of `count` bytes.
pub(super) unsafe extern "C" fn store(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    bytes: *const c_char,
    count: usize,
) -> isize {
    let raw: *const RawAttribute = attribute.cast();
    // The call may release the protection; then the file's own reference to the node may be
    // dropped.
    // SAFETY: The kobject stays as long as the file is in use.
    let _node: ARef<Kobject> = unsafe { Kobject::from_raw(kobject) }.into();
    // SAFETY: The reference above keeps the node.
    let registration = unsafe { node::registration(kobject) };
    let context = StoreContext {
        kobject,
        registration,
        attribute,
        released: Cell::new(ptr::null_mut()),
        kept: Cell::new(None),
    };
    // SAFETY: By the safety requirement. The buffer is a copy of the user's bytes.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
    // SAFETY: The files of a node are the beginnings of attributes for its data, which stay until
    // the node is removed. The node is not removed before the protection is released.
    let result = unsafe { ((*raw).store)(raw, registration.data(), &context, bytes) };

    let released = context.released.get();
    // SAFETY: As long as the protection is not released the attribute exists. After that there is a
    // reference to its module.
    let owner = unsafe { (*raw).owner };
    if !released.is_null() {
        // SAFETY: Breaking the protection has returned this pointer, which is used once.
        unsafe { bindings::sysfs_unbreak_active_protection(released) };
        // SAFETY: The reference was taken when the protection was released. No code of that module
        // runs in this call any more: this function is part of another module, whose
        // `module::Returned` waits for it.
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
    /// The result of `sysfs_break_active_protection()`; null before that call.
    released: Cell<*mut bindings::kernfs_node>,
    /// A module with functions that may run at the end of the call.
    kept: Cell<Option<ModuleReference>>,
}

impl StoreContext<'_> {
    /// Allows the object to be removed while this call is running, so that the call itself can
    /// remove it (`sysfs_break_active_protection`).
    ///
    /// Otherwise removing the object waits for the call; if the call itself removes the object, for
    /// ever. The module stays loaded until the call returns. Sleeps.
    ///
    /// `ENODEV` if another task is removing the object or unloading the module. Then the call must
    /// return, as that task waits for it.
    pub fn release_protection(&self) -> Result {
        if !self.released.get().is_null() {
            return Ok(());
        }
        // SAFETY: The attribute exists as long as its protection is not released.
        let owner = unsafe { (*self.attribute.cast::<RawAttribute>()).owner };
        // SAFETY: The module is loaded, as its attribute exists.
        if !unsafe { bindings::try_module_get(owner) } {
            return Err(ENODEV);
        }
        // SAFETY: The object is in sysfs while this closure runs, so it has a directory.
        let released = self.registration.while_live(|| unsafe {
            bindings::sysfs_break_active_protection(self.kobject, self.attribute)
        });
        match released {
            Some(released) if !released.is_null() => {
                self.released.set(released);
                Ok(())
            }
            _ => {
                // SAFETY: The reference was taken above. The module stays without it, as unloading
                // waits for this call.
                unsafe { bindings::module_put(owner) };
                Err(ENODEV)
            }
        }
    }

    /// Keeps a module loaded until the call has returned and has dropped its reference to the
    /// object. If that is the last one, functions of the module may run. Only the last module that
    /// is passed is kept. Any context.
    pub fn keep_module(&self, module: ModuleReference) {
        self.kept.set(Some(module));
    }

    /// The name of the file.
    pub fn file_name(&self) -> &'static CStr {
        // SAFETY: The attribute is static, and so is its name. Its module is loaded, as its
        // function is being called.
        unsafe { CStr::from_char_ptr((*self.attribute).name) }
    }
}

const _: () = assert!(mem::offset_of!(Attribute<()>, raw) == 0);
const _: () = assert!(mem::offset_of!(RawAttribute, file) == 0);
const _: () = assert!(mem::offset_of!(bindings::device_attribute, attr) == 0);
