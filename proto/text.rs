// SPDX-License-Identifier: GPL-2.0

//! Text in a buffer of fixed size, for names and log lines.

use core::{
    ffi::CStr,
    fmt, //
};

/// The buffer size of an error message in bytes; longer messages are cut.
pub const MESSAGE_LEN: usize = 200;

/// Text of at most `N - 1` bytes, kept NUL-terminated.
///
/// Writing never fails: text that does not fit is cut off, and so is all text from a NUL on. The
/// type replaces a heap string. It carries an error's message to a log macro of the kernel
/// (`text.as_str()`), which does not take types that have only `core`'s `Display`.
///
/// # Invariants
///
/// `len < N`, `buf[..len]` is UTF-8 without NUL, `buf[len..]` is zero.
#[derive(Clone)]
pub struct Text<const N: usize> {
    buf: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    /// Empty text.
    pub const fn new() -> Self {
        const { assert!(N > 0) };
        Self {
            buf: [0; N],
            len: 0,
            cut: false,
        }
    }

    /// The text that `write` writes.
    pub fn from_fn(write: impl FnOnce(&mut Self) -> fmt::Result) -> Self {
        let mut text = Self::new();
        // `write_str` below never fails.
        let _ = write(&mut text);
        text
    }

    /// The text that `value` displays.
    pub fn of(value: &impl fmt::Display) -> Self {
        Self::from_fn(|out| fmt::Write::write_fmt(out, format_args!("{value}")))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        as_str(self.as_bytes())
    }

    /// The text as bytes, without NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }

    /// The text as a C string.
    pub fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.buf).unwrap_or(c"")
    }

    /// Whether text was cut off.
    pub const fn is_cut(&self) -> bool {
        self.cut
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // Once cut, nothing follows: a later short piece must not close the gap.
        if !self.cut {
            // The last byte always stays NUL.
            let free = self.buf.get_mut(self.len..);
            let kept = match free.and_then(<[u8]>::split_last_mut) {
                Some((_, free)) => append(free, s),
                None => 0,
            };
            self.len = self.len.wrapping_add(kept);
            self.cut = kept < s.len();
        }
        Ok(())
    }
}

/// Copies as much of `s` to the beginning of `free` as fits: whole characters, and nothing from a
/// NUL on. Returns the number of bytes.
fn append(free: &mut [u8], s: &str) -> usize {
    let text = s.split('\0').next().unwrap_or(s);
    let longest = text.len().min(free.len());
    let fits = (0..=longest).rev().find_map(|len| text.get(..len));
    let bytes = fits.unwrap_or("").as_bytes();
    if let Some(to) = free.get_mut(..bytes.len()) {
        to.copy_from_slice(bytes);
    }
    bytes.len()
}

/// The bytes of a [`Text`]. Out of line, as each log line calls it.
#[inline(never)]
fn as_str(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or("")
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> PartialEq for Text<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for Text<N> {}

/// Displays bytes of unknown origin in a way that cannot disturb a log: bytes that are not
/// printable ASCII are escaped, and at most 64 bytes are shown.
pub struct Untrusted<'a>(pub &'a [u8]);

impl fmt::Display for Untrusted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        match self.0.split_at_checked(SHOWN) {
            Some((head, [_, ..])) => write!(f, "{}...", head.escape_ascii()),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

/// The parts of `text` before and behind the first `byte`.
pub(crate) fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    let (before, rest) = text.split_at_checked(at)?;
    Some((before, rest.split_first()?.1))
}

/// Gives a type with `Display` the functions of an error: `message()`, [`core::error::Error`], and
/// `errno()` if the name of an error number follows.
macro_rules! impl_error {
    ($type:ident $(<$life:lifetime>)? $(, $errno:ident)?) => {
        impl $(<$life>)? $type $(<$life>)? {
            /// The message as text, for a log line.
            pub fn message(&self) -> $crate::text::Text<{ $crate::text::MESSAGE_LEN }> {
                $crate::text::Text::of(self)
            }

            $(
                /// The error number, the same for all reasons, as in the C modules.
                pub const fn errno(&self) -> $crate::Errno {
                    $crate::Errno::$errno
                }
            )?
        }

        impl $(<$life>)? core::error::Error for $type $(<$life>)? {}
    };
}
pub(crate) use impl_error;
