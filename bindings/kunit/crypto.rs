// SPDX-License-Identifier: GPL-2.0

use crate::prelude::*;

#[kunit_tests(rnbd_crypto)]
mod tests {
    use crate::crypto::{
        hmac_sha256,
        is_same, //
    };

    /// Test case 2 of RFC 4231.
    const SHORT_KEY: [u8; 32] = [
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75,
        0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec,
        0x38, 0x43,
    ];

    /// Test case 6 of RFC 4231.
    const LONG_KEY: [u8; 32] = [
        0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26, 0xaa, 0xcb, 0xf5, 0xb7,
        0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28, 0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3,
        0x7f, 0x54,
    ];

    #[test]
    fn codes_are_those_of_rfc_4231() {
        let code = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert!(code == SHORT_KEY);
        let message = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert!(hmac_sha256(&[0xaa; 131], message) == LONG_KEY);
    }

    #[test]
    fn each_bit_counts() {
        assert!(is_same(&SHORT_KEY, &SHORT_KEY) && is_same(&[], &[]));
        assert!(!is_same(&SHORT_KEY, &[]) && !is_same(&[], &SHORT_KEY));
        for bit in 0..SHORT_KEY.len() * 8 {
            let mut other = SHORT_KEY;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_same(&SHORT_KEY, &other));
        }
    }
}
