// SPDX-License-Identifier: GPL-2.0

//! Actions on a device that this server exports.

use super::write;
use crate::model::Export;
use crate::Result;

/// Closes a device that a client has mapped; the client's requests fail until it remaps the device.
pub fn force_close(device: &str, export: &Export) -> Result {
    let what = format!("closing {device} of session {}", export.session);
    write::write(&what, &export.folder.join("force_close"), "1", &[])
}
