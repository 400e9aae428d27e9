// SPDX-License-Identifier: GPL-2.0

//! A box that must stay with its thread is passed on to another one.

use kernel_ext::sync::box_slot::BoxSlot;

fn share<T: Sync>(_: &T) {}

/// The mistake.
pub fn pass_on(slot: &BoxSlot<*const u32>) {
    share(slot); //~ E0277
}
