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

/// A link in a directory to another object; removed when dropped, in process context.
#[must_use = "the link is removed otherwise"]
pub struct Link {
    parent: ARef<Node<bindings::kobject>>,
    name: CString,
}

impl Link {
    /// Makes a link called `name` in `directory` to `target`.
    ///
    /// Sleeps. A slash in the name becomes a `!`. `EEXIST` if there is something of that name,
    /// `ENODEV` if the directory has been removed, `ENOENT` if the target has.
    pub fn new<T: Send + Sync + 'static>(
        directory: &Directory<T>,
        target: &impl LinkTarget,
        name: &CStr,
    ) -> Result<Self> {
        let name = sysfs_name(name)?;
        let target = target.target();
        let parent = directory.node();
        let made = parent.with_kobject(|parent| {
            // SAFETY: Both kobjects are valid and `parent` is in sysfs; that `target` may be
            // removed at the same time is for the C function to see.
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
        // A directory that is removed takes its links with it.
        self.parent.with_kobject(|parent| {
            // SAFETY: The kobject is in sysfs, and the link in its directory is ours.
            unsafe { bindings::sysfs_remove_link(parent.as_raw(), self.name.as_char_ptr()) };
        });
    }
}
