// SPDX-License-Identifier: GPL-2.0

//! What the send queue uses of `rtrs_core/connection.rs`.

/// Every how many responses one is signalled; here each is.
pub(crate) struct SignalInterval;

impl SignalInterval {
    pub(crate) const fn new(_at_most: u32) -> Self {
        Self
    }

    pub(crate) const fn set_for_queue_depth(&self, _queue_depth: u32) {}

    pub(crate) const fn interval(&self) -> u32 {
        1
    }

    pub(crate) fn next_is_signaled(&self) -> bool {
        true
    }
}
