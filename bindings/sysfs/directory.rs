// SPDX-License-Identifier: GPL-2.0

//! Directories of sysfs.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    error::to_result,
    str::CStr,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::{
    attribute::{
        self,
        Attribute, //
    },
    node::Node, //
};
use crate::{
    bindings,
    kobject::{
        sysfs_name,
        AsKobject,
        Kobject,
        LinkTarget, //
    },
    prelude::*, //
};

/// A directory with files about a `T`, below another object.
///
/// [`Directory::remove`], or dropping it in process context, removes the directory and everything
/// below it. When that returns, no function of its attributes is running or will run, and its
/// reference to the `T` is dropped. A `T` that holds its own directory must call
/// [`Directory::remove`], as the two keep each other.
///
/// A `store` function of the directory that leads to its removal calls
/// [`StoreContext::release_protection`](super::StoreContext::release_protection) first.
///
/// # Examples
///
/// ```ignore
/// let paths = Directory::empty(&session_device, c"paths")?;
/// let directory = Directory::new(&paths, path.name(), ATTRIBUTES, path.clone())?;
/// let statistics = Directory::new(&directory, c"stats", STATISTICS, path.clone())?;
/// ```
pub struct Directory<T: Send + Sync + 'static> {
    node: ARef<Node<bindings::kobject>>,
    _data: PhantomData<Arc<T>>,
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
    /// Sleeps. A slash in the name becomes a `!`. `EEXIST` if `parent` has an entry of that name,
    /// `ENODEV` if `parent` has been removed.
    pub fn new(
        parent: &impl AsKobject,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        let init = |kobject| {
            // SAFETY: The kobject is zeroed memory that no other code knows, and the type is
            // static.
            unsafe { bindings::kobject_init(kobject, &KOBJ_TYPE.0) }
        };
        // On an error below, dropping `this` removes and frees the directory.
        let this = Self {
            // SAFETY: `init` makes the first reference, and the type has the release function.
            node: unsafe { Node::new(data, init) }?,
            _data: PhantomData,
        };
        let name = sysfs_name(name)?;
        parent
            .with_kobject(|parent| this.add(parent, &name))
            .unwrap_or(Err(ENODEV))?;
        // SAFETY: The data are a `T`, and the kobject is in sysfs. The module of the attributes
        // owns this value, which removes the kobject.
        unsafe { Attribute::add_all(attributes, this.node.kobject()) }?;
        Ok(this)
    }

    /// Adds the new directory to `parent`, which is not removed meanwhile.
    fn add(&self, parent: &Kobject, name: &CStr) -> Result {
        // The kernel would print a backtrace for a second entry of the same name.
        // SAFETY: This is under `with_kobject`.
        if unsafe { parent.contains(name) } {
            return Err(EEXIST);
        }
        // SAFETY: Both kobjects are initialised. The format takes one string, which is copied.
        to_result(unsafe {
            bindings::kobject_add(
                self.node.as_raw(),
                parent.as_raw(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })
    }

    /// Removes the directory and everything below it. Does nothing if the directory was removed
    /// before.
    ///
    /// Waits until no function of the directory's attributes is running, except for functions that
    /// have released their protection. Sleeps.
    pub fn remove(&self) {
        // SAFETY: `new` has made the node with data of type `T`.
        unsafe { self.node.remove::<T>() };
    }

    /// The node, for links in it.
    pub(super) fn node(&self) -> ARef<Node<bindings::kobject>> {
        self.node.clone()
    }
}

impl<T: Send + Sync + 'static> Drop for Directory<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

// SAFETY: As for its node.
unsafe impl<T: Send + Sync + 'static> AsKobject for Directory<T> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        self.node.with_kobject(run)
    }
}

// SAFETY: As for its node.
unsafe impl<T: Send + Sync + 'static> LinkTarget for Directory<T> {
    fn target(&self) -> ARef<Kobject> {
        self.node.target()
    }
}

/// `kobj_type::release`.
///
/// # Safety
///
/// Called by the C code when the last reference to the kobject of a node is dropped.
unsafe extern "C" fn release(kobject: *mut bindings::kobject) {
    // SAFETY: By the safety requirement.
    unsafe { Node::free(kobject) };
}

/// A value that the C code only reads.
struct ReadOnly<T>(T);

// SAFETY: The value is not written.
unsafe impl<T> Sync for ReadOnly<T> {}

static SYSFS_OPS: bindings::sysfs_ops = bindings::sysfs_ops {
    show: Some(attribute::show),
    store: Some(attribute::store),
};

static KOBJ_TYPE: ReadOnly<bindings::kobj_type> = ReadOnly(bindings::kobj_type {
    release: Some(release),
    sysfs_ops: &SYSFS_OPS,
    default_groups: ptr::null_mut(),
    child_ns_type: None,
    namespace: None,
    get_ownership: None,
});
