// SPDX-License-Identifier: GPL-2.0

//! Names of sysfs entries.

use core::ffi::CStr;

use crate::name::{
    Name,
    SessName, //
};

/// The buffer size for the longest [`device_link`].
pub const DEVICE_LINK_LEN: usize = 2 * Name::MAX_LEN + 2;

/// The length of a [`device_link`].
pub(crate) fn device_link_len(device_path: &[u8], sessname: &[u8]) -> usize {
    // A slice is at most `isize::MAX` long, so that two and a byte are at most `usize::MAX`.
    device_path
        .len()
        .wrapping_add(sessname.len())
        .wrapping_add(1)
}

/// Writes the name of a device's link below
/// `/sys/class/rnbd-client/ctl/devices` to `out`: the device's path with `!` for
/// each `/`, `@`, and the session's name.
pub fn device_link<'a>(
    device_path: &Name,
    sessname: &SessName,
    out: &'a mut [u8; DEVICE_LINK_LEN],
) -> &'a CStr {
    let device_path = device_path
        .as_bytes()
        .iter()
        .map(|&byte| if byte == b'/' { b'!' } else { byte });
    let name = device_path
        .chain([b'@'])
        .chain(sessname.as_bytes().iter().copied())
        .chain([0]);
    for (to, byte) in out.iter_mut().zip(name) {
        *to = byte;
    }
    // The buffer holds two of the longest names, '@' and NUL.
    CStr::from_bytes_until_nul(out).unwrap_or(c"")
}
