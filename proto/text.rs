// SPDX-License-Identifier: GPL-2.0

//! Text in a buffer of fixed size, for names and log lines.

use core::{
    ffi::CStr,
    fmt, //
};

/// Text of at most `N - 1` bytes, kept NUL-terminated.
///
/// Writing more than fits keeps what fits and remembers that something was cut;
/// it never fails. This is what stands in for a heap string here, and what
/// carries an error's text to a kernel log macro (`text.as_str()`), whose
/// `Display` is not the one of `core`.
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

    /// Text made by a function that writes, such as the `write_to` of the types
    /// in this crate.
    pub fn from_fn(write: impl FnOnce(&mut Self) -> fmt::Result) -> Self {
        let mut text = Self::new();
        // `write_str` below never fails.
        let _ = write(&mut text);
        text
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or("")
    }

    /// The text as bytes, without NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }

    /// The text as a C string.
    pub fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.buf).unwrap_or(c"")
    }

    /// Whether something did not fit and was cut off.
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
        for c in s.chars() {
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            let end = self.len.saturating_add(utf8.len());
            // Once cut, nothing follows: a later short piece must not close the gap.
            if self.cut || c == '\0' || end >= N {
                self.cut = true;
                break;
            }
            if let Some(to) = self.buf.get_mut(self.len..end) {
                to.copy_from_slice(utf8);
                self.len = end;
            }
        }
        Ok(())
    }
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

/// Implements `message()`, [`core::fmt::Display`] and [`core::error::Error`] for
/// an error that has `write_to`.
macro_rules! impl_message {
    ($type:ident $(<$life:lifetime>)?) => {
        impl $(<$life>)? $type $(<$life>)? {
            /// The message as text, for a log line.
            pub fn message(&self) -> $crate::text::Text<{ $crate::text::MESSAGE_LEN }> {
                $crate::text::Text::from_fn(|out| self.write_to(out))
            }
        }

        impl $(<$life>)? core::fmt::Display for $type $(<$life>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.write_to(f)
            }
        }

        impl $(<$life>)? core::error::Error for $type $(<$life>)? {}
    };
}
pub(crate) use impl_message;

/// The buffer size of an error message in bytes; longer ones are cut.
pub const MESSAGE_LEN: usize = 200;

/// Writes bytes of unknown origin so that they cannot disturb a log: what is
/// not printable ASCII is escaped, and no more than 64 bytes are shown.
pub fn write_untrusted(out: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    const SHOWN: usize = 64;
    match bytes.get(..SHOWN) {
        Some(head) if bytes.len() > SHOWN => write!(out, "{}...", head.escape_ascii()),
        _ => write!(out, "{}", bytes.escape_ascii()),
    }
}
