// SPDX-License-Identifier: GPL-2.0

//! No response waits while there is room for it, and none stays behind when a burst has ended.

use super::{
    beside,
    made,
    models, //
};
use crate::{
    send_queue::SendQueue,
    sync::box_slot::Linked, //
};
use core::pin::Pin;
use std::sync::Arc;

type Queue = Pin<Box<SendQueue<u32>>>;

fn queue(credits: u32) -> Arc<Queue> {
    let queue = made(SendQueue::<u32>::new(true));
    queue.open(credits, 2);
    // Each variable is looked at before there is a second thread.
    queue.give_credits(0);
    assert!(!queue.has_waiting() && !queue.is_collecting() && !queue.has_collected());
    Arc::new(queue)
}

/// Sends what waits, as far as there is room.
fn send(queue: &Queue) -> u32 {
    core::iter::from_fn(|| queue.next_waiting()).count() as u32
}

/// A response finds no room while room comes back.
fn room() {
    let queue = queue(0);
    let (one, other) = beside(
        &queue,
        |queue| {
            queue.wait(Box::new(Linked::new(1)));
            send(queue)
        },
        |queue| {
            queue.give_credits(1);
            send(queue)
        },
    );
    assert_eq!(
        one + other,
        1,
        "the response waits while there is room, or was sent twice"
    );
}

/// A response is collected while the burst ends.
fn burst() {
    let queue = queue(2);
    assert!(queue.begin_burst());
    let (one, other) = beside(
        &queue,
        |queue| {
            queue.end_burst();
            queue.take_collected().count()
        },
        |queue| {
            let response = Box::new(Linked::new(1));
            if !queue.is_collecting() {
                // It is sent on its own.
                return 1;
            }
            if queue.collect(response) {
                return 0;
            }
            queue.take_collected().count()
        },
    );
    assert_eq!(
        one + other,
        1,
        "the response stayed behind, or was sent twice"
    );
}

models! {
    no_response_waits_while_there_is_room: room, AsAsked;
    that_needs_a_full_barrier: room, WithoutBarriers, fails "waits while there is room";
    nothing_stays_behind_after_a_burst: burst, AsAsked;
    that_needs_release_and_acquire: burst, Relaxed, fails "stayed behind";
}
