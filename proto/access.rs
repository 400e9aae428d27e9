// SPDX-License-Identifier: GPL-2.0

//! The sessions that may open a device: any number of readers, one writer, and a second writer in
//! `migration` mode, counted over all sessions.

use core::fmt;

use crate::{
    rnbd::AccessMode,
    text::impl_error, //
};

/// The number of open writers of a device, at most 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writers(u32);

/// Why a device cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// The mode that was asked for.
    pub mode: AccessMode,
    /// The number of open writers.
    pub writers: u32,
}

impl Writers {
    /// No writer.
    pub const NONE: Self = Self(0);

    /// The number of writers.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number of writers after another client opens the device in `mode` (C:
    /// `rnbd_srv_check_update_open_perm`).
    pub const fn opened(self, mode: AccessMode) -> Result<Self, AccessDenied> {
        match (mode, self.0) {
            (AccessMode::Ro, _) => Ok(self),
            (AccessMode::Rw | AccessMode::Migration, 0) => Ok(Self(1)),
            (AccessMode::Migration, 1) => Ok(Self(2)),
            (_, writers) => Err(AccessDenied { mode, writers }),
        }
    }

    /// The number of writers after a client that opened the device in `mode` has closed it.
    #[must_use]
    pub const fn closed(self, mode: AccessMode) -> Self {
        match (mode, self.0) {
            (AccessMode::Ro, _) => self,
            (_, 2) => Self(1),
            (_, _) => Self::NONE,
        }
    }
}

impl fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "access mode '{}' is not possible, the device is already opened by {} writer(s)",
            self.mode.as_str(),
            self.writers
        )
    }
}

impl_error!(AccessDenied, EPERM);
