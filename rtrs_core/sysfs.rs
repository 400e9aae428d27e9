// SPDX-License-Identifier: GPL-2.0

//! Text that users write to sysfs files.

/// Whether `written` is `text`, with or without a newline at its end (C: `sysfs_streq`).
pub fn is_text(written: &[u8], text: &str) -> bool {
    written.strip_suffix(b"\n").unwrap_or(written) == text.as_bytes()
}
