// SPDX-License-Identifier: GPL-2.0

//! References to modules, and waiting until the code of a module can be freed.
//!
//! Would extend: `rust/kernel/module.rs`.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::ModuleMetadata;

use crate::{
    bindings,
    compat,
    prelude::*, //
};

/// A reference to a module. The module cannot be unloaded while there is a reference.
///
/// # Invariants
///
/// `module` is null, for built-in code, or a module to which this value holds a reference.
#[must_use = "the module may be unloaded otherwise"]
pub struct ModuleReference {
    module: *mut bindings::module,
}

// SAFETY: A reference may be given back in any task.
unsafe impl Send for ModuleReference {}

// SAFETY: The type has no methods that take `&self`.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Takes a reference to the module `M`; before kernel 7.3 to the module of the caller, which is
    /// `M` or depends on `M`. Any context. `ENODEV` if the module is being unloaded.
    pub fn new<M: ModuleMetadata>() -> Result<Self> {
        let module: *mut bindings::module = compat::this_module::<M>();
        // SAFETY: The pointer is null or that of a module of whose code the caller is a part.
        if !unsafe { bindings::try_module_get(module) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was taken.
        Ok(Self { module })
    }
}

impl Drop for ModuleReference {
    /// Any context. If this is the last reference, the module may be unloaded while the caller
    /// still runs. If the caller's code is part of the module, unloading must wait for the caller
    /// by other means; see [`Returned`].
    fn drop(&mut self) {
        // SAFETY: `module` is null or holds a reference of this value, which ends here.
        unsafe { bindings::module_put(self.module) };
    }
}

/// When dropped, waits until all tasks have returned from the functions of its module. Sleeps,
/// possibly for seconds.
///
/// Some functions run without a reference to their module, and allow it to be unloaded before they
/// return: the end of a bio leaves the gate of its device, and a `store` gives back the reference
/// to the module of its file. The task may be preempted at that point, for any time. Freeing the
/// module's memory waits for readers of RCU and for interrupts, but not for such a task. RCU Tasks
/// waits for it: until each task has slept voluntarily, or has been in user space. Therefore the
/// rest of such a function must not sleep.
///
/// Must be the last field of the module's type: no such function is called any more when all other
/// fields are dropped.
///
/// # Examples
///
/// ```ignore
/// struct MyModule {
///     devices: Devices,
///     _returned: Returned,
/// }
/// ```
pub struct Returned(());

impl Returned {
    /// Makes the value, for the module that is being loaded.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        // SAFETY: The function may be called wherever sleeping is allowed. Modules are loaded and
        // unloaded in such a context.
        unsafe { bindings::rnbd_helper_synchronize_rcu_tasks() };
    }
}
