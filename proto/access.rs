// SPDX-License-Identifier: GPL-2.0

//! Who may open a device: any number of readers, one writer, and one more
//! writer in `migration` mode, counted over all sessions.

use core::fmt;

use crate::{
    rnbd::AccessMode,
    text::impl_message,
    Errno, //
};

/// The open writers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writers(u32);

/// Why a device cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// The mode that was asked for.
    pub mode: AccessMode,
    /// The writers there are.
    pub writers: u32,
}

impl Writers {
    /// None.
    pub const NONE: Self = Self(0);

    /// Their number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The writers after another open in `mode`
    /// (C: `rnbd_srv_check_update_open_perm`).
    pub const fn opened(self, mode: AccessMode) -> Result<Self, AccessDenied> {
        let limit = match mode {
            AccessMode::Ro => return Ok(self),
            AccessMode::Rw => 1,
            AccessMode::Migration => 2,
        };
        if self.0 < limit {
            Ok(Self(self.0.saturating_add(1)))
        } else {
            Err(AccessDenied {
                mode,
                writers: self.0,
            })
        }
    }

    /// The writers after one that was opened in `mode` has closed.
    #[must_use]
    pub const fn closed(self, mode: AccessMode) -> Self {
        match mode {
            AccessMode::Ro => self,
            AccessMode::Rw | AccessMode::Migration => Self(self.0.saturating_sub(1)),
        }
    }
}

impl AccessDenied {
    /// What the C modules return: always `EPERM`.
    pub const fn errno(&self) -> Errno {
        Errno::EPERM
    }

    /// Writes the reason.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(
            out,
            "access mode '{}' is not possible, the device is already opened by {} writer(s)",
            self.mode.as_str(),
            self.writers
        )
    }
}

impl_message!(AccessDenied);
