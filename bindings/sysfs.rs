// SPDX-License-Identifier: GPL-2.0

//! Directories, files and links in sysfs.
//!
//! Would be: `rust/kernel/sysfs.rs`.
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

mod attribute;
mod binary;
mod directory;
mod link;
pub(crate) mod node;
mod output;
mod registration;

pub use self::{
    attribute::{
        Attribute,
        StoreContext, //
    },
    binary::{
        BinaryAttribute,
        OpenFile, //
    },
    directory::Directory,
    link::Link,
    output::SysfsOutput, //
};
