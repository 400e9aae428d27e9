// SPDX-License-Identifier: GPL-2.0

//! The raw part: requests that must fail, with the right error and in time at both ends.

use kernel::{
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    rdma::{
        wc::ErrorStatus,
        RemoteMemory, //
    }, //
};
use proto::fabric::{
    command::{
        Action,
        Command, //
    },
    MESSAGE_SIZE,
    RAW_SIZE,
    RECEIVES, //
};

use crate::{
    connect::Server,
    kinds::Talk,
    report::{
        Outcome,
        Report, //
    }, //
};

/// How long the server may take to notice that its connection has failed, and to say so, in ms. The
/// connection manager repeats a lost message after 4.3 s.
const LEARNS_MS: u32 = 10_000;

/// A request that must fail.
struct Bad {
    name: &'static str,
    /// Makes the request, and everything that it needs before.
    run: fn(&mut Talk<'_>) -> Result,
    /// The errors that the request may end with at this end. None if only the server has an error.
    expected: &'static [ErrorStatus],
    /// Whether the server notices the failure by itself.
    server_learns: bool,
}

/// All requests that must fail.
const ALL: &[Bad] = &[
    Bad {
        name: "wrong-key",
        run: |talk| {
            let to = RemoteMemory {
                // The upper part is the number of the registration.
                rkey: talk.server.rkey ^ 0x5a5a_0000,
                ..talk.server
            };
            write(talk, to, 64)
        },
        expected: &[ErrorStatus::REMOTE_ACCESS],
        server_learns: true,
    },
    Bad {
        name: "beyond-end",
        run: |talk| {
            let address = talk.server.address.wrapping_add(u64::from(RAW_SIZE));
            let to = RemoteMemory {
                // The second half of the data lies behind the registration.
                address: address.wrapping_sub(32),
                ..talk.server
            };
            write(talk, to, 64)
        },
        expected: &[ErrorStatus::REMOTE_ACCESS],
        server_learns: true,
    },
    Bad {
        name: "ended-key",
        run: |talk| {
            talk.command(&Command::new(Action::EndKey, 0, 0))?;
            talk.answer()?;
            let to = talk.server;
            write(talk, to, 64)
        },
        expected: &[ErrorStatus::REMOTE_ACCESS],
        server_learns: true,
    },
    Bad {
        name: "long-message",
        run: |talk| {
            let message = KVVec::from_elem(0u8, MESSAGE_SIZE as usize + 8, GFP_KERNEL)?;
            talk.endpoint.send(&message, None)
        },
        expected: &[
            ErrorStatus::REMOTE_INVALID_REQUEST,
            ErrorStatus::REMOTE_OPERATION,
        ],
        server_learns: true,
    },
    Bad {
        name: "no-receive",
        run: |talk| {
            talk.command(&Command::new(Action::Starve, 0, 0))?;
            talk.answer()?;
            for _ in 0..RECEIVES {
                talk.endpoint.send(&[0], None)?;
            }
            Ok(())
        },
        expected: &[ErrorStatus::NO_RECEIVE],
        server_learns: false,
    },
    Bad {
        name: "late-write",
        // As a response of the transport that comes after the client has taken its memory back.
        run: |talk| {
            talk.endpoint.end_key()?;
            let guard = talk.next_seed();
            talk.endpoint.memory().fill_target(guard, 64)?;
            talk.write_back(Action::Write, 64)?;
            let result = talk.answer().map(drop);
            match talk.endpoint.memory().first_difference(guard, 64)? {
                None => result,
                Some(_) => Err(EILSEQ),
            }
        },
        expected: &[],
        server_learns: true,
    },
];

fn write(talk: &mut Talk<'_>, to: RemoteMemory, len: u32) -> Result {
    let seed = talk.next_seed();
    talk.endpoint.write(to, len, seed, len as usize, None)
}

/// Tries all of these requests, each on a connection of its own. Sleeps. `EINTR` if the test is to
/// stop.
pub(crate) fn run(report: &Report, server: &Server) -> Result {
    for bad in ALL {
        report.go_on()?;
        let (endpoint, offer) = server.connect()?;
        let mut talk = Talk::new(report, endpoint, &offer)?;
        let began = Instant::<Monotonic>::now();
        let outcome = judge(bad, &mut talk);
        let elapsed = began.elapsed();
        let peer = talk.endpoint.peer();
        if let Some(status) = peer.failure() {
            let name = bad.name;
            report.line(fmt!("status {name} {status}\n"))?;
        }
        report.case(bad.name, 0, outcome, elapsed)?;
    }
    Ok(())
}

/// Makes the request, and checks the errors of both ends.
fn judge(bad: &Bad, talk: &mut Talk<'_>) -> Outcome {
    match (bad.run)(talk) {
        Ok(()) => return Outcome::NoError,
        Err(error) if error == EILSEQ => return Outcome::WrongBytes(None),
        // The connection is over, as it must be.
        Err(error) if error == ECONNRESET => {}
        Err(error) => return Outcome::Failed(error),
    }
    let peer = talk.endpoint.peer();
    let is_right = if bad.expected.is_empty() {
        peer.failure().is_none()
    } else {
        let failure = peer.wait_failure(LEARNS_MS);
        let mut expected = bad.expected.iter();
        expected.any(|status| failure == Some(status.number()))
    };
    if !is_right {
        return Outcome::Failed(EPROTO);
    }
    if bad.server_learns && !peer.wait_gone(LEARNS_MS) {
        return Outcome::Failed(ETIMEDOUT);
    }
    Outcome::Good
}
