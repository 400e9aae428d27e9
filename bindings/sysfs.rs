// SPDX-License-Identifier: GPL-2.0

//! Directories, files and links in sysfs.
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

mod output;

pub use self::output::SysfsOutput;
