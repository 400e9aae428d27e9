// SPDX-License-Identifier: GPL-2.0

//! Device classes and their devices (`/sys/class/<class>/<device>/`).
//!
//! Would extend: `rust/kernel/device.rs`.
//!
//! C header: [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    str::CString,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    }, //
};

use crate::{
    bindings,
    kobject::{
        sysfs_name,
        uevent,
        AsKobject,
        Kobject,
        LinkTarget,
        Uevent, //
    },
    prelude::*,
    sysfs::{
        node::Node,
        Attribute,
        BinaryAttribute, //
    }, //
};

/// A device class. The class is destroyed, in process context, when all its handles and devices are
/// dropped.
#[derive(Clone)]
pub struct Class {
    inner: Arc<ClassInner>,
}

/// # Invariants
///
/// `raw` came from `class_create()`.
#[pin_data(PinnedDrop)]
struct ClassInner {
    raw: NonNull<bindings::class>,
    /// The names of all devices, including those that are not yet or not any more in sysfs.
    #[pin]
    names: Mutex<KVec<CString>>,
}

// SAFETY: The C functions on a class may be called from any task that may sleep.
unsafe impl Send for ClassInner {}

// SAFETY: As above, also concurrently.
unsafe impl Sync for ClassInner {}

impl Class {
    /// Makes a class. Sleeps. `EEXIST` if there is a class of that name.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: The name is a static of the module that owns the class, so it is valid until the
        // class is destroyed.
        let raw = from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?;
        let destroy = kernel::types::ScopeGuard::new(|| {
            // SAFETY: The class was just made.
            unsafe { bindings::class_destroy(raw) }
        });
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: `raw` came from `class_create()`.
        let inner = Arc::pin_init(
            pin_init!(ClassInner {
                raw,
                names <- new_mutex!(KVec::new(), "ClassInner::names"),
            }),
            GFP_KERNEL,
        )?;
        destroy.dismiss();
        Ok(Self { inner })
    }

    /// Makes a device of this class called `name`, with the files `attributes` about `data`.
    ///
    /// Sleeps. [`ClassDevice::announce`] tells user space of the device; it should be called when
    /// all files and directories of the device exist. A slash in the name becomes a `!`. `EEXIST`
    /// if there is a device of that name.
    pub fn device<T: Send + Sync + 'static>(
        &self,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<ClassDevice<T>> {
        ClassDevice::new(self, name, attributes, data)
    }
}

#[pinned_drop]
impl PinnedDrop for ClassInner {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` came from `class_create()`. All devices are gone, as they hold the class.
        unsafe { bindings::class_destroy(self.raw.as_ptr()) };
    }
}

/// The name of a device, taken in its class.
struct Name {
    class: Class,
    name: CString,
}

impl Name {
    /// Takes a name. `EEXIST` if the name is taken; without this check the kernel would print a
    /// backtrace.
    fn take(class: &Class, name: CString) -> Result<Self> {
        let mut names = class.inner.names.lock();
        if names
            .iter()
            .any(|other| other.to_bytes() == name.to_bytes())
        {
            return Err(EEXIST);
        }
        names.push(CString::try_from(&*name)?, GFP_KERNEL)?;
        drop(names);
        Ok(Self {
            class: class.clone(),
            name,
        })
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut names = self.class.inner.names.lock();
        names.retain(|other| other.to_bytes() != self.name.to_bytes());
    }
}

/// A device of a class, without a driver or a bus, for files about a `T`.
///
/// When the device was removed or dropped, no function of its attributes runs any more, and its
/// reference to the `T` is dropped, as for a [`Directory`](crate::sysfs::Directory).
///
/// # Examples
///
/// ```ignore
/// let class = Class::new(c"rnbd-client")?;
/// let ctl = class.device(c"ctl", ATTRIBUTES, client.clone())?;
/// let devices = Directory::empty(&ctl, c"devices")?;
/// ctl.announce();
/// ```
pub struct ClassDevice<T: Send + Sync + 'static> {
    // Declared before the name, so the device is freed before the name is free again.
    node: ARef<Node<bindings::device>>,
    _name: Name,
    _data: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + 'static> ClassDevice<T> {
    fn new(
        class: &Class,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        let name = Name::take(class, sysfs_name(name)?)?;
        let init = |device| {
            // SAFETY: The device is zeroed memory that no other code knows.
            unsafe {
                bindings::device_initialize(device);
                (*device).class = class.inner.raw.as_ptr();
                (*device).release = Some(release);
            }
        };
        // SAFETY: `init` makes the first reference and sets the release function.
        let node = unsafe { Node::new(data, init) }?;
        // SAFETY: `init` has initialised the device with a class and a release function, and no
        // other code knows the device.
        let added = unsafe { Self::add(node.as_raw(), &name.name) };
        if let Err(error) = added {
            // SAFETY: The data are a `T`, and there are no attributes.
            unsafe { node.forget::<T>() };
            return Err(error);
        }
        // On an error below, dropping `this` removes and frees the device.
        let this = Self {
            node,
            _name: name,
            _data: PhantomData,
        };
        // SAFETY: The data are a `T`, and the device is in sysfs. The module of the attributes owns
        // this value, which removes the device.
        unsafe { Attribute::add_all(attributes, this.node.kobject()) }?;
        Ok(this)
    }

    /// Gives `device` its name and adds it, without telling user space.
    ///
    /// # Safety
    ///
    /// The device must be initialised with a class and a release function, and no other code may
    /// know the device.
    unsafe fn add(device: *mut bindings::device, name: &CStr) -> Result {
        // SAFETY: By the function's requirement the device is initialised. The format takes one
        // string, which is copied.
        to_result(unsafe {
            bindings::dev_set_name(device, c"%s".as_char_ptr(), name.as_char_ptr())
        })?;
        // SAFETY: By the function's requirement.
        unsafe { bindings::rnbd_helper_dev_set_uevent_suppress(device, 1) };
        // SAFETY: By the function's requirement, and the device has a name now.
        to_result(unsafe { bindings::device_add(device) })
    }

    /// Adds a file, which is removed with the device. Sleeps.
    ///
    /// `EEXIST` if there is a file of that name, `ENODEV` if the device has been removed.
    pub fn add_file(&self, attribute: &'static BinaryAttribute<T>) -> Result {
        let added = self.with_kobject(|kobject| {
            // The kernel would print a backtrace for a second file of the same name.
            // SAFETY: The device is not removed while this closure runs.
            if unsafe { kobject.contains(attribute.name()) } {
                return Err(EEXIST);
            }
            // SAFETY: The device is in sysfs and is not being removed. The attribute is static and
            // for the data of this device. The attribute's module stays until the device is
            // removed.
            to_result(unsafe {
                bindings::sysfs_create_bin_file(kobject.as_raw(), attribute.as_raw())
            })
        });
        added.unwrap_or(Err(ENODEV))
    }

    /// Tells user space that the device was added, and from then on of its events. Sleeps.
    pub fn announce(&self) {
        self.with_kobject(|_| {
            // SAFETY: The device is in sysfs and is not being removed.
            unsafe { bindings::rnbd_helper_dev_set_uevent_suppress(self.node.as_raw(), 0) };
        });
        // An error means that the event could not be delivered, which is no error of the device.
        let _ = uevent(self, Uevent::Add);
    }

    /// Removes the device and everything below it. Does nothing if the device was removed before.
    ///
    /// Waits until no function of the device's attributes is running, except for functions that
    /// have released their protection. Sleeps.
    pub fn remove(&self) {
        // SAFETY: `new` has made the node with data of type `T`.
        unsafe { self.node.remove::<T>() };
    }
}

impl<T: Send + Sync + 'static> Drop for ClassDevice<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

// SAFETY: As for its node.
unsafe impl<T: Send + Sync + 'static> AsKobject for ClassDevice<T> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        self.node.with_kobject(run)
    }
}

// SAFETY: As for its node.
unsafe impl<T: Send + Sync + 'static> LinkTarget for ClassDevice<T> {
    fn target(&self) -> ARef<Kobject> {
        self.node.target()
    }
}

/// `device::release`.
///
/// # Safety
///
/// Called by the C code when the last reference to the device of a node is dropped.
unsafe extern "C" fn release(device: *mut bindings::device) {
    // SAFETY: By the safety requirement.
    unsafe { Node::free(device) };
}
