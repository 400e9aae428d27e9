// SPDX-License-Identifier: GPL-2.0

//! The messages of CSI 1.x that this program uses. The field numbers are those of the public
//! specification (package `csi.v1`). Secrets are in no message: this program needs none, so it does
//! not even read them.

mod controller;
mod identity;
mod node;
mod volume;

pub(crate) use controller::*;
pub(crate) use identity::*;
pub(crate) use node::*;
pub(crate) use volume::*;

pub(crate) use crate::wire::Empty;

/// Names and values that one side tells and the other one keeps.
pub(crate) type Map = std::collections::BTreeMap<String, String>;
