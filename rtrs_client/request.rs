// SPDX-License-Identifier: GPL-2.0

//! One request: what a tag owns from the moment a permit is taken until it is answered.
//!
//! There is one [`Request`] per tag, allocated with the session. It moves as a box: from the
//! session's tag slot into a [`Permit`](crate::Permit), from there into the in-flight slot of a
//! path, and back. Whoever holds the box is the only one who may finish the request.

use kernel::prelude::*;
use kernel_ext::{
    rdma::{
        message_buffers::{
            MessageBuffer,
            Outgoing, //
        },
        Direction,
        MemoryRegion,
        ProtectionDomain, //
    },
    scatterlist::ScatterTable,
    sync::{
        atomic::Atomic,
        box_slot::BoxSlot, //
    }, //
};

/// The longest header of the user, in bytes; an RNBD open message has 264.
pub(crate) const MAX_USER_HEADER: usize = 384;

/// Room for the user's header and the transport's message behind it, in bytes.
pub(crate) const HEADER_BUFFER_SIZE: usize = 512;

/// What a request does with data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The server sends data, if the table of its segments is not empty.
    Read,
    /// The server receives data.
    Write,
    /// There is only a header, sent as a write.
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

/// What a path lends to a request while it carries it.
pub(crate) struct Resources {
    /// Registers the data for the server, or for a write with more segments than the queue pair
    /// takes.
    pub(crate) region: MemoryRegion,
    /// The header as it is sent.
    pub(crate) message: MessageBuffer<Outgoing>,
}

/// The state of a tag that is in use, and the memory it keeps for the next use.
pub(crate) struct Request {
    tag: u32,
    pub(crate) kind: Kind,
    /// Whether the server writes the data to the tag's bounce buffer.
    pub(crate) bounced: bool,
    /// Whether the device sends from the data's own memory, so that its report of that has to come
    /// before the memory is given back.
    pub(crate) sent_from_data: bool,
    /// Whether the region is registered, so that it must be invalidated before the data's memory
    /// is given back.
    pub(crate) registered: bool,
    /// The connection that carries the request: index of the path's connections.
    pub(crate) connection: u32,
    /// The server's answer, kept while the region is being invalidated.
    pub(crate) answer: Result,
    /// What the path that carries the request lent to it.
    pub(crate) resources: Option<KBox<Resources>>,
    data: ScatterTable,
    /// At most [`MAX_USER_HEADER`].
    header_len: u16,
    header: [u8; MAX_USER_HEADER],
}

impl Request {
    /// Allocates the request of `tag`, with room for `max_segments` segments of data. May sleep.
    pub(crate) fn new(tag: u32, max_segments: u16) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                tag,
                kind: Kind::HeaderOnly,
                bounced: false,
                sent_from_data: false,
                registered: false,
                connection: 0,
                answer: Ok(()),
                resources: None,
                data: ScatterTable::new(u32::from(max_segments))?,
                header_len: 0,
                header: [0; MAX_USER_HEADER],
            },
            GFP_KERNEL,
        )?)
    }

    /// The tag, which is the chunk that the request uses on the server.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// The length of the user's header.
    #[inline]
    pub(crate) fn header_len(&self) -> u16 {
        self.header_len
    }

    /// Describes a new request. `EMSGSIZE` if the header is too long.
    #[inline]
    pub(crate) fn prepare(&mut self, kind: Kind, connection: u32, header: &[u8]) -> Result {
        copy_header(&mut self.header, header).ok_or(EMSGSIZE)?;
        // It fits, so it is not that long.
        self.header_len = header.len() as u16;
        self.kind = kind;
        self.connection = connection;
        self.answer = Ok(());
        self.bounced = false;
        self.sent_from_data = false;
        self.registered = false;
        Ok(())
    }

    /// The table of the data's segments, for the user to fill; `None` while it is mapped.
    #[inline]
    pub(crate) fn table(&mut self) -> Option<&mut ScatterTable> {
        if self.data.is_mapped() {
            return None;
        }
        Some(&mut self.data)
    }

    /// The length of the data in bytes; nothing for a header-only request.
    #[inline]
    pub(crate) fn data_len(&self) -> usize {
        if self.kind == Kind::HeaderOnly {
            return 0;
        }
        self.data.byte_len()
    }

    /// Maps the data for the device of `domain`.
    #[inline]
    pub(crate) fn map(&mut self, domain: &ProtectionDomain) -> Result {
        self.data.map(domain, self.kind.dma_direction())
    }

    /// Splits into the data, the lent resources, and the user's header.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&ScatterTable, Option<&mut Resources>, &[u8]) {
        (
            &self.data,
            self.resources.as_deref_mut(),
            self.header
                .get(..usize::from(self.header_len))
                .unwrap_or(&[]),
        )
    }

    /// Unmaps the data, which is mapped for `domain` if at all. The device must not use it any
    /// more.
    #[inline]
    pub(crate) fn unmap(&mut self, domain: &ProtectionDomain) {
        // If it were mapped for another one it would stay, and the memory with it.
        let _ = self.data.unmap(domain);
    }
}

/// The length of the header that nearly all requests have: an RNBD IO message.
const USUAL_HEADER: usize = 32;

/// Copies `header` to the beginning of `out`, and returns what is behind it; nothing if there is no
/// room.
#[inline]
pub(crate) fn copy_header<'a>(out: &'a mut [u8], header: &[u8]) -> Option<&'a mut [u8]> {
    if let Ok(header) = <&[u8; USUAL_HEADER]>::try_from(header) {
        // A copy of known length takes no call.
        let (to, rest) = out.split_first_chunk_mut()?;
        *to = *header;
        return Some(rest);
    }
    copy_unusual_header(out, header)
}

#[cold]
fn copy_unusual_header<'a>(out: &'a mut [u8], header: &[u8]) -> Option<&'a mut [u8]> {
    let (to, rest) = out.split_at_mut_checked(header.len())?;
    to.copy_from_slice(header);
    Some(rest)
}

/// What a path keeps for one tag.
#[repr(align(64))]
pub(crate) struct Tag {
    /// Lent to the tag's request while the path carries it.
    pub(crate) resources: BoxSlot<Resources>,
    /// The request between its submission and the server's answer.
    pub(crate) in_flight: BoxSlot<Request>,
    /// The request between the server's answer and the device's last use of its data: the
    /// invalidation of its registration, or the sending of it.
    pub(crate) answered: BoxSlot<Request>,
    /// How many of the two have come, the server's answer and the device's last use; whoever is
    /// second finishes the request. Of one that is registered, also that it was posted: whoever is
    /// second of that and the answer posts the invalidation.
    pub(crate) ends: Atomic<u32>,
    /// The server's chunk as this path reaches it.
    pub(crate) address: Atomic<u64>,
    /// Changes with every answer if the server invalidates always. Only the owner of the tag
    /// reads it, and only after the answer that changed it.
    pub(crate) rkey: Atomic<u32>,
}

impl Tag {
    /// Makes a tag with `resources` to lend.
    pub(crate) fn new(resources: KBox<Resources>) -> Self {
        Self {
            resources: BoxSlot::new(resources),
            in_flight: BoxSlot::empty(),
            answered: BoxSlot::empty(),
            ends: Atomic::new(0),
            address: Atomic::new(0),
            rkey: Atomic::new(0),
        }
    }
}
