// SPDX-License-Identifier: GPL-2.0

//! Opening a device.

use super::{
    wire::{
        self,
        MsgHdr,
        MsgType,
        SECTOR_SIZE, //
    },
    FEATURE_IO_MODE, //
};
use crate::{
    error::ProtoError,
    name::Name,
    numbered::numbered,
    wire::{
        split,
        to_array, //
    }, //
};

numbered! {
    /// How a device is opened.
    pub enum AccessMode: u8 {
        /// Read-only; any number of clients.
        Ro = 0, "ro";
        /// Read-write; one client.
        Rw = 1, "rw";
        /// Read-write next to one other writer, while a virtual machine moves.
        Migration = 2, "migration";
    }
}

impl AccessMode {
    /// The value on the wire.
    pub const fn to_wire(self) -> u8 {
        self as u8
    }

    /// The mode of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut modes = Self::ALL.iter().copied();
        modes.find(|mode| mode.as_str().as_bytes() == name)
    }

    /// Whether the mode does not allow to change the device.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::Ro)
    }
}

numbered! {
    /// How a disk is read and written.
    pub enum IoMode: u8 {
        /// Past the page cache.
        Direct = 0, "direct";
        /// Through the page cache.
        Buffered = 1, "buffered";
    }
}

impl IoMode {
    /// The mode of that name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut modes = Self::ALL.iter().copied();
        modes.find(|mode| mode.as_str().as_bytes() == name)
    }

    /// The value on the wire; 0 for no mode.
    pub fn to_wire(mode: Option<Self>) -> u8 {
        match mode {
            None => 0,
            Some(Self::Direct) => 1,
            Some(Self::Buffered) => 2,
        }
    }

    /// The mode with that value on the wire. `Err` has the value if no mode has it.
    pub fn from_wire(value: u8) -> Result<Option<Self>, u8> {
        match value {
            0 => Ok(None),
            1 => Ok(Some(Self::Direct)),
            2 => Ok(Some(Self::Buffered)),
            _ => Err(value),
        }
    }
}

/// Opens a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// What the client may do with the device.
    pub access_mode: AccessMode,
    /// How the server is to read and write the disk. `None`: as other sessions have the disk open,
    /// otherwise by the server's setting. Only in a session with [`FEATURE_IO_MODE`].
    pub io_mode: Option<IoMode>,
    /// The path below the server's search path.
    pub dev_name: Name,
}

impl Open {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Open>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Open {
            hdr: MsgHdr::new(MsgType::Open),
            access_mode: self.access_mode.to_wire(),
            io_mode: IoMode::to_wire(self.io_mode),
            dev_name: self.dev_name.to_field(),
            reserved: [0; 3],
        })
    }

    // Kept out of line, so that its large values are not on the stack of the IO path.
    #[inline(never)]
    pub(super) fn parse(bytes: &[u8], features: u32) -> Result<Self, ProtoError> {
        let (msg, _) = split::<wire::Open>(bytes, "open message")?;
        let access_mode = AccessMode::try_from(msg.access_mode)
            .map_err(|mode| ProtoError::bad_field("access mode of the open message", mode))?;
        let io_mode = io_mode(msg.io_mode, features, "io mode of the open message")?;
        let dev_name = Name::from_field(&msg.dev_name).map_err(|error| ProtoError::BadName {
            field: "device name of the open message",
            error,
        })?;
        Ok(Self {
            access_mode,
            io_mode,
            dev_name,
        })
    }
}

/// The IO mode in a message of a session with these features.
fn io_mode(value: u8, features: u32, field: &'static str) -> Result<Option<IoMode>, ProtoError> {
    if features & FEATURE_IO_MODE == 0 {
        return Ok(None);
    }
    IoMode::from_wire(value).map_err(|mode| ProtoError::bad_field(field, mode))
}

/// The write cache of the server's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// The device can write through its cache (FUA).
    pub fua: bool,
    /// The device has a volatile cache, which a flush empties.
    pub writeback: bool,
}

impl CachePolicy {
    const FUA: u8 = 1 << 0;
    const WRITEBACK: u8 = 1 << 1;

    const fn to_wire(self) -> u8 {
        (if self.fua { Self::FUA } else { 0 }) | (if self.writeback { Self::WRITEBACK } else { 0 })
    }

    const fn from_wire(value: u8) -> Self {
        Self {
            fua: value & Self::FUA != 0,
            writeback: value & Self::WRITEBACK != 0,
        }
    }
}

/// The response to [`Open`]: the properties of the device.
///
/// Sectors are of 512 bytes, block sizes, granularity and alignment in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRsp {
    /// The server's number of the open device.
    pub device_id: u32,
    /// The size in sectors.
    pub nsectors: u64,
    /// The longest request of the device in sectors; clients do not use it.
    pub max_hw_sectors: u32,
    /// The longest write of zeroes in sectors; 0: it has none.
    pub max_write_zeroes_sectors: u32,
    /// The longest discard, and secure erase, in sectors; 0: it has none.
    pub max_discard_sectors: u32,
    /// The unit of discards.
    pub discard_granularity: u32,
    /// The offset of the first unit of discards.
    pub discard_alignment: u32,
    /// The block size that the device works with; a power of two.
    pub physical_block_size: u32,
    /// The smallest block of a request; a power of two.
    pub logical_block_size: u32,
    /// The most segments of a request of the device; clients do not use it.
    pub max_segments: u32,
    /// Whether sectors can be erased securely.
    ///
    /// C's server sends the low 16 bits of a number of sectors, so some of its devices appear not
    /// to support secure erase though they do.
    pub secure_discard: bool,
    /// The write cache of the device.
    pub cache_policy: CachePolicy,
    /// How the server reads and writes the disk. Only in a session with [`FEATURE_IO_MODE`].
    pub io_mode: Option<IoMode>,
}

const LOGICAL_BLOCK_SIZE: &str = "logical block size of the open response";

impl OpenRsp {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::OpenRsp>();

    /// The most sectors a device can have: its size in bytes fits an `i64`.
    pub const MAX_NSECTORS: u64 = i64::MAX as u64 / SECTOR_SIZE as u64;

    /// The wire form.
    ///
    /// Block sizes of 64 KiB and more do not fit their fields. Such a physical block size is sent
    /// as 32 KiB; such a logical block size is an error.
    pub fn to_bytes(&self) -> Result<[u8; Self::SIZE], ProtoError> {
        let logical_block_size = u16::try_from(self.logical_block_size)
            .map_err(|_| ProtoError::bad_field(LOGICAL_BLOCK_SIZE, self.logical_block_size))?;
        let physical_block_size = u16::try_from(self.physical_block_size).unwrap_or(1 << 15);
        Ok(to_array(&wire::OpenRsp {
            hdr: MsgHdr::new(MsgType::OpenRsp),
            device_id: self.device_id.into(),
            nsectors: self.nsectors.into(),
            max_hw_sectors: self.max_hw_sectors.into(),
            max_write_zeroes_sectors: self.max_write_zeroes_sectors.into(),
            max_discard_sectors: self.max_discard_sectors.into(),
            discard_granularity: self.discard_granularity.into(),
            discard_alignment: self.discard_alignment.into(),
            physical_block_size: physical_block_size.into(),
            logical_block_size: logical_block_size.into(),
            max_segments: u16::try_from(self.max_segments).unwrap_or(u16::MAX).into(),
            secure_discard: u16::from(self.secure_discard).into(),
            obsolete_rotational: 0,
            cache_policy: self.cache_policy.to_wire(),
            io_mode: IoMode::to_wire(self.io_mode),
            reserved: [0; 9],
        }))
    }

    /// The server's number of the device in a response that `parse` refuses, so that the device can
    /// be closed; `None` if the response is too short.
    pub fn device_id_of(bytes: &[u8]) -> Option<u32> {
        let (msg, _) = split::<wire::OpenRsp>(bytes, "open response").ok()?;
        Some(msg.device_id.get())
    }

    /// Checks a received response in a session with these features; `bytes` may be longer than the
    /// response.
    ///
    /// Values that the block layer would refuse are refused here, with the field's name: a logical
    /// block size that is no power of two of at least 512, and more than [`Self::MAX_NSECTORS`]
    /// sectors. A physical block size that is no power of two, or less than the logical block size,
    /// is replaced by the logical block size.
    pub fn parse(bytes: &[u8], features: u32) -> Result<Self, ProtoError> {
        let what = "open response";
        let (msg, _) = split::<wire::OpenRsp>(bytes, what)?;
        msg.hdr.check(what, MsgType::OpenRsp)?;
        let logical_block_size = u32::from(msg.logical_block_size.get());
        if !logical_block_size.is_power_of_two() || logical_block_size < SECTOR_SIZE {
            return Err(ProtoError::bad_field(
                LOGICAL_BLOCK_SIZE,
                logical_block_size,
            ));
        }
        let nsectors = msg.nsectors.get();
        if nsectors > Self::MAX_NSECTORS {
            return Err(ProtoError::bad_field("size of the open response", nsectors));
        }
        let physical_block_size = u32::from(msg.physical_block_size.get());
        let physical_block_size = if physical_block_size.is_power_of_two() {
            physical_block_size.max(logical_block_size)
        } else {
            logical_block_size
        };
        Ok(Self {
            device_id: msg.device_id.get(),
            nsectors,
            max_hw_sectors: msg.max_hw_sectors.get(),
            max_write_zeroes_sectors: msg.max_write_zeroes_sectors.get(),
            max_discard_sectors: msg.max_discard_sectors.get(),
            discard_granularity: msg.discard_granularity.get(),
            discard_alignment: msg.discard_alignment.get(),
            physical_block_size,
            logical_block_size,
            max_segments: msg.max_segments.get().into(),
            secure_discard: msg.secure_discard.get() != 0,
            cache_policy: CachePolicy::from_wire(msg.cache_policy),
            io_mode: io_mode(msg.io_mode, features, "io mode of the open response")?,
        })
    }
}
