// SPDX-License-Identifier: GPL-2.0

//! Message authentication codes: proof that the sender of a message has a key.
//!
//! Would be: `rust/kernel/crypto.rs`.
//!
//! C headers: [`include/crypto/sha2.h`](srctree/include/crypto/sha2.h) and
//! [`include/crypto/utils.h`](srctree/include/crypto/utils.h)

use crate::bindings;

/// The size of a code in bytes.
pub const HMAC_SHA256_SIZE: usize = 32;

/// The HMAC-SHA-256 of `data` under `key` (C: `hmac_sha256_usingrawkey()`). Both may have any
/// length. Any context.
pub fn hmac_sha256(key: &[u8], data: &[u8]) -> [u8; HMAC_SHA256_SIZE] {
    let mut code = [0; HMAC_SHA256_SIZE];
    // SAFETY: The slices are valid for reads of their lengths, and `code` has room for the result
    // (`SHA256_DIGEST_SIZE`).
    unsafe {
        bindings::rnbd_helper_hmac_sha256(
            key.as_ptr(),
            key.len(),
            data.as_ptr(),
            data.len(),
            code.as_mut_ptr(),
        )
    };
    code
}

/// Whether both slices are equal. The time that this takes only depends on their lengths, not on
/// their bytes (C: `crypto_memneq()`). Any context.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        // SAFETY: Both slices are valid for reads of that length.
        && !unsafe {
            bindings::rnbd_helper_crypto_memneq(one.as_ptr(), other.as_ptr(), one.len())
        }
}
