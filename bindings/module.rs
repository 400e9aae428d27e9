// SPDX-License-Identifier: GPL-2.0

//! Keeping a module loaded, and waiting until its code can go.
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

/// A reference to a module, which cannot be unloaded while there is one.
///
/// # Invariants
///
/// `module` is the null pointer, which stands for built-in code, or a module to which this holds a
/// reference.
#[must_use = "the module may be unloaded otherwise"]
pub struct ModuleReference {
    module: *mut bindings::module,
}

// SAFETY: A reference may be given back by any thread.
unsafe impl Send for ModuleReference {}

// SAFETY: There is nothing to do with a shared one.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Takes a reference to the module `M`, or before kernel 7.3 to the module that the caller is
    /// in, which depends on `M`. Any context. `ENODEV` if it is being unloaded.
    pub fn new<M: ModuleMetadata>() -> Result<Self> {
        let module: *mut bindings::module = compat::this_module::<M>();
        // SAFETY: The pointer is null or that of a module, whose code the caller is part of.
        if !unsafe { bindings::try_module_get(module) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was taken.
        Ok(Self { module })
    }
}

impl Drop for ModuleReference {
    /// Any context. If this is the last reference, something that unloading waits for has to keep
    /// the code that drops it; see [`Returned`].
    fn drop(&mut self) {
        // SAFETY: `module` is null or holds a reference of this value, which ends here.
        unsafe { bindings::module_put(self.module) };
    }
}

/// Waits, when it is dropped, until all tasks have returned from the functions of its module.
/// Sleeps, perhaps for seconds.
///
/// Some functions are called without a reference to their module, and allow it to be unloaded
/// before they return: the end of a bio leaves the gate of its device, a `store` gives back the
/// reference to the module of its file. A task may be preempted just then, for any time. It is no
/// reader of RCU, so that freeing the module's memory, which waits for those and for interrupts,
/// does not wait for it. RCU Tasks does: it waits until each task has slept by its own choice, or
/// has been in user space. What is left of such a function must therefore not sleep.
///
/// To be the last field of the module's type: when everything else is gone no such function is
/// called any more.
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
    /// For the module that is being loaded.
    pub const fn new() -> Self {
        Self(())
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        // SAFETY: May be called wherever sleeping is allowed, as is said above. Modules are loaded
        // and unloaded there.
        unsafe { bindings::rnbd_helper_synchronize_rcu_tasks() };
    }
}
