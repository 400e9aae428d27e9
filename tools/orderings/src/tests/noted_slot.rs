// SPDX-License-Identifier: GPL-2.0

//! A number that is left for the holder of a box is found by that holder.

use super::{
    beside,
    models,
    Data, //
};
use crate::sync::noted_slot::NotedSlot;
use std::sync::Arc;

/// The holder of the box puts it back while another request comes.
fn note() {
    let slot = Arc::new(NotedSlot::new(Box::new(Data::new())));
    let value = slot.take().expect("the box is there");
    value.touch();
    assert!(slot.put(value).is_ok());
    // A request finds the box and works on it, or leaves a number, on which the holder works, too.
    fn arrive(slot: &NotedSlot<Data>) -> u32 {
        let mut value = match slot.take() {
            Some(value) => value,
            None if slot.note(7) => return 0,
            None => match slot.take() {
                Some(value) => value,
                None => panic!("the box is neither there nor away"),
            },
        };
        let mut worked = 0;
        loop {
            value.touch();
            worked += 1;
            match slot.put(value) {
                Ok(()) => return worked,
                Err((again, number)) => {
                    assert_eq!(number, 7);
                    value = again;
                }
            }
        }
    }
    let (one, other) = beside(&slot, arrive, arrive);
    assert_eq!(one + other, 2, "a request was lost, or done twice");
    assert_eq!(slot.take().map(|value| value.count()), Some(3));
}

models! {
    no_number_is_lost: note, AsAsked;
    the_next_holder_needs_release_and_acquire: note, Relaxed, fails "Causality violation";
}
