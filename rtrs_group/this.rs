// SPDX-License-Identifier: GPL-2.0

//! This module, for what may outlive its user's.

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

/// Says how a reference is taken; once.
pub(crate) fn set_module(take: fn() -> Result<ModuleReference>) {
    MODULE.populate(take);
}
