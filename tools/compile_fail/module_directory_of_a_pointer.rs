// SPDX-License-Identifier: GPL-2.0

//! The directory of a module that somebody passes, and that may be unloaded.

use kernel::ThisModule;
use kernel_ext::kobject::ModuleDirectory;

/// The mistake.
pub fn directory(module: &'static ThisModule) {
    let _ = ModuleDirectory::<ThisModule>::new(module); //~ E0599
}
