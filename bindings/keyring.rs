// SPDX-License-Identifier: GPL-2.0

//! Keyrings: secrets that user space has given to the kernel.
//!
//! Would be: `rust/kernel/key.rs`.
//!
//! C headers: [`include/linux/key.h`](srctree/include/linux/key.h) and
//! [`include/keys/user-type.h`](srctree/include/keys/user-type.h)

use core::ptr::NonNull;

use kernel::error::from_err_ptr;

use crate::{
    bindings,
    prelude::*, //
};

/// A keyring.
///
/// # Invariants
///
/// The pointer is to a keyring, and this value has a reference to it.
pub struct Keyring(NonNull<bindings::key>);

// SAFETY: The reference may be given back in any task.
unsafe impl Send for Keyring {}

// SAFETY: The C functions that take a keyring lock it.
unsafe impl Sync for Keyring {}

impl Keyring {
    /// The keyring of the user root of the initial user namespace (`@u` of a process of root).
    /// Sleeps.
    ///
    /// The keyring is made if it does not exist. It stays the same as long as there is a reference
    /// to it.
    pub fn of_root() -> Result<Self> {
        // SAFETY: The function has no requirements.
        let keyring = from_err_ptr(unsafe { bindings::rnbd_helper_root_user_keyring() })?;
        // INVARIANT: The function has returned a reference to a keyring.
        Ok(Self(NonNull::new(keyring).ok_or(ENOKEY)?))
    }

    /// Copies the secret of the `logon` key with this description to the beginning of `out`, and
    /// returns the length of the secret. User space cannot read a `logon` key. Sleeps.
    ///
    /// `ENOKEY` if there is no such key, `EKEYEXPIRED` and `EKEYREVOKED` if the key is no longer
    /// valid, `EMSGSIZE` if the secret is longer than `out`.
    pub fn read_logon_key(&self, description: &CStr, out: &mut [u8]) -> Result<usize> {
        // SAFETY: By the type invariant the keyring is valid; the description ends with a NUL, and
        // `out` is valid for writes of its length.
        let len = unsafe {
            bindings::rnbd_helper_logon_key_read(
                self.0.as_ptr(),
                description.as_char_ptr(),
                out.as_mut_ptr(),
                out.len(),
            )
        };
        match usize::try_from(len) {
            Ok(len) => Ok(len),
            Err(_) => {
                let error = Error::from_errno(i32::try_from(len)?);
                // The search returns `EAGAIN` if it has found nothing at all.
                Err(if error == EAGAIN { ENOKEY } else { error })
            }
        }
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value has a reference, which is given back once.
        unsafe { bindings::rnbd_helper_key_put(self.0.as_ptr()) };
    }
}
