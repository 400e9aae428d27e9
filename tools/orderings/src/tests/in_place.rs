// SPDX-License-Identifier: GPL-2.0

//! A path gets keys for the chunks when no write has its data in one of them.

use super::{
    beside,
    models,
    Data, //
};
use crate::in_place::InPlace;
use std::sync::Arc;

struct Session {
    in_place: InPlace,
    chunk: Data,
}

/// A write uses its chunk while another path is established, which may then write to it.
fn second_path() {
    let session = Arc::new(Session {
        in_place: InPlace::new(),
        chunk: Data::new(),
    });
    // Each variable is looked at before there is a second thread.
    assert!(session.in_place.is_empty());
    let (wakes, is_free) = beside(
        &session,
        |session| {
            if session.in_place.enter() {
                session.chunk.touch();
            }
            session.in_place.leave()
        },
        |session| {
            session.in_place.end();
            let is_free = session.in_place.is_empty();
            if is_free {
                session.chunk.touch();
            }
            is_free
        },
    );
    assert!(
        wakes || is_free,
        "the path waits for a write that has ended"
    );
}

models! {
    a_path_waits_for_writes: second_path, AsAsked;
    that_needs_a_full_barrier: second_path, WithoutBarriers, fails "Causality violation";
}
