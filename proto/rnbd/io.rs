// SPDX-License-Identifier: GPL-2.0

//! Block operations.

use core::{
    fmt,
    ops::BitOr, //
};

use zerocopy::FromBytes as _;

use super::wire::{
    self,
    MsgHdr,
    MsgType,
    PROTO_VER_MAJOR,
    SECTOR_SIZE, //
};
use crate::{
    error::ProtoError,
    numbered::numbered,
    text::impl_error,
    wire::{
        split,
        to_array, //
    }, //
};

/// The part of `rw` that is the operation (C: `RNBD_OP_MASK`).
const OP_MASK: u32 = 0xff;

numbered! {
    /// A block operation.
    pub enum Op: u8 {
        /// Read sectors.
        Read = 0,
        /// Write sectors.
        Write = 1,
        /// Flush the write cache.
        Flush = 2,
        /// Discard sectors.
        Discard = 3,
        /// Erase sectors for good.
        SecureErase = 4,
        /// Write zeroes without sending them.
        WriteZeroes = 5,
    }
}

impl Op {
    /// Whether the operation changes the device. A flush does not.
    #[inline]
    pub const fn changes_device(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// Flags of an operation; a set of the constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags(u32);

impl IoFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// A process waits for the operation.
    pub const SYNC: Self = Self(1 << 8);
    /// Data must be on the medium before the response.
    pub const FUA: Self = Self(1 << 9);
    /// Flush the write cache first.
    pub const PREFLUSH: Self = Self(1 << 10);
    /// Zeroed blocks stay allocated; only with [`Op::WriteZeroes`].
    pub const NOUNMAP: Self = Self(1 << 11);

    const ALL: u32 = Self::SYNC.0 | Self::FUA.0 | Self::PREFLUSH.0 | Self::NOUNMAP.0;

    /// Whether all flags of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, with `flags` if `condition` holds.
    #[inline]
    #[must_use]
    pub const fn with_if(self, flags: Self, condition: bool) -> Self {
        if condition {
            Self(self.0 | flags.0)
        } else {
            self
        }
    }
}

impl BitOr for IoFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The `rw` field: operation and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rw {
    /// The operation.
    pub op: Op,
    /// Its flags.
    pub flags: IoFlags,
}

impl Rw {
    /// The value on the wire.
    #[inline]
    pub const fn to_wire(self) -> u32 {
        self.op as u32 | self.flags.0
    }
}

impl TryFrom<u32> for Rw {
    type Error = ProtoError;

    /// An unknown operation is an error (C warns and reads instead); unknown flags are dropped, as
    /// in C.
    #[inline]
    fn try_from(value: u32) -> Result<Self, ProtoError> {
        // The mask leaves 8 bits, so the cast loses nothing.
        let op = Op::try_from((value & OP_MASK) as u8)
            .map_err(|_| ProtoError::bad_field("operation of the IO message", value))?;
        Ok(Self {
            op,
            flags: IoFlags(value & IoFlags::ALL),
        })
    }
}

/// A block operation as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The server's number of the open device.
    pub device_id: u32,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// Operation and flags.
    pub rw: Rw,
    /// The length in bytes.
    pub bi_size: u32,
    /// The IO priority; 0 if there is none.
    pub prio: u16,
}

impl Io {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::Io>();

    /// The wire form.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::Io {
            base: wire::IoBase {
                hdr: MsgHdr::new(MsgType::Io),
                device_id: self.device_id.into(),
                sector: self.sector.into(),
                rw: self.rw.to_wire().into(),
                bi_size: self.bi_size.into(),
            },
            prio: self.prio.into(),
            padding: [0; 6],
        })
    }

    /// The message in `bytes`, if it is a valid block operation of the usual size. For `None`,
    /// [`Request::parse`](super::Request::parse) gives the message or the error.
    #[inline]
    pub fn parse_usual(bytes: &[u8]) -> Option<Self> {
        let msg = wire::Io::read_from_bytes(bytes).ok()?;
        if msg.base.hdr.r#type.get() != MsgType::Io as u16 {
            return None;
        }
        Self::of(&msg.base, msg.prio.get()).ok()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ProtoError> {
        let what = "IO message";
        match split::<wire::Io>(bytes, what) {
            Ok((msg, _)) => Self::of(&msg.base, msg.prio.get()),
            Err(_) => Self::of(split(bytes, what)?.0, 0),
        }
    }

    #[inline]
    fn of(base: &wire::IoBase, prio: u16) -> Result<Self, ProtoError> {
        Ok(Self {
            device_id: base.device_id.get(),
            sector: base.sector.get(),
            rw: Rw::try_from(base.rw.get())?,
            bi_size: base.bi_size.get(),
            prio,
        })
    }

    /// The priority to use in a session of protocol version `ver`: before 2 the
    /// field was not defined.
    #[inline]
    pub const fn prio_for(&self, ver: u8) -> u16 {
        if ver < PROTO_VER_MAJOR {
            0
        } else {
            self.prio
        }
    }

    /// Whether this is an ordinary read or write: it has no flag other than [`IoFlags::SYNC`], and
    /// its direction and length are those of the request that carried it.
    ///
    /// The range is not checked here: [`Io::block_op`] gives a [`BlockOp::Read`] or
    /// [`BlockOp::Write`] then, or refuses the range.
    #[inline]
    pub const fn is_plain(&self, is_read: bool, data_len: u32) -> bool {
        let op = if is_read { Op::Read } else { Op::Write };
        self.rw.op as u8 == op as u8
            && self.rw.flags.0 & !IoFlags::SYNC.0 == 0
            && self.bi_size == data_len
            && data_len != 0
    }

    /// Whether this is a write without data that asks for a flush. Such a write is a flush.
    #[inline]
    const fn is_empty_flush(&self, data_len: u32) -> bool {
        matches!(self.rw.op, Op::Write)
            && self.bi_size == 0
            && data_len == 0
            && self.rw.flags.contains(IoFlags::PREFLUSH)
    }

    /// The operation that a reservation allows or forbids, which is the operation of
    /// [`Io::block_op`]. `data_len` is the size of the request's data area.
    pub const fn op_for_access(&self, data_len: u32) -> Op {
        if self.is_empty_flush(data_len) {
            Op::Flush
        } else {
            self.rw.op
        }
    }

    /// The operation that this message and the request that carried it describe
    /// together.
    ///
    /// `is_read` is the direction of the RTRS request, `data_len` the size of its data area. The
    /// message must agree with them: a block request then never has a length without memory behind
    /// it, nor memory of another length.
    #[inline]
    pub fn block_op(&self, is_read: bool, data_len: u32) -> Result<BlockOp, IoError> {
        let mismatch = IoError::Length {
            op: self.rw.op,
            bi_size: self.bi_size,
            data_len,
        };
        let range = match self.rw.op {
            Op::Read | Op::Write => {
                let is_read_op = self.rw.op == Op::Read;
                if self.is_empty_flush(data_len) {
                    return Ok(BlockOp::Flush);
                }
                if is_read_op != is_read {
                    return Err(IoError::Direction(self.rw.op));
                }
                if self.bi_size != data_len {
                    return Err(mismatch);
                }
                None
            }
            Op::Flush if self.bi_size == 0 && data_len == 0 => return Ok(BlockOp::Flush),
            Op::Flush => return Err(mismatch),
            Op::Discard => Some(RangeOp::Discard),
            Op::SecureErase => Some(RangeOp::SecureErase),
            Op::WriteZeroes => Some(RangeOp::WriteZeroes {
                no_unmap: self.rw.flags.contains(IoFlags::NOUNMAP),
            }),
        };
        if range.is_some() && data_len != 0 {
            return Err(mismatch);
        }
        let (sector, len) = (self.sector, self.bi_size);
        let nsectors = u64::from(len / SECTOR_SIZE);
        if len == 0 || len % SECTOR_SIZE != 0 || sector.checked_add(nsectors).is_none() {
            return Err(IoError::Range { sector, len });
        }
        Ok(match (range, self.rw.op) {
            (Some(op), _) => BlockOp::Range { op, sector, len },
            (None, Op::Read) => BlockOp::Read { sector, len },
            (None, _) => BlockOp::Write { sector, len },
        })
    }
}

/// An operation on a range of sectors that moves no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOp {
    /// The sectors are not needed any more.
    Discard,
    /// The sectors must not be recoverable.
    SecureErase,
    /// The sectors shall read as zeroes.
    WriteZeroes {
        /// Whether the sectors stay allocated.
        no_unmap: bool,
    },
}

/// A checked block operation.
///
/// `len` is in bytes, not zero, and a multiple of [`SECTOR_SIZE`]. The range does not wrap around;
/// the block layer checks whether it is on the device. For reads and writes `len` is the size of
/// the request's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// Fill the data area from the device.
    Read {
        /// The first sector.
        sector: u64,
        /// The length in bytes.
        len: u32,
    },
    /// Write the data area to the device.
    Write {
        /// The first sector.
        sector: u64,
        /// The length in bytes.
        len: u32,
    },
    /// Change sectors without data.
    Range {
        /// The operation.
        op: RangeOp,
        /// The first sector.
        sector: u64,
        /// The length in bytes.
        len: u32,
    },
    /// Flush the write cache.
    Flush,
}

/// Why an IO message was refused. C checks only the length, also with `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The operation does not fit the direction of its request.
    Direction(Op),
    /// Message and request disagree about the length.
    Length {
        /// The operation.
        op: Op,
        /// The length in the message.
        bi_size: u32,
        /// The size of the data area.
        data_len: u32,
    },
    /// The range is empty, not of whole sectors, or wraps around.
    Range {
        /// The first sector.
        sector: u64,
        /// The length in bytes.
        len: u32,
    },
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direction(op) => write!(
                f,
                "{op:?} in a request whose data goes in the other direction"
            ),
            Self::Length {
                op,
                bi_size,
                data_len,
            } => write!(
                f,
                "{op:?} of {bi_size} bytes in a request with {data_len} bytes of data"
            ),
            Self::Range { sector, len } => {
                write!(f, "bad range of {len} bytes from sector {sector}")
            }
        }
    }
}

impl_error!(IoError, EINVAL);
