// SPDX-License-Identifier: GPL-2.0

//! Device classes and the devices of which they consist (`/sys/class/<class>/<device>/`).
//!
//! Would extend: `rust/kernel/device.rs`.
//!
//! C header: [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    container_of,
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        Arc,
        Mutex, //
    },
    types::Opaque, //
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
    sysfs::{
        attribute,
        registration::Registration,
        Attribute,
        BinaryAttribute, //
    }, //
};

/// A device class; destroyed in process context when it and all its devices are dropped.
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
    /// The names of all devices that are there, not yet or not any more in sysfs included.
    #[pin]
    names: Mutex<KVec<CString>>,
}

// SAFETY: The C functions on a class may be called from any task that may sleep.
unsafe impl Send for ClassInner {}

// SAFETY: As above, also at the same time.
unsafe impl Sync for ClassInner {}

impl Class {
    /// Makes a class. Sleeps. `EEXIST` if there is one of that name.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: The name is valid until the module that has it destroys the class.
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
    /// Sleeps. User space is told of it by [`ClassDevice::announce`], when everything else that
    /// belongs to the device is there. A slash in the name becomes a `!`. `EEXIST` if there is a
    /// device of that name.
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

/// A name of a device that is taken in a class.
struct Name {
    class: Class,
    name: CString,
}

impl Name {
    /// Takes a name; the kernel would complain about two of a kind, with a backtrace.
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

/// A device of a class, without a driver or a bus: a place for files about a `T`.
///
/// As for a [`Directory`](crate::sysfs::Directory), nothing of its attributes runs any more when
/// it is removed or dropped, and its reference to the `T` is gone.
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
    // Before the name, which is free when the device is gone.
    node: ARef<Node>,
    _name: Name,
    _data: PhantomData<Arc<T>>,
}

/// The C device; freed by its last reference, wherever that is.
#[pin_data]
struct Node {
    #[pin]
    device: Opaque<bindings::device>,
    #[pin]
    registration: Registration,
}

// SAFETY: The device counts its references, and the registration may be used by any task.
unsafe impl Send for Node {}

// SAFETY: As above.
unsafe impl Sync for Node {}

// SAFETY: A `Node` is made by `ClassDevice::new` only, and freed when the count of its device is 0.
unsafe impl AlwaysRefCounted for Node {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid, so there is a reference.
        unsafe { bindings::get_device(self.device.get()) };
    }

    unsafe fn dec_ref(node: NonNull<Self>) {
        // SAFETY: The caller gives up a reference, until then the node is valid.
        unsafe { bindings::put_device((*node.as_ptr()).device.get()) };
    }
}

impl<T: Send + Sync + 'static> ClassDevice<T> {
    fn new(
        class: &Class,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        let name = Name::take(class, sysfs_name(name)?)?;
        let node = KBox::pin_init(
            pin_init!(Node {
                // The C code wants it zeroed.
                device <- Opaque::zeroed(),
                registration <- Registration::new(data),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The node is never moved; it is freed by `Node::release`.
        let node = KBox::into_raw(unsafe { Pin::into_inner_unchecked(node) });
        // SAFETY: The node is valid.
        let device = unsafe { (*node).device.get() };
        // SAFETY: The device is zeroed memory that nobody else knows. This makes the first
        // reference, whose release function is that of the node.
        unsafe {
            bindings::device_initialize(device);
            (*device).class = class.inner.raw.as_ptr();
            (*device).release = Some(Node::release);
        }
        // SAFETY: The node is valid, and the reference above is handed over.
        let node = unsafe { ARef::from_raw(NonNull::new_unchecked(node)) };
        // SAFETY: Initialised above with all that; nobody else knows it.
        let added = unsafe { Self::add(device, &name.name) };
        if let Err(error) = added {
            // SAFETY: The data are a `T`, and there are no attributes.
            unsafe { node.registration.remove::<T>(|| ()) };
            return Err(error);
        }
        // Whatever fails below, dropping this removes and frees what there is.
        let this = Self {
            node,
            _name: name,
            _data: PhantomData,
        };
        // SAFETY: The device is there.
        let kobject = unsafe { &raw mut (*device).kobj };
        for file in Attribute::files(attributes) {
            // SAFETY: The kobject is in sysfs. The attribute is static and for the data of this
            // device; its module keeps it until the device is removed, as it owns that.
            to_result(unsafe { bindings::sysfs_create_file_ns(kobject, file, ptr::null()) })?;
        }
        Ok(this)
    }

    /// Gives `device` its name and adds it, without telling user space.
    ///
    /// # Safety
    ///
    /// The device must be initialised with a class and a release function, and nobody else may know
    /// it.
    unsafe fn add(device: *mut bindings::device, name: &CStr) -> Result {
        // SAFETY: By the function's requirement; the format takes one string, which is copied.
        to_result(unsafe {
            bindings::dev_set_name(device, c"%s".as_char_ptr(), name.as_char_ptr())
        })?;
        // SAFETY: By the function's requirement.
        unsafe { bindings::rnbd_helper_dev_set_uevent_suppress(device, 1) };
        // SAFETY: By the function's requirement; it has a name now.
        to_result(unsafe { bindings::device_add(device) })
    }

    /// Adds a file, which goes with the device. Sleeps.
    ///
    /// `EEXIST` if there is one of that name, `ENODEV` if the device has been removed.
    pub fn add_file(&self, attribute: &'static BinaryAttribute<T>) -> Result {
        let added = self.with_kobject(|kobject| {
            // The kernel would complain about two of a kind, with a backtrace.
            // SAFETY: In here the device is not removed.
            if unsafe { kobject.contains(attribute.name()) } {
                return Err(EEXIST);
            }
            // SAFETY: The device is there and is not being removed. The attribute is static and
            // for the data of this device; its module keeps it until the device is removed.
            to_result(unsafe {
                bindings::sysfs_create_bin_file(kobject.as_raw(), attribute.as_raw())
            })
        });
        added.unwrap_or(Err(ENODEV))
    }

    /// Tells user space that the device is there, and from now on of its events. Sleeps.
    pub fn announce(&self) {
        self.node.registration.while_live(|| {
            // SAFETY: The device is there and is not being removed.
            unsafe { bindings::rnbd_helper_dev_set_uevent_suppress(self.node.device.get(), 0) };
        });
        // That nobody listens is no error of the device.
        let _ = uevent(self, Uevent::Add);
    }

    /// Removes the device and everything below it; does nothing if that is done.
    ///
    /// Waits until no function of its attributes is running, except for those that released
    /// their protection. Sleeps.
    pub fn remove(&self) {
        let device = self.node.device.get();
        // SAFETY: The data are a `T` since `new`. When `device_del()` returns, all attributes are
        // out of use.
        unsafe {
            self.node
                .registration
                .remove::<T>(|| bindings::device_del(device))
        };
    }
}

impl<T: Send + Sync + 'static> Drop for ClassDevice<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

// SAFETY: Removing the device begins with waiting for `while_live`, and is its only way out of
// sysfs.
unsafe impl<T: Send + Sync + 'static> AsKobject for ClassDevice<T> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        // SAFETY: The node is valid, and has a reference while `self` is borrowed.
        let kobject = unsafe { Kobject::from_raw(&raw mut (*self.node.device.get()).kobj) };
        self.node.registration.while_live(|| run(kobject))
    }
}

// SAFETY: The kobject is initialised since `new`.
unsafe impl<T: Send + Sync + 'static> LinkTarget for ClassDevice<T> {
    fn target(&self) -> ARef<Kobject> {
        // SAFETY: The kobject is valid, and has a reference while `self` is borrowed.
        unsafe { Kobject::from_raw(&raw mut (*self.node.device.get()).kobj) }.into()
    }
}

impl Node {
    /// The node of a device.
    ///
    /// # Safety
    ///
    /// `device` must be that of a node.
    unsafe fn of(device: *mut bindings::device) -> *mut Self {
        let device: *mut Opaque<bindings::device> = device.cast();
        // SAFETY: By the safety requirement.
        unsafe { container_of!(device, Self, device) }
    }

    /// `device::release`.
    ///
    /// # Safety
    ///
    /// Called by the C code when the last reference to the device of a node is gone.
    unsafe extern "C" fn release(device: *mut bindings::device) {
        // SAFETY: The node came from a box, and this was the last reference.
        drop(unsafe { KBox::from_raw(Self::of(device)) });
    }
}

/// `device_attribute::show`.
///
/// # Safety
///
/// Called by sysfs for a file of a [`ClassDevice`], with a page.
pub(crate) unsafe extern "C" fn show_device(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: The device is of a node, and stays as long as the file is in use.
    let node = unsafe { &*Node::of(device) };
    // SAFETY: The files of a node are made of attributes for its data.
    unsafe { attribute::show(&node.registration, attribute.cast(), page) }
}

/// `device_attribute::store`.
///
/// # Safety
///
/// Called by sysfs for a file of a [`ClassDevice`], with `count` bytes.
pub(crate) unsafe extern "C" fn store_device(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    bytes: *const c_char,
    count: usize,
) -> isize {
    // The file's own reference may go with the protection that the call releases.
    // SAFETY: The device is of a node, and stays as long as the file is in use.
    let node: ARef<Node> = unsafe { &*Node::of(device) }.into();
    // SAFETY: `device` is valid, as above.
    let kobject = unsafe { &raw mut (*device).kobj };
    // SAFETY: The files of a node are made of attributes for its data.
    unsafe { attribute::store(kobject, &node.registration, attribute.cast(), bytes, count) }
}

/// The data of a device, for the callbacks of its files.
///
/// # Safety
///
/// `kobject` must be that of a [`ClassDevice`]. The data are valid while one of its files is in
/// use.
pub(crate) unsafe fn data_of(kobject: *mut bindings::kobject) -> NonNull<c_void> {
    // SAFETY: By the safety requirement the kobject is that of a device.
    let device = unsafe { container_of!(kobject, bindings::device, kobj) };
    // SAFETY: By the safety requirement the device is of a node.
    unsafe { &*Node::of(device) }.registration.data()
}
