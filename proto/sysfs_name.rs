// SPDX-License-Identifier: GPL-2.0

//! Names of sysfs entries.

use core::{
    ffi::CStr,
    fmt::Write as _, //
};

use crate::{
    name::{
        Name,
        SessName,
        NAME_MAX, //
    },
    text::Text, //
};

/// The buffer size for the longest [`device_link`].
pub const DEVICE_LINK_LEN: usize = 2 * Name::MAX_LEN + 2;

/// The length of a [`device_link`].
pub(crate) fn device_link_len(device_path: &[u8], sessname: &[u8]) -> usize {
    // A slice has at most `isize::MAX` bytes, so two slices and a byte have at most `usize::MAX`.
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

/// The buffer size for the longest [`file_device`]: a file name of sysfs and its NUL.
pub const FILE_DEVICE_LEN: usize = NAME_MAX + 1;

/// The length of `~` and a number in hexadecimal digits.
const SUFFIX_LEN: usize = 17;

/// Writes the name of a file's directory below `/sys/class/rnbd-server/ctl/devices` to `out`: the
/// file's full path with `!` for each `/`.
///
/// The name begins with `!`, which no block device's name does. It has `?` for each control
/// character. Different paths could then have the same name, so a path gets `~` and a number at the
/// end of its name if the path contains `!` or a control character, or is longer than a file name.
/// The number is made of the whole path (64 bits), so a path has the same name always.
///
/// A `number` is at the end of the name in any case: it tells apart files that have, or had, the
/// same path.
pub fn file_device<'a>(
    path: &[u8],
    number: Option<u64>,
    out: &'a mut [u8; FILE_DEVICE_LEN],
) -> &'a CStr {
    let below_root = path.strip_prefix(b"/").unwrap_or(path);
    // The name has a '!' in front of these bytes.
    let differs = below_root.len() >= NAME_MAX
        || below_root
            .iter()
            .any(|byte| *byte == b'!' || byte.is_ascii_control());
    let number = number.or_else(|| differs.then(|| fnv(path)));
    let (room, suffix) = match number {
        Some(number) => {
            let suffix = Text::<{ SUFFIX_LEN + 1 }>::from_fn(|text| write!(text, "~{number:016x}"));
            (NAME_MAX - 1 - SUFFIX_LEN, suffix)
        }
        None => (NAME_MAX - 1, Text::new()),
    };
    let shown = below_root.iter().take(room).map(|&byte| match byte {
        b'/' => b'!',
        byte if byte.is_ascii_control() => b'?',
        byte => byte,
    });
    let name = [b'!']
        .into_iter()
        .chain(shown)
        .chain(suffix.as_bytes().iter().copied())
        .chain([0]);
    for (to, byte) in out.iter_mut().zip(name) {
        *to = byte;
    }
    CStr::from_bytes_until_nul(out).unwrap_or(c"")
}

/// A number made of `bytes` (FNV-1a).
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
