// SPDX-License-Identifier: GPL-2.0

//! The parts of the module that sessions need.

use kernel::sync::Arc;
use kernel_ext::{
    device::class::Class,
    module::ModuleReference,
    prelude::*,
    sync::rcu::RcuArc,
    workqueue::QueueHandle, //
};

use crate::sessions::Sessions;

/// The parts of the module that sessions need.
pub(crate) struct Globals {
    pub(crate) class: Class,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) queue: QueueHandle,
    /// Keeps this module loaded.
    pub(crate) module: fn() -> Result<ModuleReference>,
}

static GLOBALS: RcuArc<Globals> = RcuArc::empty();

/// The parts of the module. `ENODEV` while the module is being loaded or unloaded.
pub(crate) fn globals() -> Result<Arc<Globals>> {
    GLOBALS.get().ok_or(ENODEV)
}

/// Sets the parts of the module, or takes them away. Sleeps.
pub(crate) fn set_globals(globals: Option<Arc<Globals>>) {
    drop(GLOBALS.replace(globals));
}
