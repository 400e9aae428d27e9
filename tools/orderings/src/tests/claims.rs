// SPDX-License-Identifier: GPL-2.0

//! A chunk has one owner at a time, and no request for it is forgotten.

use super::{
    beside,
    made,
    models,
    Data, //
};
use crate::{
    chunk::{
        ChunkBox,
        PathChunk, //
    },
    claims::{
        ChunkClaims,
        Next, //
    },
    sync::box_slot::Linked, //
};
use core::pin::Pin;
use std::sync::Arc;

struct Session {
    claims: Pin<Box<ChunkClaims<()>>>,
    chunk: Data,
}

/// A request for chunk 0, and each parked one that it finds when it has finished. How many it has
/// done, and how many responses it has sent.
fn request(session: &Session) -> (u32, u32) {
    let own: ChunkBox<()> = Box::new(Linked::new(PathChunk {
        id: 0,
        entered: None,
    }));
    let mut chunk = if session.claims.claim(0) {
        own
    } else {
        match session.claims.park(own) {
            Some(chunk) => chunk,
            None => return (0, 0),
        }
    };
    let (mut done, mut sent) = (0, 0);
    loop {
        session.chunk.touch();
        done += 1;
        if session.claims.release(0) {
            return (done, sent + 1);
        }
        // Others wait: the response is withheld until all have finished.
        session.claims.withhold(chunk);
        loop {
            match session.claims.next(0) {
                Next::Begin(next) => {
                    chunk = next;
                    break;
                }
                Next::Respond(responses) => sent += responses.count() as u32,
                Next::Free => return (done, sent),
            }
        }
    }
}

/// Two requests for one chunk, by two paths.
fn two_requests() {
    let claims = made(ChunkClaims::new(1).expect("there is memory"));
    assert!(!claims.is_contended(0));
    let session = Arc::new(Session {
        claims,
        chunk: Data::new(),
    });
    let (one, other) = beside(&session, request, request);
    assert_eq!(one.0 + other.0, 2, "a request was forgotten, or done twice");
    assert_eq!(
        one.1 + other.1,
        2,
        "a response was forgotten, or sent twice"
    );
    assert!(session.claims.claim(0), "the chunk is not free");
}

/// A request for a chunk, and the look at what is not finished.
fn request_is_seen() {
    let claims = made(ChunkClaims::new(1).expect("there is memory"));
    assert!(!claims.is_contended(0));
    let session = Arc::new(Session {
        claims,
        chunk: Data::new(),
    });
    let (own, old) = beside(&session, request, |session| session.claims.count_old().0);
    assert_eq!(own, (1, 1), "the request was forgotten, or done twice");
    assert_eq!(old, 0, "the first look cannot find an old request");
    assert!(session.claims.claim(0), "the chunk is not free");
    assert_eq!(
        session.claims.count_old(),
        (0, true),
        "a new request counts as old, or not at all"
    );
    assert_eq!(
        session.claims.count_old(),
        (1, true),
        "an old request is not counted"
    );
}

models! {
    a_request_is_seen: request_is_seen, AsAsked;
    one_owner_at_a_time: two_requests, AsAsked;
    the_next_owner_needs_release_and_acquire: two_requests, Relaxed, fails "Causality violation";
}
