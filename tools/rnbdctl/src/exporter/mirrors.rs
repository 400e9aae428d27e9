// SPDX-License-Identifier: GPL-2.0

//! The metrics of mirrors, from the kernel's files and this machine's records. No disk is read.

use std::fmt;

use super::metrics::labels;
use super::metrics::Labels;
use super::metrics::Writer;
use crate::mirror::array::Array;
use crate::mirror::array::MemberState;
use crate::mirror::View;

/// Writes the metrics of these mirrors.
pub(super) fn write(out: &mut Writer<'_>, mirrors: &[View]) -> fmt::Result {
    let running = mirrors
        .iter()
        .map(|view| (own(view), u64::from(view.array.is_some())));
    out.gauge(
        "rnbd_mirror_running",
        "Whether the mirror runs on this machine",
        running,
    )?;
    let broken = mirrors.iter().filter_map(|view| {
        let array = view.array.as_ref()?;
        Some((own(view), u64::from(array.is_broken())))
    });
    out.gauge(
        "rnbd_mirror_broken",
        "Whether the mirror has lost its last leg, and its writes fail",
        broken,
    )?;
    let legs = mirrors.iter().map(|view| {
        (
            own(view),
            u64::try_from(view.record.wanted()).unwrap_or_default(),
        )
    });
    out.gauge("rnbd_mirror_legs", "Legs that the mirror shall have", legs)?;
    let in_sync = mirrors.iter().flat_map(|view| {
        let legs = view.record.legs.iter().zip(&view.legs);
        legs.map(|(record, leg)| {
            let all = [
                ("mirror", view.record.name.as_str()),
                ("session", &record.name.session),
                ("device_path", &record.name.disk),
            ];
            (
                labels(all),
                u64::from(leg.member == Some(MemberState::InSync)),
            )
        })
    });
    out.gauge(
        "rnbd_mirror_leg_in_sync",
        "Whether the leg is in the running mirror and has all data",
        in_sync,
    )?;
    let progress = |value: fn(&Array) -> Option<u64>| {
        let values = mirrors.iter();
        values.filter_map(move |view| Some((own(view), value(view.array.as_ref()?)?)))
    };
    out.gauge(
        "rnbd_mirror_copy_done_bytes",
        "Bytes of a leg that md has copied or compared; absent while md does neither",
        progress(|array| array.progress.map(|(done, _)| done)),
    )?;
    out.gauge(
        "rnbd_mirror_copy_total_bytes",
        "Bytes of a leg that md has to copy or compare in all",
        progress(|array| array.progress.map(|(_, all)| all)),
    )
}

fn own(view: &View) -> Labels {
    labels([("mirror", view.record.name.as_str())])
}
