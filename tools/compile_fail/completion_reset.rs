// SPDX-License-Identifier: GPL-2.0

//! A completion is reset by a plain store, beside those who signal it.

use kernel_ext::sync::completion::Completion;

/// The mistake.
pub fn again(event: &Completion) {
    event.reinit(); //~ E0599
}
