// SPDX-License-Identifier: GPL-2.0

//! Whether requests can be sent to a device: one word, as each request reads it.

use kernel_ext::sync::atomic::{
    ordering,
    Atomic, //
};
use proto::device_state::DeviceState;

/// The state of a device, and the number of its requests that were ended here without a response.
///
/// # Invariants
///
/// The lowest byte is a [`DeviceState`]. Above it is the number of unanswered requests: those that
/// were ended while the server may be at work on them. They are at most as many as a session has
/// tags.
pub(crate) struct StateWord(Atomic<u32>);

/// The shift of the number of unanswered requests, and one such request.
const UNANSWERED_SHIFT: u32 = 8;
const UNANSWERED: u32 = 1 << UNANSWERED_SHIFT;

impl StateWord {
    /// The word of a device in `state`, without unanswered requests.
    pub(crate) fn new(state: DeviceState) -> Self {
        // INVARIANT: A state fits into the lowest byte.
        Self(Atomic::new(state.to_u32()))
    }

    /// The state. Any context.
    pub(crate) fn state(&self) -> DeviceState {
        // Only states are stored.
        let state = self.0.load(ordering::Acquire) & (UNANSWERED - 1);
        DeviceState::try_from(state).unwrap_or(DeviceState::Unmapped)
    }

    /// Whether requests may be sent: the device is mapped, and has no unanswered requests. Any
    /// context.
    #[inline(always)]
    pub(crate) fn may_send(&self) -> bool {
        self.0.load(ordering::Acquire) == DeviceState::Mapped.to_u32()
    }

    /// Changes the state from `before`, the present one, to `after`. One caller at a time; any
    /// context.
    pub(crate) fn change(&self, before: DeviceState, after: DeviceState) {
        // INVARIANT: The lowest byte becomes `after`; the upper bytes may change meanwhile.
        let difference = after.to_u32().wrapping_sub(before.to_u32());
        self.0.fetch_add(difference, ordering::Full);
    }

    /// The number of unanswered requests. Any context.
    pub(crate) fn unanswered(&self) -> u32 {
        self.0.load(ordering::Acquire) >> UNANSWERED_SHIFT
    }

    /// Counts a request that is about to be ended without a response. Any context.
    pub(crate) fn add_unanswered(&self) {
        self.0.fetch_add(UNANSWERED, ordering::Full);
    }

    /// Uncounts an unanswered request, at which the server is not at work any more. Returns whether
    /// it was the last one. Any context.
    pub(crate) fn answered(&self) -> bool {
        let before = self.0.fetch_add(UNANSWERED.wrapping_neg(), ordering::Full);
        before >> UNANSWERED_SHIFT == 1
    }
}
