// SPDX-License-Identifier: GPL-2.0

//! A box comes out once, with what was done to it before.

use super::{
    beside,
    models,
    Data, //
};
use crate::sync::box_slot::{
    BoxSlot,
    BoxStack,
    Linked, //
};
use std::sync::Arc;

/// A box is put in while two take.
fn slot() {
    let slot = Arc::new(BoxSlot::<Data>::empty());
    assert!(slot.is_empty());
    fn take(slot: &BoxSlot<Data>) -> u32 {
        slot.take().map_or(0, |value| {
            value.touch();
            value.count()
        })
    }
    let (put, taken) = beside(
        &slot,
        |slot| {
            let value = Box::new(Data::new());
            value.touch();
            assert!(slot.put(value).is_none());
            take(slot)
        },
        take,
    );
    assert_eq!(put + taken, 2, "the box came out other than once");
}

/// Two add to a stack, one of which takes all.
fn stack() {
    let stack = Arc::new(BoxStack::<Data>::new());
    assert!(stack.is_empty());
    fn push(stack: &BoxStack<Data>) {
        let value = Box::new(Linked::new(Data::new()));
        value.touch();
        stack.push(value);
    }
    fn take(stack: &BoxStack<Data>) -> u32 {
        stack.take_all().map(|value| value.count()).sum()
    }
    let (taken, ()) = beside(
        &stack,
        |stack| {
            push(stack);
            take(stack)
        },
        push,
    );
    assert_eq!(taken + take(&stack), 2, "a box came out other than once");
}

models! {
    a_slot_gives_its_box_once: slot, AsAsked;
    a_slot_needs_release_and_acquire: slot, Relaxed, fails "Causality violation";
    a_stack_gives_each_box_once: stack, AsAsked;
    a_stack_needs_release_and_acquire: stack, Relaxed, fails "Causality violation";
}
