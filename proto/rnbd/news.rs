// SPDX-License-Identifier: GPL-2.0

//! News of the devices that a client has open: how large a disk is now, whether it can be written
//! to, whether it is still there.
//!
//! The server numbers changes within a session. A client asks for the changes since the number that
//! it knows. For each device with such a change it gets the present state only, not the changes
//! that led there. An extension: only in a session with [`FEATURE_NEWS`](super::FEATURE_NEWS).

use zerocopy::FromBytes as _;

use super::{
    wire::{
        self,
        MsgHdr,
        MsgType,
        SECTOR_SIZE, //
    },
    OpenRsp,
    FEATURE_DRAIN, //
};
use crate::{
    error::ProtoError,
    wire::{
        split,
        to_array, //
    }, //
};

/// Not the number of any change. A client that knows of no change asks with this number, and gets
/// every device.
pub const NO_NEWS: u32 = 0;

/// The longest drain that a server announces, in ms: a day.
pub const MAX_DRAIN_MS: u32 = 86_400_000;

/// The number of the change after `sequence`; never [`NO_NEWS`]. Numbers wrap around.
pub const fn next_sequence(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        NO_NEWS => 1,
        next => next,
    }
}

/// Asks for news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// The number of the last change that the client knows of, or [`NO_NEWS`].
    pub since: u32,
    /// The first device id that the response may contain: 0 in the first message, then as
    /// [`NewsRsp::rest`] says.
    pub first_device_id: u32,
}

impl News {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::News>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::News {
            hdr: MsgHdr::new(MsgType::News),
            since: self.since.into(),
            first_device_id: self.first_device_id.into(),
        })
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::News>(bytes, "news message")?;
        Ok(Self {
            since: msg.since.get(),
            first_device_id: msg.first_device_id.get(),
        })
    }

    /// Whether the change `sequence` is new to the client. A change that is more than 2^31 changes
    /// old counts as new.
    pub const fn wants(&self, sequence: u32) -> bool {
        let distance = sequence.wrapping_sub(self.since);
        self.since == NO_NEWS || distance != 0 && distance < 1 << 31
    }
}

/// Why the server has closed a device that its client had open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The server's administrator has closed it.
    Administrator,
    /// The server's administrator has closed the device, and the export policy does not let the
    /// client open the device again with its access mode.
    Policy,
    /// A reason that this end does not know.
    Other,
}

impl CloseReason {
    const fn to_wire(self) -> u8 {
        match self {
            Self::Other => 0,
            Self::Administrator => 1,
            Self::Policy => 2,
        }
    }

    const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Administrator,
            2 => Self::Policy,
            _ => Self::Other,
        }
    }
}

/// The present state of a device's disk.
///
/// Sectors are of 512 bytes; block sizes, granularity and alignment in bytes. A maximum of 0 means
/// that the disk does not have the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNews {
    /// The server's number of the open device.
    pub device_id: u32,
    /// The disk cannot be written, whatever the device was opened for.
    pub read_only: bool,
    /// The disk was removed; the other fields mean nothing.
    pub gone: bool,
    /// The server has closed the device; then both block sizes are 512, and the other fields zero.
    /// Only used in a session with [`FEATURE_CLOSED`](super::FEATURE_CLOSED).
    pub closed: Option<CloseReason>,
    /// The disk has a volatile cache, which a flush empties.
    pub write_cache: bool,
    /// The disk can write through its cache (FUA).
    pub fua: bool,
    /// The disk rotates.
    pub rotational: bool,
    /// The size in sectors.
    pub nsectors: u64,
    /// The longest request in sectors.
    pub max_hw_sectors: u32,
    /// The longest write of zeroes in sectors.
    pub max_write_zeroes_sectors: u32,
    /// The longest discard in sectors.
    pub max_discard_sectors: u32,
    /// The longest secure erase in sectors.
    pub max_secure_erase_sectors: u32,
    /// The unit of discards.
    pub discard_granularity: u32,
    /// The offset of the first unit of discards.
    pub discard_alignment: u32,
    /// The block size that the disk works with; a power of two, not less than the logical block
    /// size.
    pub physical_block_size: u32,
    /// The smallest block of a request; a power of two of at least 512.
    pub logical_block_size: u32,
    /// The most segments of a request.
    pub max_segments: u32,
}

impl DeviceNews {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::DeviceNews>();

    const READ_ONLY: u32 = 1 << 0;
    const GONE: u32 = 1 << 1;
    const WRITE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    const ROTATIONAL: u32 = 1 << 4;
    const CLOSED: u32 = 1 << 5;

    /// The news of a device that the server has closed.
    pub fn closed(device_id: u32, reason: CloseReason) -> Self {
        Self {
            device_id,
            closed: Some(reason),
            // The client refuses block sizes of 0.
            physical_block_size: SECTOR_SIZE,
            logical_block_size: SECTOR_SIZE,
            ..Self::default()
        }
    }

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.read_only, Self::READ_ONLY)
            | flag(self.gone, Self::GONE)
            | flag(self.write_cache, Self::WRITE_CACHE)
            | flag(self.fua, Self::FUA)
            | flag(self.rotational, Self::ROTATIONAL)
            | flag(self.closed.is_some(), Self::CLOSED);
        to_array(&wire::DeviceNews {
            device_id: self.device_id.into(),
            flags: flags.into(),
            nsectors: self.nsectors.into(),
            max_hw_sectors: self.max_hw_sectors.into(),
            max_write_zeroes_sectors: self.max_write_zeroes_sectors.into(),
            max_discard_sectors: self.max_discard_sectors.into(),
            max_secure_erase_sectors: self.max_secure_erase_sectors.into(),
            discard_granularity: self.discard_granularity.into(),
            discard_alignment: self.discard_alignment.into(),
            physical_block_size: self.physical_block_size.into(),
            logical_block_size: self.logical_block_size.into(),
            max_segments: self.max_segments.into(),
            close_reason: self.closed.map_or(0, CloseReason::to_wire),
            reserved: [0; 11],
        })
    }

    /// Checks a record. Values that the block layer would refuse are refused here, see
    /// [`OpenRsp::parse`], except of a removed disk, whose values mean nothing. Unknown flags are
    /// dropped.
    fn of(record: &wire::DeviceNews) -> Result<Self, ProtoError> {
        let bad = |field, value: u64| Err(ProtoError::bad_field(field, value));
        let flags = record.flags.get();
        let has = |flag: u32| flags & flag != 0;
        let closed = has(Self::CLOSED).then(|| CloseReason::from_wire(record.close_reason));
        if has(Self::GONE) {
            return Ok(Self {
                device_id: record.device_id.get(),
                gone: true,
                closed,
                logical_block_size: SECTOR_SIZE,
                physical_block_size: SECTOR_SIZE,
                ..Self::default()
            });
        }
        let nsectors = record.nsectors.get();
        if nsectors > OpenRsp::MAX_NSECTORS {
            return bad("size in the news response", nsectors);
        }
        let logical_block_size = record.logical_block_size.get();
        if !logical_block_size.is_power_of_two() || logical_block_size < SECTOR_SIZE {
            return bad(
                "logical block size in the news response",
                logical_block_size.into(),
            );
        }
        let physical_block_size = match record.physical_block_size.get() {
            size if size.is_power_of_two() => size.max(logical_block_size),
            _ => logical_block_size,
        };
        Ok(Self {
            device_id: record.device_id.get(),
            read_only: has(Self::READ_ONLY),
            gone: false,
            closed,
            write_cache: has(Self::WRITE_CACHE),
            fua: has(Self::FUA),
            rotational: has(Self::ROTATIONAL),
            nsectors,
            max_hw_sectors: record.max_hw_sectors.get(),
            max_write_zeroes_sectors: record.max_write_zeroes_sectors.get(),
            max_discard_sectors: record.max_discard_sectors.get(),
            max_secure_erase_sectors: record.max_secure_erase_sectors.get(),
            discard_granularity: record.discard_granularity.get(),
            discard_alignment: record.discard_alignment.get(),
            physical_block_size,
            logical_block_size,
            max_segments: record.max_segments.get(),
        })
    }
}

/// The front of the response to [`News`]; the records of the devices follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewsHeader {
    /// The number of the last change in the session.
    pub sequence: u32,
    /// The number of records, at most [`NewsRsp::MAX_COUNT`].
    pub count: u16,
    /// More devices follow in the next response, after the last device of this response.
    pub more: bool,
    /// How long the client shall wait for the server, in ms, from 1 to [`MAX_DRAIN_MS`]; `None` if
    /// the server does not drain, or in a session without [`FEATURE_DRAIN`].
    pub drain_ms: Option<u32>,
}

impl NewsHeader {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::NewsRspHdr>();

    const MORE: u16 = 1 << 0;
    const DRAINING: u16 = 1 << 1;

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let more = if self.more { Self::MORE } else { 0 };
        let (draining, drain_ms) = match self.drain_ms {
            Some(ms) => (Self::DRAINING, ms),
            None => (0, 0),
        };
        to_array(&wire::NewsRspHdr {
            hdr: MsgHdr::new(MsgType::NewsRsp),
            sequence: self.sequence.into(),
            count: self.count.into(),
            flags: (more | draining).into(),
            drain_ms: drain_ms.into(),
        })
    }
}

/// The response to [`News`], as the client has received it.
///
/// # Invariants
///
/// - The records pass [`DeviceNews::of`], and are in the order of their device ids, each once.
/// - `more` is only set if there is a record, and its device id is not the last possible one.
#[derive(Clone, Copy)]
pub struct NewsRsp<'a> {
    sequence: u32,
    more: bool,
    /// The drain in the header; not checked.
    drain_ms: Option<u32>,
    records: &'a [wire::DeviceNews],
}

impl<'a> NewsRsp<'a> {
    /// The most records of a response, so that it is no longer than a page of 4 KiB.
    pub const MAX_COUNT: usize = 63;

    /// The size of the longest response in bytes.
    pub const MAX_SIZE: usize = Self::size(Self::MAX_COUNT);

    /// The size of a response with `count` records, at most [`Self::MAX_COUNT`], in bytes. This is
    /// also the offset of record number `count`.
    pub const fn size(count: usize) -> usize {
        // At most a page.
        NewsHeader::SIZE.wrapping_add(count.wrapping_mul(DeviceNews::SIZE))
    }

    /// The most records of a response that has `room` bytes; `None` if `room` is not enough for one
    /// record.
    pub fn count_in(room: usize) -> Option<usize> {
        let records = room.checked_sub(NewsHeader::SIZE)?;
        let count = records.checked_div(DeviceNews::SIZE)?.min(Self::MAX_COUNT);
        (count > 0).then_some(count)
    }

    /// Checks a received response to `request`; `bytes` may be longer than the response.
    ///
    /// Refuses records that make no sense, and device ids that do not rise or that are below the
    /// first device id of `request`. A response that announces more devices is refused if it has no
    /// records, or has the last possible device id. So a client that goes on asking comes to an
    /// end.
    pub fn parse(bytes: &'a [u8], request: &News) -> Result<Self, ProtoError> {
        let what = "news response";
        let bad = |field, value: u64| Err(ProtoError::bad_field(field, value));
        let (hdr, body) = split::<wire::NewsRspHdr>(bytes, what)?;
        hdr.hdr.check(what, MsgType::NewsRsp)?;
        let count = usize::from(hdr.count.get());
        if count > Self::MAX_COUNT {
            return bad("count of the news response", hdr.count.get().into());
        }
        let (records, _) =
            <[wire::DeviceNews]>::ref_from_prefix_with_elems(body, count).map_err(|_| {
                ProtoError::TooShort {
                    what,
                    len: bytes.len(),
                    need: Self::size(count),
                }
            })?;
        let mut least = Some(request.first_device_id);
        for record in records {
            let news = DeviceNews::of(record)?;
            if least.is_none_or(|least| news.device_id < least) {
                return bad("device id in the news response", news.device_id.into());
            }
            least = news.device_id.checked_add(1);
        }
        let more = hdr.flags.get() & NewsHeader::MORE != 0;
        if more && (records.is_empty() || least.is_none()) {
            return bad(
                "count of the news response that goes on",
                hdr.count.get().into(),
            );
        }
        // INVARIANT: The records, their order and `more` were checked above.
        Ok(Self {
            sequence: hdr.sequence.get(),
            more,
            drain_ms: (hdr.flags.get() & NewsHeader::DRAINING != 0).then_some(hdr.drain_ms.get()),
            records,
        })
    }

    /// The number of the last change in the session when the server responded.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// How long the client shall wait for the server, in ms, from 1 to [`MAX_DRAIN_MS`]; `None` if
    /// the server does not drain. `features` are those of the session; without [`FEATURE_DRAIN`]
    /// the result is `None`.
    ///
    /// A time of 0, or above [`MAX_DRAIN_MS`], is refused.
    pub fn drain_ms(&self, features: u32) -> Result<Option<u32>, ProtoError> {
        match self.drain_ms.filter(|_| features & FEATURE_DRAIN != 0) {
            Some(ms) if ms == 0 || ms > MAX_DRAIN_MS => {
                Err(ProtoError::bad_field("drain of the news response", ms))
            }
            told => Ok(told),
        }
    }

    /// The message that asks for the rest; `None` if the response was all. `request` is the message
    /// that this responds to.
    pub fn rest(&self, request: &News) -> Option<News> {
        let last = self.records.last().filter(|_| self.more)?;
        Some(News {
            first_device_id: last.device_id.get().checked_add(1)?,
            ..*request
        })
    }

    /// The devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceNews> + 'a {
        // By the type's invariant no record is left out.
        self.records.iter().flat_map(DeviceNews::of)
    }

    /// The news of the device with this number, if the response has them.
    pub fn device(&self, device_id: u32) -> Option<DeviceNews> {
        let found = self
            .records
            .binary_search_by_key(&device_id, |record| record.device_id.get());
        DeviceNews::of(self.records.get(found.ok()?)?).ok()
    }
}
