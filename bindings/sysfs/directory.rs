// SPDX-License-Identifier: GPL-2.0

//! Directories of sysfs.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    container_of,
    error::to_result,
    prelude::*,
    static_lock_class,
    str::CStr,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        Arc,
        Mutex, //
    },
    types::{
        Opaque,
        ScopeGuard, //
    }, //
};

use super::{
    attribute,
    registration::Registration,
    Attribute, //
};
use crate::{
    bindings,
    kobject::{
        sysfs_name,
        AsKobject,
        Kobject,
        LinkTarget, //
    }, //
};

/// A directory with files about a `T`, below another object.
///
/// It is removed with everything below it by [`Directory::remove`] or when it is dropped, in
/// process context. No function of its attributes is running or will run when that returns, and
/// its reference to the `T` is gone. A `T` that holds its own directory must therefore have it
/// removed: the two keep each other.
///
/// A `store` function of the directory that leads to its removal calls
/// [`StoreContext::release_protection`](super::StoreContext::release_protection) first.
///
/// # Examples
///
/// ```ignore
/// let paths = Directory::empty(&session_device, c"paths")?;
/// let directory = Directory::new(&paths, path.name(), ATTRIBUTES, path.clone())?;
/// directory.add_group(c"stats", STATISTICS)?;
/// ```
pub struct Directory<T: Send + Sync + 'static> {
    node: ARef<Node>,
    _data: PhantomData<Arc<T>>,
}

/// The kobject of a directory; freed by its last reference, wherever that is.
#[pin_data]
pub(super) struct Node {
    #[pin]
    kobject: Opaque<bindings::kobject>,
    #[pin]
    registration: Registration,
    /// The groups, which have the same data.
    #[pin]
    groups: Mutex<KVec<ARef<Node>>>,
}

// SAFETY: The kobject counts its references, and the registration may be used by any task.
unsafe impl Send for Node {}

// SAFETY: As above.
unsafe impl Sync for Node {}

// SAFETY: A `Node` is made by `Node::new` only, in a box, and freed when the count of its kobject
// is 0.
unsafe impl AlwaysRefCounted for Node {
    fn inc_ref(&self) {
        // SAFETY: `self` is valid, so there is a reference.
        unsafe { bindings::kobject_get(self.kobject.get()) };
    }

    unsafe fn dec_ref(node: NonNull<Self>) {
        // SAFETY: The caller gives up a reference, until then the node is valid.
        unsafe { bindings::kobject_put((*node.as_ptr()).kobject.get()) };
    }
}

impl Directory<()> {
    /// Makes a directory without files. Sleeps; see [`Directory::new`].
    pub fn empty(parent: &impl AsKobject, name: &CStr) -> Result<Self> {
        Self::new(parent, name, &[], Arc::new((), GFP_KERNEL)?)
    }
}

impl<T: Send + Sync + 'static> Directory<T> {
    /// Makes a directory called `name` below `parent`, with the files `attributes` about `data`.
    ///
    /// Sleeps. A slash in the name becomes a `!`. `EEXIST` if there is one of that name, `ENODEV`
    /// if `parent` has been removed.
    pub fn new(
        parent: &impl AsKobject,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        // Whatever fails below, dropping this removes and frees what there is.
        let this = Self {
            node: Node::new(data)?,
            _data: PhantomData,
        };
        let name = sysfs_name(name)?;
        parent
            .with_kobject(|parent| {
                // SAFETY: The node is new, with data of this type; in here `parent` is not removed.
                unsafe { this.node.add(parent, &name, attributes) }
            })
            .unwrap_or(Err(ENODEV))?;
        Ok(this)
    }

    /// Makes a directory in this one with more files about the same `T`, which goes with it.
    ///
    /// Sleeps. Errors as those of [`Directory::new`].
    pub fn add_group(&self, name: &CStr, attributes: &'static [Attribute<T>]) -> Result {
        let name = sysfs_name(name)?;
        // SAFETY: The data are a `T` since `new`.
        let data = unsafe { self.node.registration.clone_data::<T>() }.ok_or(ENODEV)?;
        let group = ScopeGuard::new_with_data(Node::new(data)?, |group| {
            // SAFETY: As above.
            unsafe { group.remove::<T>() }
        });
        self.with_kobject(|parent| {
            let mut groups = self.node.groups.lock();
            groups.reserve(1, GFP_KERNEL)?;
            // SAFETY: The node is new, with data of this type; in here `parent` is not removed.
            unsafe { group.add(parent, &name, attributes) }?;
            Ok(groups.push(group.clone(), GFP_KERNEL)?)
        })
        .unwrap_or(Err(ENODEV))?;
        group.dismiss();
        Ok(())
    }

    /// Removes the directory and everything below it; does nothing if that is done.
    ///
    /// Waits until no function of its attributes is running, except for those that released
    /// their protection. Sleeps.
    pub fn remove(&self) {
        // SAFETY: The data of this node and of its groups are a `T`.
        unsafe { self.node.remove::<T>() };
    }

    /// The node, for links in it.
    pub(super) fn node(&self) -> ARef<Node> {
        self.node.clone()
    }
}

impl<T: Send + Sync + 'static> Drop for Directory<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

// SAFETY: Removing the kobject begins with waiting for `while_live`, and is its only way out of
// sysfs.
unsafe impl<T: Send + Sync + 'static> AsKobject for Directory<T> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        self.node.with_kobject(run)
    }
}

// SAFETY: The kobject is initialised since `new`.
unsafe impl<T: Send + Sync + 'static> LinkTarget for Directory<T> {
    fn target(&self) -> ARef<Kobject> {
        // SAFETY: The kobject is valid, and has a reference while `self` is borrowed.
        unsafe { Kobject::from_raw(self.node.kobject.get()) }.into()
    }
}

// SAFETY: As for `Directory`.
unsafe impl AsKobject for Node {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        // SAFETY: The node is valid, and has a reference while `self` is borrowed.
        let kobject = unsafe { Kobject::from_raw(self.kobject.get()) };
        self.registration.while_live(|| run(kobject))
    }
}

// `Node::new` is compiled into several modules, see `registration::LIVE`.
static GROUPS: &CStr = c"Node::groups";

impl Node {
    /// Makes a node that is not in sysfs yet. Sleeps.
    fn new<T: Send + Sync + 'static>(data: Arc<T>) -> Result<ARef<Self>> {
        let node = KBox::pin_init(
            pin_init!(Self {
                // The C code wants it zeroed.
                kobject <- Opaque::zeroed(),
                registration <- Registration::new(data),
                groups <- Mutex::new(KVec::new(), GROUPS, static_lock_class!()),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The node is never moved; it is freed by `Node::release`.
        let node = KBox::into_raw(unsafe { Pin::into_inner_unchecked(node) });
        // SAFETY: The kobject is zeroed, and the type is static. This makes the first reference.
        unsafe { bindings::kobject_init((*node).kobject.get(), &KOBJ_TYPE.0) };
        // SAFETY: The node is valid, and the reference is handed over.
        Ok(unsafe { ARef::from_raw(NonNull::new_unchecked(node)) })
    }

    /// Adds the node to sysfs, with its files.
    ///
    /// It may be there or not when this fails.
    ///
    /// # Safety
    ///
    /// To be called once, `T` being that of `new`, and with a parent that is not removed from sysfs
    /// meanwhile.
    unsafe fn add<T: Send + Sync + 'static>(
        &self,
        parent: &Kobject,
        name: &CStr,
        attributes: &'static [Attribute<T>],
    ) -> Result {
        // The kernel would complain, with a backtrace.
        // SAFETY: By the function's requirement.
        if unsafe { parent.contains(name) } {
            return Err(EEXIST);
        }
        // SAFETY: Both kobjects are initialised; the format takes one string, which is copied.
        to_result(unsafe {
            bindings::kobject_add(
                self.kobject.get(),
                parent.as_raw(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })?;
        for file in Attribute::files(attributes) {
            // SAFETY: The kobject is in sysfs. The attribute is static and for the data of this
            // node; its module keeps it until the node is removed, as it owns that.
            to_result(unsafe {
                bindings::sysfs_create_file_ns(self.kobject.get(), file, ptr::null())
            })?;
        }
        Ok(())
    }

    /// Removes the node and its groups from sysfs and drops the data; see [`Directory::remove`].
    ///
    /// # Safety
    ///
    /// `T` must be that of `new`.
    unsafe fn remove<T: Send + Sync + 'static>(&self) {
        let remove = || {
            // No group is added any more.
            let groups = core::mem::take(&mut *self.groups.lock());
            for group in &groups {
                // SAFETY: Groups are made for the same `T`.
                unsafe { group.remove::<T>() };
            }
            // SAFETY: The kobject is initialised, and is removed once. It may have failed to be
            // added.
            unsafe { bindings::kobject_del(self.kobject.get()) };
        };
        // SAFETY: By the safety requirement. When `kobject_del()` returns all attributes are out
        // of use.
        unsafe { self.registration.remove::<T>(remove) };
    }

    /// The node of a kobject.
    ///
    /// # Safety
    ///
    /// `kobject` must be that of a node that stays for `'a`.
    unsafe fn of<'a>(kobject: *mut bindings::kobject) -> &'a Self {
        let kobject: *mut Opaque<bindings::kobject> = kobject.cast();
        // SAFETY: By the safety requirement.
        unsafe { &*container_of!(kobject, Self, kobject) }
    }

    /// `kobj_type::release`.
    ///
    /// # Safety
    ///
    /// Called by the C code when the last reference to the kobject of a node is gone.
    unsafe extern "C" fn release(kobject: *mut bindings::kobject) {
        let kobject: *mut Opaque<bindings::kobject> = kobject.cast();
        // SAFETY: By the safety requirement.
        let node = unsafe { container_of!(kobject, Self, kobject) };
        // SAFETY: The node came from a box, and this was the last reference.
        drop(unsafe { KBox::from_raw(node) });
    }

    /// `sysfs_ops::show`.
    ///
    /// # Safety
    ///
    /// Called by sysfs for a file of a node, with a page.
    unsafe extern "C" fn show(
        kobject: *mut bindings::kobject,
        attribute: *mut bindings::attribute,
        page: *mut c_char,
    ) -> isize {
        // SAFETY: The kobject is of a node, and stays as long as the file is in use.
        let node = unsafe { Self::of(kobject) };
        // SAFETY: The files of a node are made of attributes for its data.
        unsafe { attribute::show(&node.registration, attribute, page) }
    }

    /// `sysfs_ops::store`.
    ///
    /// # Safety
    ///
    /// Called by sysfs for a file of a node, with `count` bytes.
    unsafe extern "C" fn store(
        kobject: *mut bindings::kobject,
        attribute: *mut bindings::attribute,
        bytes: *const c_char,
        count: usize,
    ) -> isize {
        // The file's own reference may go with the protection that the call releases.
        // SAFETY: The kobject is of a node, and stays as long as the file is in use.
        let node: ARef<Self> = unsafe { Self::of(kobject) }.into();
        // SAFETY: The files of a node are made of attributes for its data.
        unsafe { attribute::store(kobject, &node.registration, attribute, bytes, count) }
    }
}

/// Something the C code only reads.
struct ReadOnly<T>(T);

// SAFETY: Nobody writes it.
unsafe impl<T> Sync for ReadOnly<T> {}

static SYSFS_OPS: bindings::sysfs_ops = bindings::sysfs_ops {
    show: Some(Node::show),
    store: Some(Node::store),
};

static KOBJ_TYPE: ReadOnly<bindings::kobj_type> = ReadOnly(bindings::kobj_type {
    release: Some(Node::release),
    sysfs_ops: &SYSFS_OPS,
    default_groups: ptr::null_mut(),
    child_ns_type: None,
    namespace: None,
    get_ownership: None,
});
