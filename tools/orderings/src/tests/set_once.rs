// SPDX-License-Identifier: GPL-2.0

//! A value that is seen was written before.

use super::{
    beside,
    models,
    Data, //
};
use crate::sync::set_once::SetOnce;
use std::sync::Arc;

/// One sets the value, and one looks.
fn set() {
    let once = Arc::new(SetOnce::<Data>::new());
    assert!(SetOnce::as_ref(&once).is_none());
    let (_, seen) = beside(
        &once,
        |once| {
            let value = Data::new();
            value.touch();
            assert!(once.populate(value));
        },
        |once| once.as_ref().map(Data::count),
    );
    assert!(
        seen.is_none_or(|count| count == 1),
        "seen before it was written"
    );
}

models! {
    what_is_seen_was_written: set, AsAsked;
    seeing_needs_release_and_acquire: set, Relaxed, fails "Causality violation";
}
