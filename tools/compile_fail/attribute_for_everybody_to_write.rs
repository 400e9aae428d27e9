// SPDX-License-Identifier: GPL-2.0

//! A file of sysfs that everybody may write.

use kernel_ext::sysfs::Attribute;

/// The mistake.
pub const FILE: Attribute<u32> = Attribute::new(c"file", 0o666, None, None); //~ E0080
