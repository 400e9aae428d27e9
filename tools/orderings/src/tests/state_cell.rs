// SPDX-License-Identifier: GPL-2.0

//! A value goes to one owner at a time, who sees what the last one did.

use super::{
    beside,
    models,
    Data, //
};
use crate::sync::state_cell::StateCell;
use std::sync::Arc;

/// Two callers want the value in the same state.
fn one_owner() {
    let cell = Arc::new(StateCell::new(Data::new(), 1));
    assert_eq!(cell.state(), 1);
    fn use_once(cell: &StateCell<Data>) -> bool {
        let Some(value) = cell.take(1) else {
            return false;
        };
        value.touch();
        value.put(2);
        true
    }
    let (one, other) = beside(&cell, use_once, use_once);
    assert!(
        one != other,
        "the value had {} owners",
        u32::from(one) + u32::from(other)
    );
    assert_eq!(cell.take(2).map(|value| value.count()), Some(1));
}

/// The second owner takes it in the state in which the first puts it back.
fn handed_on() {
    let cell = Arc::new(StateCell::new(Data::new(), 1));
    assert_eq!(cell.state(), 1);
    beside(
        &cell,
        |cell| {
            let value = cell.take(1).expect("nobody else takes it in this state");
            value.touch();
            value.put(2);
        },
        |cell| {
            if let Some(value) = cell.take(2) {
                value.touch();
            }
        },
    );
}

models! {
    one_has_it: one_owner, AsAsked;
    the_second_sees_what_the_first_did: handed_on, AsAsked;
    handing_on_needs_release_and_acquire: handed_on, Relaxed, fails "Causality violation";
}
