// SPDX-License-Identifier: GPL-2.0

//! The transport part: requests of all sizes, and on all queues, with patterns that both ends
//! check.

use kernel::{
    page::PAGE_SIZE,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    prelude::*,
    random, //
};
use proto::fabric::{
    command::{
        Data,
        Header, //
    },
    fill::{
        fill,
        first_difference,
        pieces,
        STEP, //
    },
    sizes::Sizes, //
};
use rtrs_client::{
    Kind,
    PageBuffer, //
};

use crate::{
    report::{
        Outcome,
        Report, //
    },
    session::Connected, //
};

/// The size of the requests that each queue is tried with. It is more than a page, so that the data
/// is registered.
const QUEUE_SIZE: u32 = 12 << 10;

/// Writes a pattern, which the server compares. `EILSEQ` if the server finds other bytes. Sleeps.
fn write(connected: &Connected, queue: u32, size: u32) -> Result<Outcome> {
    let seed = random::u64();
    let header = header(seed);
    let data = match size {
        0 => None,
        _ => {
            let mut buffer = PageBuffer::with_len(size as usize)?;
            let mut scratch = KVec::from_elem(0u8, STEP, GFP_KERNEL)?;
            for (place, word) in pieces(size as usize) {
                let bytes = scratch.get_mut(..place.len()).ok_or(EINVAL)?;
                fill(seed, word, bytes);
                buffer.write(place.start, bytes)?;
            }
            Some((buffer, size))
        }
    };
    connected.send(0, Kind::Write, queue, &header, data)?;
    connected.wait(0)?;
    Ok(Outcome::Good)
}

/// Reads a pattern, and compares it. Sleeps.
fn read(connected: &Connected, queue: u32, size: u32) -> Result<Outcome> {
    let seed = random::u64();
    let header = header(seed);
    let data = match size {
        0 => None,
        _ => Some((PageBuffer::with_len(size as usize)?, size)),
    };
    connected.send(0, Kind::Read, queue, &header, data)?;
    let Some(buffer) = connected.wait(0)? else {
        return match size {
            0 => Ok(Outcome::Good),
            _ => Err(EIO),
        };
    };
    let mut scratch = KVec::from_elem(0u8, STEP, GFP_KERNEL)?;
    for (place, word) in pieces(size as usize) {
        let bytes = scratch.get_mut(..place.len()).ok_or(EINVAL)?;
        buffer.read(place.start, bytes)?;
        if let Some(wrong) = first_difference(seed, word, bytes) {
            return Ok(Outcome::WrongBytes(Some(place.start.wrapping_add(wrong))));
        }
    }
    Ok(Outcome::Good)
}

fn header(seed: u64) -> [u8; proto::fabric::command::HEADER_LEN] {
    let data = Data::Checked;
    Header { data, seed }.to_bytes()
}

/// Runs a case, and reports it. Returns the error of the case, or `EINTR` if the test is to stop.
fn case(report: &Report, name: &str, number: u32, run: impl FnOnce() -> Result<Outcome>) -> Result {
    report.go_on()?;
    let began = Instant::<Monotonic>::now();
    let outcome = run().unwrap_or_else(|error| Outcome::of(Err(error)));
    report.case(name, number, outcome, began.elapsed())?;
    match outcome {
        Outcome::Failed(error) => Err(error),
        _ => Ok(()),
    }
}

/// Tries writes and reads of all sizes. Sleeps.
pub(crate) fn sizes(report: &Report, connected: &Connected, mtu: u32) -> Result {
    let sizes = Sizes::around(mtu, PAGE_SIZE as u32, connected.max_size());
    for size in sizes.iter() {
        case(report, "request-write", size, || write(connected, 0, size))?;
        case(report, "request-read", size, || read(connected, 0, size))?;
    }
    Ok(())
}

/// Tries a write and a read on each queue. The number of the case is that of the queue. Sleeps.
///
/// If a queue fails, the other queues are tried all the same. The error is that of the last queue
/// that failed.
pub(crate) fn queues(report: &Report, connected: &Connected) -> Result {
    let size = QUEUE_SIZE.min(connected.max_size());
    let mut result = Ok(());
    for queue in 0..connected.queues().get() {
        for (name, run) in [
            ("queue-write", write as fn(&Connected, u32, u32) -> _),
            ("queue-read", read),
        ] {
            let ended = case(report, name, queue, || run(connected, queue, size));
            if ended.is_err() {
                report.go_on()?;
                result = ended;
            }
        }
    }
    result
}
