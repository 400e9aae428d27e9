// SPDX-License-Identifier: GPL-2.0

//! Points at which a test has the program die, to see that the next call goes on from there.
//!
//! They do something only in a program that was built with the feature `failure-points`, and there
//! only if `RNBD_CSI_FAIL_AT` names the point. Each point is behind a step that outlives the
//! program.

/// All points, by service.
#[cfg(any(test, feature = "failure-points"))]
pub(crate) const POINTS: &[&str] = &[
    "mirror.noted",
    "mirror.mapped",
    "mirror.started",
    "mirror.stopped",
    "mirror.unmapped",
    "mirror.parked",
    "mirror.grown",
    "stage.mapped",
    "stage.formatted",
    "stage.mounted",
    "unstage.unmounted",
    "unstage.unmapped",
    "publish.created",
    "publish.bound",
    "unpublish.unmounted",
    "unpublish.removed",
    "expand.grown",
    "create.allocated",
    "create.zeroed",
    "create.named",
    "extend.grown",
    "delete.renamed",
    "delete.removed",
    "leg.made",
    "leg.grown",
    "leg.deleted",
];

/// The program dies here if it is to.
#[cfg(feature = "failure-points")]
pub(crate) fn point(name: &str) {
    assert!(POINTS.contains(&name), "{name} is not in the list");
    if std::env::var_os("RNBD_CSI_FAIL_AT").is_some_and(|wanted| wanted == name) {
        // As a kill: nothing is tidied up.
        std::process::abort();
    }
}

/// Nothing happens here.
#[cfg(not(feature = "failure-points"))]
pub(crate) fn point(_name: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_the_code() {
        let sources = [
            include_str!("controller/mirrored.rs"),
            include_str!("device/mirror.rs"),
            include_str!("node/stage.rs"),
            include_str!("node/publish.rs"),
            include_str!("node/expand.rs"),
            include_str!("store/files.rs"),
            include_str!("store/lvm.rs"),
        ]
        .concat();
        for name in POINTS {
            let call = format!("fail::point(\"{name}\")");
            assert!(sources.contains(&call), "{name} is nowhere");
        }
    }
}
