// SPDX-License-Identifier: GPL-2.0

//! News of the devices that a session has open: the changes, and what the client is told of them.
//!
//! Nothing here waits for a disk, so a disk that hangs is looked at like any other disk.

use kernel_ext::{
    pr_err_ratelimited,
    prelude::*, //
};
use proto::{
    drain::told_ms,
    rnbd::{
        next_sequence,
        CloseReason,
        DeviceNews,
        News,
        NewsHeader,
        NewsRsp,
        FEATURE_CLOSED,
        FEATURE_DRAIN,
        NO_NEWS, //
    }, //
};
use rtrs_server::Operation;

use crate::{
    handle::HandleUse,
    session::Session,
    session_device::{
        Noted,
        SessionDevice, //
    }, //
};

/// The present state of a disk. From now on requests of the session can use the size that it says.
fn state_of(device_id: u32, handle_use: &HandleUse) -> DeviceNews {
    // The size comes before the question whether the disk is gone: see `BlockDevice::is_gone`.
    let nsectors = handle_use.update_size();
    let limits = handle_use.limits();
    let disk = handle_use.disk();
    DeviceNews {
        device_id,
        read_only: disk.is_read_only(),
        gone: disk.is_gone(),
        closed: None,
        write_cache: limits.write_cache,
        fua: limits.fua,
        rotational: limits.rotational,
        nsectors,
        max_hw_sectors: limits.max_hw_sectors,
        max_write_zeroes_sectors: limits.max_write_zeroes_sectors,
        max_discard_sectors: limits.max_discard_sectors,
        max_secure_erase_sectors: limits.max_secure_erase_sectors,
        discard_granularity: limits.discard_granularity,
        discard_alignment: limits.discard_alignment,
        physical_block_size: limits.physical_block_size,
        logical_block_size: limits.logical_block_size,
        max_segments: limits.max_segments,
    }
}

/// The present state of a device's disk; `None` if the device is being drained or closed.
fn look(device: &SessionDevice) -> Option<DeviceNews> {
    let device_use = device.enter_within(0).ok()?;
    Some(state_of(device.id(), &device_use))
}

/// Notes the state of a device that the client has opened, as a change that the client may ask for.
/// Sleeps, but does not wait for disks.
pub(crate) fn opened(session: &Session, device: &SessionDevice) {
    let mut last = session.last_news().lock();
    if let Some(state) = look(device) {
        *last = next_sequence(*last);
        *device.noted().lock() = Noted {
            state,
            sequence: *last,
        };
    }
}

/// Notes that a device is about to be closed by force, if the client takes such news; the watch
/// rings. Sleeps, but does not wait for disks.
pub(crate) fn closing(session: &Session, device_id: u32, reason: CloseReason) {
    if session.features() & FEATURE_CLOSED == 0 {
        return;
    }
    let mut last = session.last_news().lock();
    let sequence = next_sequence(*last);
    let noted = Noted {
        state: DeviceNews::closed(device_id, reason),
        sequence,
    };
    // Without memory the client learns of the close by errors.
    if session.devices().note_closed(device_id, noted).is_ok() {
        *last = sequence;
    }
}

/// Compares the disks of a session with their noted states. Returns the number of the change if
/// there is one; all disks have the same number. Sleeps, but does not wait for disks.
pub(crate) fn compare(session: &Session) -> Option<u32> {
    let mut last = session.last_news().lock();
    let sequence = next_sequence(*last);
    let mut is_changed = false;
    session.devices().find(|device| {
        if let Some(state) = look(device) {
            let mut noted = device.noted().lock();
            if noted.state != state {
                *noted = Noted { state, sequence };
                is_changed = true;
            }
        }
        false
    });
    if is_changed {
        *last = sequence;
    }
    // A forced close has used up its number already.
    let is_closed = session.devices().take_closed();
    (is_changed || is_closed).then_some(*last)
}

/// Uses up the number of a change without a change, so that the client asks when it is rung with
/// the number. Returns the number. Sleeps, but does not wait for disks.
pub(crate) fn call(session: &Session) -> u32 {
    let mut last = session.last_news().lock();
    *last = next_sequence(*last);
    *last
}

/// How long the client is told to wait, if it knows of drains and the server is draining.
fn drain_ms(session: &Session) -> Option<u32> {
    if session.features() & FEATURE_DRAIN == 0 {
        return None;
    }
    session.server().drain().left_ms().map(told_ms)
}

/// Responds to a client that asks for news. Sleeps, but does not wait for disks.
pub(crate) fn answer(session: &Session, op: Operation, request: &News) {
    let result = write_answer(session, &op, request).inspect_err(|error| {
        pr_err_ratelimited!(
            "session {:?}: sending the client news of its disks failed: {:?}\n",
            session.name().as_cstr(),
            error
        );
    });
    op.respond(result);
}

/// Writes the response, and returns its length in bytes. `EMSGSIZE` if the client left no room for
/// a single device.
fn write_answer(session: &Session, op: &Operation, request: &News) -> Result<u32> {
    let room = NewsRsp::count_in(op.data_len() as usize).ok_or(EMSGSIZE)?;
    // Locked to the end, so that the number fits the records.
    let last = session.last_news().lock();
    let mut count = 0usize;
    let mut more = false;
    let mut result = Ok(());
    session
        .devices()
        .find_noted_from(request.first_device_id, |device_id, noted| {
            // A device that is being opened has no noted state yet.
            if noted.sequence == NO_NEWS || !request.wants(noted.sequence) {
                return false;
            }
            if count == room {
                more = true;
                return true;
            }
            let record = DeviceNews {
                device_id,
                ..noted.state
            };
            result = op.write_response_at(NewsRsp::size(count), &record.to_bytes());
            // At most `room`.
            count = count.wrapping_add(1);
            result.is_err()
        });
    result?;
    let header = NewsHeader {
        sequence: *last,
        count: u16::try_from(count)?,
        more,
        drain_ms: drain_ms(session),
    };
    op.write_response(&header.to_bytes())?;
    Ok(u32::try_from(NewsRsp::size(count))?)
}
