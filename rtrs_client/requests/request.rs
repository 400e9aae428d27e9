// SPDX-License-Identifier: GPL-2.0

//! The state that a tag keeps from the moment its permit is taken until the server has responded.

use kernel_ext::{
    page::buffer::PageBuffer,
    prelude::*,
    rdma::Direction,
    scatterlist::ScatterTable, //
};

/// The longest header of the user, in bytes.
pub const MAX_USER_HEADER: usize = 384;

/// Room for the user's header and the transport's message behind it, in bytes.
pub(crate) const HEADER_BUFFER_SIZE: usize = 512;

/// Which way the data of a request goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The server sends data, if the table of segments is not empty.
    Read,
    /// The server receives data.
    Write,
    /// There is no data. The header is sent as a write.
    HeaderOnly,
}

impl Kind {
    /// How the device accesses the data's memory.
    pub(crate) fn dma_direction(self) -> Direction {
        match self {
            Kind::Read => Direction::FromDevice,
            Kind::Write | Kind::HeaderOnly => Direction::ToDevice,
        }
    }
}

/// The request of a tag, and the memory that it keeps for the next use of the tag.
pub(crate) struct Request {
    tag: u32,
    pub(crate) kind: Kind,
    /// The number of the connection that carries the request, with
    /// [`FLAGS`](super::tags::FLAGS).
    pub(crate) connection: u16,
    /// Whether the policy's count of the connection has the request.
    pub(crate) is_in_policy_count: bool,
    /// At most [`MAX_USER_HEADER`].
    header_len: u16,
    /// The data's segments.
    pub(crate) data: ScatterTable,
    /// The memory for late data of a request that the user has abandoned.
    pub(crate) sink: Option<PageBuffer>,
    header: [u8; MAX_USER_HEADER],
}

/// The header length with the fastest copy, in bytes. Nearly all requests of RNBD have it.
pub(crate) const USUAL_HEADER: usize = 32;

impl Request {
    /// Makes the request of `tag`, with room for `max_segments` segments of data. Sleeps.
    pub(crate) fn new(tag: u32, max_segments: u32) -> Result<Self> {
        Ok(Self {
            tag,
            kind: Kind::HeaderOnly,
            connection: 0,
            is_in_policy_count: false,
            header_len: 0,
            data: ScatterTable::new(max_segments)?,
            sink: None,
            header: [0; MAX_USER_HEADER],
        })
    }

    /// The tag. The request uses the server's chunk of the same number.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// The user's header.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        // `header_len` is the length of a header that was copied there.
        self.header
            .get(..usize::from(self.header_len))
            .unwrap_or(&[])
    }

    /// The length of the user's header, in bytes.
    #[inline]
    pub(crate) fn header_len(&self) -> u16 {
        self.header_len
    }

    /// Describes a new request. `EMSGSIZE` if the header is too long.
    #[inline(always)]
    pub(crate) fn prepare(&mut self, kind: Kind, connection: u16, header: &[u8]) -> Result {
        let room = self.header.get_mut(..header.len()).ok_or(EMSGSIZE)?;
        match (
            <&mut [u8; USUAL_HEADER]>::try_from(&mut *room),
            <&[u8; USUAL_HEADER]>::try_from(header),
        ) {
            // A copy of known length takes no call.
            (Ok(room), Ok(header)) => *room = *header,
            _ => room.copy_from_slice(header),
        }
        // The header fits, so its length does, too.
        self.header_len = header.len() as u16;
        self.kind = kind;
        self.connection = connection;
        Ok(())
    }

    /// The length of the data, in bytes. 0 for a header-only request.
    #[inline]
    pub(crate) fn data_len(&self) -> usize {
        if self.kind == Kind::HeaderOnly {
            0
        } else {
            self.data.byte_len()
        }
    }
}
