// SPDX-License-Identifier: GPL-2.0

//! Setting counters back.

use super::write::write;
use crate::model::Path;
use crate::model::Side;
use crate::Result;

/// Sets the counters of a path to 0.
pub fn reset(path: &Path) -> Result {
    let what = format!(
        "resetting the counters of path {} of session {}",
        path.name, path.session
    );
    let file = match path.side {
        Side::Client => "stats/reset_all",
        // The server has no other counters.
        Side::Server => "stats/rdma",
    };
    write(&what, &path.folder.join(file), "1", &[])
}
