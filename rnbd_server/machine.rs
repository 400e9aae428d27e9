// SPDX-License-Identifier: GPL-2.0

//! Machines, as reservations know them.

use kernel::{
    fmt,
    sync::Arc, //
};
use kernel_ext::prelude::*;
use proto::{
    name::SessName,
    reservation_state::MachineName,
    rnbd::Host, //
};

/// A client's machine, as far as the client has told.
#[derive(Clone)]
pub(crate) struct Machine(Arc<MachineName>);

impl Machine {
    /// The machine that calls itself `host`, or is known by its session. Sleeps.
    pub(crate) fn new(host: Option<&Host>, session: &SessName) -> Result<Self> {
        Self::of(host.map_or_else(
            || MachineName::Session(*session),
            |host| MachineName::Host(*host),
        ))
    }

    /// The machine with this name. Sleeps.
    pub(crate) fn of(name: MachineName) -> Result<Self> {
        Ok(Self(Arc::new(name, GFP_KERNEL)?))
    }

    /// The name by which reservations know the machine.
    pub(crate) fn name(&self) -> &MachineName {
        &self.0
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(&*self.0, f)
    }
}
