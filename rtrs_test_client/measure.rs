// SPDX-License-Identifier: GPL-2.0

//! The transport part: latency and bandwidth, by size and direction.

use core::num::{
    NonZeroU32,
    NonZeroU64, //
};
use kernel::{
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    cpu,
    prelude::*, //
};
use proto::fabric::{
    command::{
        Data,
        Header, //
    },
    percentile::{
        percentile,
        sort, //
    }, //
};
use rtrs_client::{
    Kind,
    PageBuffer, //
};

use crate::{
    report::Report,
    session::Connected, //
};

/// The sizes for which the latency is measured, in bytes.
const LATENCY_SIZES: [u32; 3] = [1, 4096, 65536];

/// The sizes for which the bandwidth is measured, in bytes, each with a divisor of the whole
/// transfer.
const BANDWIDTH_SIZES: [(u32, u64); 2] = [(4096, 16), (u32::MAX, 1)];

/// Both directions, with their names.
const DIRECTIONS: [(&str, Kind); 2] = [("write", Kind::Write), ("read", Kind::Read)];

const MIB: u64 = 1 << 20;

fn header() -> [u8; proto::fabric::command::HEADER_LEN] {
    let data = Data::Plain;
    Header { data, seed: 0 }.to_bytes()
}

/// Sends `requests` requests of each size and direction, one at a time. Reports `latency` lines:
/// the median, p99, p99.9 and the largest time, in ns. Sleeps.
pub(crate) fn latencies(report: &Report, connected: &Connected, requests: u32) -> Result {
    for size in LATENCY_SIZES {
        let size = size.min(connected.max_size());
        for (name, kind) in DIRECTIONS {
            let mut times = KVVec::with_capacity(requests as usize, GFP_KERNEL)?;
            latency(report, connected, kind, size, requests, &mut times)?;
            sort(&mut times);
            let time = |share| percentile(&times, share).ok_or(EIO);
            let (median, p99) = (time(5_000)?, time(9_900)?);
            let (p999, most) = (time(9_990)?, time(10_000)?);
            report.line(fmt!(
                "latency {name} {size} {requests} {median} {p99} {p999} {most}\n"
            ))?;
        }
    }
    Ok(())
}

fn latency(
    report: &Report,
    connected: &Connected,
    kind: Kind,
    size: u32,
    requests: u32,
    times: &mut KVVec<u32>,
) -> Result {
    let header = header();
    let mut buffer = PageBuffer::with_len(size as usize)?;
    for _ in 0..requests {
        report.go_on()?;
        let queue = cpu::current_cpu() % connected.queues();
        let began = Instant::<Monotonic>::now();
        connected.send(0, kind, queue, &header, Some((buffer, size)))?;
        let back = connected.wait(0)?;
        let ns = began.elapsed().as_nanos();
        buffer = back.ok_or(EIO)?;
        times.push(u32::try_from(ns).unwrap_or(u32::MAX), GFP_KERNEL)?;
    }
    Ok(())
}

/// Transfers data with several requests in flight. Reports `bandwidth` lines: the bytes, and the
/// time that they took in ns. Sleeps.
pub(crate) fn bandwidths(report: &Report, connected: &Connected, mib: u32) -> Result {
    for (size, share) in BANDWIDTH_SIZES {
        let size = size.min(connected.max_size());
        for (name, kind) in DIRECTIONS {
            // At most 2^40.
            let whole = u64::from(mib).wrapping_mul(MIB);
            let bytes = whole.checked_div(share).ok_or(EINVAL)?.max(MIB);
            let count = bytes.div_ceil(u64::from(size.max(1)));
            let began = Instant::<Monotonic>::now();
            transfer(report, connected, kind, size, count)?;
            let ns = began.elapsed().as_nanos();
            let bytes = count.wrapping_mul(u64::from(size));
            report.line(fmt!("bandwidth {name} {size} {bytes} {ns}\n"))?;
        }
    }
    Ok(())
}

/// Sends `count` requests, each when the last request of its tag has ended.
fn transfer(report: &Report, connected: &Connected, kind: Kind, size: u32, count: u64) -> Result {
    let header = header();
    let window = connected.in_flight();
    let mut buffers = KVVec::with_capacity(window.get() as usize, GFP_KERNEL)?;
    for _ in 0..window.get() {
        buffers.push(PageBuffer::with_len(size as usize)?, GFP_KERNEL)?;
    }
    let (mut sent, mut ended) = (0u64, 0u64);
    let mut result = Ok(());
    while ended < sent || (sent < count && result.is_ok()) {
        let in_flight = sent.wrapping_sub(ended);
        let is_next = sent < count && result.is_ok() && in_flight < u64::from(window.get());
        if is_next {
            let Some(buffer) = buffers.pop() else {
                return Err(EIO);
            };
            let tag = tag_of(sent, window);
            // All queues take part.
            let queue = tag % connected.queues();
            let data = Some((buffer, size));
            result = connected.send(tag, kind, queue, &header, data);
            if result.is_ok() {
                sent = sent.wrapping_add(1);
            }
            continue;
        }
        match connected.wait(tag_of(ended, window)) {
            Ok(Some(buffer)) => buffers.push(buffer, GFP_KERNEL)?,
            Ok(None) => result = Err(EIO),
            Err(error) => result = Err(error),
        }
        ended = ended.wrapping_add(1);
        if result.is_ok() {
            result = report.go_on();
        }
    }
    result
}

/// The tag of request `number`: the tags take turns.
fn tag_of(number: u64, window: NonZeroU32) -> u32 {
    (number % NonZeroU64::from(window)) as u32
}
