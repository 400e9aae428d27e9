// SPDX-License-Identifier: GPL-2.0

//! Requests. A chunk holds the data, then the user's message, then the RTRS message. The immediate
//! gives the offset of the RTRS message.
//!
//! ```text
//! | data            | user message | RTRS message |     unused |
//! 0                 data_len       off                        chunk_size
//! ```

use core::{
    fmt,
    ops::Range, //
};

use zerocopy::FromBytes as _;

use super::{
    wire::{
        self,
        MsgType, //
    },
    ChunkLayout,
    SgDesc,
    MAX_HDR_SIZE,
    MSG_NEED_INVAL_F, //
};
use crate::{
    errno::Errno,
    error::ProtoError,
    text::impl_error,
    wire::{
        check_type,
        split,
        to_array, //
    }, //
};

/// The size of the longest RTRS message of a request in bytes.
pub const MAX_MSG_SIZE: usize = ReadMsg::MAX_SIZE;

/// A request for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMsg {
    /// The size of the user's message in bytes.
    pub usr_len: u16,
    /// Whether the response shall invalidate the key of `desc`.
    pub need_inval: bool,
    /// The memory for the data; `None` if the response is only the errno.
    pub desc: Option<SgDesc>,
}

impl ReadMsg {
    /// The size of the longest such message on the wire in bytes.
    pub const MAX_SIZE: usize = size_of::<wire::RdmaRead>();

    /// The size of this message on the wire in bytes.
    #[inline]
    pub const fn size(&self) -> usize {
        match self.desc {
            Some(_) => Self::MAX_SIZE,
            None => size_of::<wire::RdmaReadHdr>(),
        }
    }

    /// Writes the message to the front of `out` and returns its size in bytes.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        let (size, len) = (self.size(), out.len());
        let (bytes, out) = (self.to_bytes(), out.get_mut(..size));
        let (Some(bytes), Some(out)) = (bytes.get(..size), out) else {
            return Err(ProtoError::NoRoom {
                what: "read request",
                len,
                need: size,
            });
        };
        out.copy_from_slice(bytes);
        Ok(size)
    }

    /// The wire form: the first [`Self::size()`] bytes. The other bytes are zero.
    #[inline(always)]
    pub fn to_bytes(&self) -> [u8; Self::MAX_SIZE] {
        // Without a descriptor there is no key to invalidate.
        let need_inval = self.need_inval && self.desc.is_some();
        to_array(&wire::RdmaRead {
            r#type: MsgType::Read.to_wire(),
            usr_len: self.usr_len.into(),
            flags: (if need_inval { MSG_NEED_INVAL_F } else { 0 }).into(),
            sg_cnt: u16::from(self.desc.is_some()).into(),
            addr: self.desc.map_or(0, |desc| desc.addr).into(),
            key: self.desc.map_or(0, |desc| desc.key).into(),
            len: self.desc.map_or(0, |desc| desc.len).into(),
        })
    }
}

/// A request that carries data, or only the user's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMsg {
    /// The size of the user's message in bytes.
    pub usr_len: u16,
}

impl WriteMsg {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::RdmaWrite>();

    /// The wire form.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::RdmaWrite {
            r#type: MsgType::Write.to_wire(),
            usr_len: self.usr_len.into(),
        })
    }
}

/// The fresh key of a chunk, sent with the response to the request in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RkeyRsp {
    /// The number of the chunk.
    pub buf_id: u16,
    /// The chunk's key from now on.
    pub rkey: u32,
}

impl RkeyRsp {
    /// The size on the wire in bytes.
    pub const SIZE: usize = size_of::<wire::RkeyRsp>();

    /// The wire form.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        to_array(&wire::RkeyRsp {
            r#type: MsgType::RkeyRsp.to_wire(),
            buf_id: self.buf_id.into(),
            rkey: self.rkey.into(),
        })
    }

    /// Checks a received message; `bytes` may be longer than the message.
    pub fn parse(bytes: &[u8], layout: &ChunkLayout) -> Result<Self, ProtoError> {
        let what = "rkey response";
        let (msg, _) = split::<wire::RkeyRsp>(bytes, what)?;
        check_type(what, msg.r#type, MsgType::RkeyRsp as u16)?;
        let buf_id = msg.buf_id.get();
        if u32::from(buf_id) >= layout.queue_depth() {
            return Err(ProtoError::bad_field("buf_id of the rkey response", buf_id));
        }
        Ok(Self {
            buf_id,
            rkey: msg.rkey.get(),
        })
    }
}

/// The direction of a request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The server fills the data area and, with a target, sends it to the client.
    Read {
        /// The client's memory for the data; its length is between 1 and `data_len`.
        target: Option<SgDesc>,
        /// Whether the response shall invalidate the key of `target`; false without a target.
        need_inval: bool,
    },
    /// The data area holds the client's data.
    Write,
}

impl Direction {
    fn parse_read(
        hdr: &wire::RdmaReadHdr,
        body: &[u8],
        data_len: u32,
    ) -> Result<Self, RequestError> {
        let bad = |field, value: u32| RequestError::Respond(ProtoError::bad_field(field, value));
        let target = match hdr.sg_cnt.get() {
            0 => None,
            1 => {
                let desc = split::<wire::SgDesc>(body, "descriptor of a read request");
                Some(SgDesc::from(desc.map_err(RequestError::Close)?.0))
            }
            sg_cnt => return Err(bad("sg_cnt of a read request", sg_cnt.into())),
        };
        if let Some(desc) = &target {
            // A longer target would get the bytes behind the data area, too.
            if desc.len == 0 || desc.len > data_len {
                return Err(bad("target length of a read request", desc.len));
            }
        }
        Ok(Self::Read {
            need_inval: target.is_some() && hdr.flags.get() & MSG_NEED_INVAL_F != 0,
            target,
        })
    }
}

/// A request as the server found it in a chunk.
///
/// # Invariants
///
/// `data_len + usr_len` is the offset of the RTRS message, which lies inside
/// the chunk, and `usr_len` is at most [`MAX_HDR_SIZE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    direction: Direction,
    data_len: u32,
    usr_len: u32,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The request is understood but wrong. The response names the request by its chunk's number.
    Respond(ProtoError),
    /// The message is not a request; the path must be closed.
    Close(ProtoError),
}

impl RequestError {
    /// The error number for the response or the log.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Respond(error) | Self::Close(error) => error.errno(),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Respond(error) | Self::Close(error)) = self;
        error.fmt(f)
    }
}

impl_error!(RequestError);

impl Request {
    /// The part of a chunk of `chunk_size` bytes that is copied for [`Request::parse`]; `off` is
    /// the offset from the immediate. Empty if `off` is not inside the chunk.
    #[inline]
    pub fn msg_range(chunk_size: u32, off: u32) -> Range<usize> {
        let Some(room) = chunk_size.checked_sub(off) else {
            return 0..0;
        };
        // The end is at most the size of the chunk.
        let end = off.wrapping_add(room.min(MAX_MSG_SIZE as u32));
        off as usize..end as usize
    }

    /// The request whose RTRS message is `msg`, if it is a valid write, or a valid read with one
    /// target. For `None`, [`Request::parse`] gives the request or the error.
    ///
    /// `msg` is a private copy of the bytes at `off` of a chunk, all inside the chunk.
    #[inline]
    pub fn parse_usual(off: u32, msg: &[u8; MAX_MSG_SIZE]) -> Option<Self> {
        let (hdr, body) = wire::RdmaReadHdr::read_from_prefix(msg).ok()?;
        let usr_len = hdr.usr_len.get();
        if usr_len as usize > MAX_HDR_SIZE as usize {
            return None;
        }
        let usr_len = u32::from(usr_len);
        let data_len = off.checked_sub(usr_len)?;
        let kind = hdr.r#type.get();
        let direction = if kind == MsgType::Write as u16 {
            Direction::Write
        } else if kind == MsgType::Read as u16 && hdr.sg_cnt.get() == 1 {
            let (target, _) = wire::SgDesc::read_from_prefix(body).ok()?;
            let target = SgDesc::from(&target);
            if target.len == 0 || target.len > data_len {
                return None;
            }
            Direction::Read {
                target: Some(target),
                need_inval: hdr.flags.get() & MSG_NEED_INVAL_F != 0,
            }
        } else {
            return None;
        };
        Some(Self {
            direction,
            data_len,
            usr_len,
        })
    }

    /// Checks the RTRS message of a request.
    ///
    /// `msg` is a private copy of [`Request::msg_range`], since the client may be writing to the
    /// chunk meanwhile. For the same reason the caller copies the user's message, at
    /// [`Request::usr_range`], only once.
    #[inline]
    pub fn parse(chunk_size: u32, off: u32, msg: &[u8]) -> Result<Self, RequestError> {
        use RequestError::{Close, Respond};
        let bad = |field, value: u32| ProtoError::bad_field(field, value);
        if off >= chunk_size {
            return Err(Close(bad("offset of an IO request", off)));
        }
        // Bytes of the copy that lie behind the chunk do not count.
        let inside = Self::msg_range(chunk_size, off).len();
        let msg = msg.get(..inside).unwrap_or(msg);
        // Check the frame before what it describes.
        let what = "IO request";
        let (start, _) = split::<wire::RdmaWrite>(msg, what).map_err(Close)?;
        let read = match MsgType::try_from(start.r#type.get()) {
            Ok(MsgType::Read) => {
                Some(split::<wire::RdmaReadHdr>(msg, "read request").map_err(Close)?)
            }
            Ok(MsgType::Write) => None,
            _ => {
                let found = start.r#type.get();
                return Err(Close(ProtoError::BadType { what, found }));
            }
        };
        let usr_len = u32::from(start.usr_len.get());
        let data_len = match off.checked_sub(usr_len) {
            Some(data_len) if usr_len <= MAX_HDR_SIZE => data_len,
            _ => return Err(Respond(bad("usr_len of an IO request", usr_len))),
        };
        let direction = match read {
            None => Direction::Write,
            Some((hdr, body)) => Direction::parse_read(hdr, body, data_len)?,
        };
        Ok(Self {
            direction,
            data_len,
            usr_len,
        })
    }

    /// The direction, with its parameters.
    #[inline]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// The client's memory for the data of a read, if the response needs no invalidation.
    #[inline]
    pub const fn only_target(&self) -> Option<&SgDesc> {
        match &self.direction {
            Direction::Read {
                target: Some(target),
                need_inval: false,
            } => Some(target),
            _ => None,
        }
    }

    /// Whether the request is a read.
    #[inline]
    pub const fn is_read(&self) -> bool {
        matches!(self.direction, Direction::Read { .. })
    }

    /// The size of the data area in bytes. The area begins with the chunk.
    #[inline]
    pub const fn data_len(&self) -> u32 {
        self.data_len
    }

    /// The bytes of data that are transferred: for a write those that arrived, for a read the most
    /// that the client takes.
    #[inline]
    pub const fn transfer_len(&self) -> u32 {
        match &self.direction {
            Direction::Read {
                target: Some(target),
                ..
            } => target.len,
            Direction::Read { target: None, .. } => 0,
            Direction::Write => self.data_len,
        }
    }

    /// The size of the user's message in bytes.
    #[inline]
    pub const fn usr_len(&self) -> u32 {
        self.usr_len
    }

    /// The place of the user's message in the chunk.
    #[inline]
    pub const fn usr_range(&self) -> Range<usize> {
        let start = self.data_len as usize;
        // The end is the offset of the RTRS message.
        start..start.wrapping_add(self.usr_len as usize)
    }
}
