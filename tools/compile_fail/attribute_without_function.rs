// SPDX-License-Identifier: GPL-2.0

//! A file of sysfs that can be read and has no function for that.

use kernel_ext::sysfs::Attribute;

/// The mistake.
pub const FILE: Attribute<u32> = Attribute::new(c"file", 0o444, None, None); //~ E0080
