// SPDX-License-Identifier: GPL-2.0

//! The events of a group of a user in C.

use kernel::sync::Arc;
use kernel_ext::{
    module::ModuleReference,
    prelude::*,
    sync::set_once::SetOnce, //
};
use rtrs_client_c::Permits;
use rtrs_group::{
    Ended,
    GroupEvents, //
};

use crate::{
    callbacks::{
        Confirmation,
        FailureCallback, //
    },
    LocalModule, //
};

/// The events of a group, passed on to its user in C.
pub(crate) struct Events {
    fell_behind: Option<FailureCallback>,
    /// Set before the first request is sent.
    pub(crate) permits: SetOnce<Arc<Permits<Confirmation>>>,
}

impl Events {
    /// Makes the events of a group that is about to be made.
    pub(crate) fn new(fell_behind: Option<FailureCallback>) -> Self {
        Self {
            fell_behind,
            permits: SetOnce::new(),
        }
    }
}

impl GroupEvents for Events {
    fn ended(&self, ended: &Ended) {
        let permits = self.permits.as_ref();
        if let Some(confirmation) = permits.and_then(|permits| permits.ended(ended.tag)) {
            confirmation.call(ended);
        }
    }

    fn fell_behind(&self, member: usize, number: u64) {
        if let Some(fell_behind) = &self.fell_behind {
            fell_behind.call(member, number);
        }
    }

    fn module(&self) -> Result<ModuleReference> {
        ModuleReference::new::<LocalModule>()
    }
}
