// SPDX-License-Identifier: GPL-2.0

//! Keeping a module loaded.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::{
    prelude::*,
    ModuleMetadata, //
};

use crate::bindings;

/// A reference to a module, which cannot be unloaded while there is one.
///
/// # Invariants
///
/// `module` is the null pointer, which stands for built-in code, or a module to which this holds a
/// reference.
pub struct ModuleReference {
    module: *mut bindings::module,
}

// SAFETY: A reference may be given back by any thread.
unsafe impl Send for ModuleReference {}

// SAFETY: There is nothing to do with a shared one.
unsafe impl Sync for ModuleReference {}

impl ModuleReference {
    /// Takes a reference to the module `M`. Any context. `ENODEV` if it is being unloaded.
    pub fn new<M: ModuleMetadata>() -> Result<Self> {
        let module: *mut bindings::module = M::THIS_MODULE.as_ptr().cast();
        // SAFETY: The pointer is null or that of a module, whose code the caller is part of.
        if !unsafe { bindings::try_module_get(module) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was taken.
        Ok(Self { module })
    }
}

impl Drop for ModuleReference {
    /// Any context. Whoever drops the last one is kept from outside in the module's code, by
    /// something that unloading it waits for.
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this owns a reference.
        unsafe { bindings::module_put(self.module) };
    }
}
