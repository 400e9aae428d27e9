// SPDX-License-Identifier: GPL-2.0

//! Symbolic links of sysfs.
//!
//! Would be: part of `rust/kernel/sysfs.rs`.

use kernel::{
    error::to_result,
    str::CString,
    sync::aref::ARef, //
};

use super::{
    directory::Directory,
    node::Node, //
};
use crate::{
    bindings,
    kobject::{
        sysfs_name,
        AsKobject,
        LinkTarget, //
    },
    prelude::*, //
};

/// A link in a directory to another object. Dropping it, in process context, removes the link.
#[must_use = "the link is removed otherwise"]
pub struct Link {
    parent: ARef<Node<bindings::kobject>>,
    name: CString,
}

impl Link {
    /// Makes a link called `name` in `directory` to `target`.
    ///
    /// Sleeps. A slash in the name becomes a `!`. `EEXIST` if the directory has an entry of that
    /// name, `ENODEV` if the directory has been removed, `ENOENT` if the target has been removed.
    pub fn new<T: Send + Sync + 'static>(
        directory: &Directory<T>,
        target: &impl LinkTarget,
        name: &CStr,
    ) -> Result<Self> {
        let name = sysfs_name(name)?;
        let target = target.target();
        let parent = directory.node();
        let made = parent.with_kobject(|parent| {
            // SAFETY: Both kobjects are valid and `parent` is in sysfs. `target` may be removed
            // concurrently; the C function handles that.
            to_result(unsafe {
                bindings::sysfs_create_link_nowarn(
                    parent.as_raw(),
                    target.as_raw(),
                    name.as_char_ptr(),
                )
            })
        });
        made.unwrap_or(Err(ENODEV))?;
        Ok(Self { parent, name })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // If the directory was removed, its links were removed with it.
        self.parent.with_kobject(|parent| {
            // SAFETY: The kobject is in sysfs, and the link in its directory is ours.
            unsafe { bindings::sysfs_remove_link(parent.as_raw(), self.name.as_char_ptr()) };
        });
    }
}
