// SPDX-License-Identifier: GPL-2.0

//! Machines, as reservations know them.

use kernel::{
    fmt,
    sync::Arc, //
};
use kernel_ext::prelude::*;
use proto::{
    name::SessName,
    rnbd::Host, //
};

/// A client's machine, as far as the client has told.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Name>);

/// What a machine is known by.
#[derive(PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // Each is an allocation of its own.
enum Name {
    Host(Host),
    Session(SessName),
}

impl Machine {
    /// The machine that calls itself `host`, or is known by its session. Sleeps.
    pub(crate) fn new(host: Option<&Host>, session: &SessName) -> Result<Self> {
        let name = host.map_or_else(|| Name::Session(*session), |host| Name::Host(*host));
        Ok(Self(Arc::new(name, GFP_KERNEL)?))
    }
}

impl PartialEq for Machine {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Name::Host(host) => core::write!(f, "host {host}"),
            Name::Session(session) => core::write!(f, "session {}", **session),
        }
    }
}
