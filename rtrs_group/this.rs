// SPDX-License-Identifier: GPL-2.0

//! References to this module, for sessions that may outlive the user's module.

use kernel_ext::{
    module::ModuleReference,
    prelude::*,
    sync::set_once::SetOnce, //
};

static MODULE: SetOnce<fn() -> Result<ModuleReference>> = SetOnce::new();

/// A reference to this module. Any context. `ENODEV` while it is being loaded or unloaded.
pub(crate) fn module() -> Result<ModuleReference> {
    (MODULE.as_ref().ok_or(ENODEV)?)()
}

/// Sets the function that takes a reference. Only the first call counts.
pub(crate) fn set_module(take: fn() -> Result<ModuleReference>) {
    MODULE.populate(take);
}
