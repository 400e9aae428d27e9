// SPDX-License-Identifier: GPL-2.0

//! What sessions need of the module.

use kernel::sync::Arc;
use kernel_ext::{
    device::class::Class,
    module::ModuleReference,
    prelude::*,
    sync::rcu::RcuArc,
    workqueue::QueueHandle, //
};

use crate::sessions::Sessions;

/// What sessions need of the module.
pub(crate) struct Globals {
    pub(crate) class: Class,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) queue: QueueHandle,
    /// Keeps this module loaded.
    pub(crate) module: fn() -> Result<ModuleReference>,
}

static GLOBALS: RcuArc<Globals> = RcuArc::empty();

/// Those of the module; `ENODEV` while it is being loaded or unloaded.
pub(crate) fn globals() -> Result<Arc<Globals>> {
    GLOBALS.get().ok_or(ENODEV)
}

/// Sets them, or takes them away. Sleeps.
pub(crate) fn set_globals(globals: Option<Arc<Globals>>) {
    drop(GLOBALS.replace(globals));
}
