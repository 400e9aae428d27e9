// SPDX-License-Identifier: GPL-2.0

//! One request: what a tag owns from the moment a permit is taken until it is answered.
//!
//! There is one [`Request`] per tag, allocated with the session. It moves as a box: from the
//! session's tag slot into a [`Permit`](crate::Permit), from there into the in-flight slot of a
//! path, and back. Whoever holds the box is the only one who may finish the request.

use core::mem;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    message_buffers::MessageBuffer,
    rdma::{
        Direction,
        MemoryRegion,
        ProtectionDomain, //
    },
    scatterlist::{
        MappedScatter,
        ScatterTable, //
    },
    slot::BoxSlot, //
};

/// The longest header of the user, in bytes; an RNBD open message has 264.
pub(crate) const MAX_USER_HEADER: usize = 384;

/// Room for the user's header and the transport's message behind it, in bytes.
pub(crate) const HEADER_BUFFER_SIZE: usize = 512;

/// What a request does with data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The server sends data.
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

/// The memory that the data of a request lies in.
enum Data {
    /// The table may be filled by the user.
    Table(ScatterTable),
    /// The table is mapped for the device of a path.
    Mapped(MappedScatter),
    /// Only seen while the table moves from one of the forms above to the other.
    Moving,
}

/// What a path lends to a request while it carries it.
pub(crate) struct Resources {
    /// Registers the data for the server, or for a write with more segments than the queue pair
    /// takes.
    pub(crate) region: MemoryRegion,
    /// The header as it is sent.
    pub(crate) message: MessageBuffer,
}

/// The state of a tag that is in use, and the memory it keeps for the next use.
pub(crate) struct Request {
    tag: u32,
    data: Data,
    header: [u8; MAX_USER_HEADER],
    header_len: usize,
    pub(crate) kind: Kind,
    /// What the path that carries the request lent to it.
    pub(crate) resources: Option<KBox<Resources>>,
    /// Whether the server writes the data to the tag's bounce buffer.
    pub(crate) bounced: bool,
    /// Whether the region is registered, so that it must be invalidated before the data's memory
    /// is given back.
    pub(crate) registered: bool,
    /// The server's answer, kept while the region is being invalidated.
    pub(crate) answer: Result,
    /// The connection that carries the request: index of the path's connections.
    pub(crate) connection: usize,
}

impl Request {
    /// Allocates the request of `tag`, with room for `max_segments` segments of data. May sleep.
    pub(crate) fn new(tag: u32, max_segments: u16) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                tag,
                data: Data::Table(ScatterTable::new(u32::from(max_segments))?),
                header: [0; MAX_USER_HEADER],
                header_len: 0,
                kind: Kind::HeaderOnly,
                resources: None,
                bounced: false,
                registered: false,
                answer: Ok(()),
                connection: 0,
            },
            GFP_KERNEL,
        )?)
    }

    /// The tag, which is the chunk that the request uses on the server.
    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }

    /// The user's header.
    pub(crate) fn header(&self) -> &[u8] {
        self.header.get(..self.header_len).unwrap_or(&[])
    }

    /// Describes a new request. `EMSGSIZE` if the header is too long.
    pub(crate) fn prepare(&mut self, kind: Kind, connection: usize, header: &[u8]) -> Result {
        let Some(room) = self.header.get_mut(..header.len()) else {
            return Err(EMSGSIZE);
        };
        room.copy_from_slice(header);
        self.header_len = header.len();
        self.kind = kind;
        self.connection = connection;
        self.answer = Ok(());
        self.bounced = false;
        self.registered = false;
        Ok(())
    }

    /// The table of the data's segments, for the user to fill.
    pub(crate) fn table(&mut self) -> Option<&mut ScatterTable> {
        match &mut self.data {
            Data::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The length of the data in bytes; nothing for a header-only request.
    pub(crate) fn data_len(&self) -> usize {
        match (&self.data, self.kind) {
            (_, Kind::HeaderOnly) | (Data::Moving, _) => 0,
            (Data::Table(table), _) => table.byte_len(),
            (Data::Mapped(mapped), _) => mapped.byte_len(),
        }
    }

    /// Maps the data for the device of `domain`.
    pub(crate) fn map(&mut self, domain: &Arc<ProtectionDomain>) -> Result {
        let Data::Table(table) = mem::replace(&mut self.data, Data::Moving) else {
            return Err(EINVAL);
        };
        match table.map(domain, self.kind.dma_direction()) {
            Ok(mapped) => {
                self.data = Data::Mapped(mapped);
                Ok(())
            }
            Err((table, error)) => {
                self.data = Data::Table(table);
                Err(error)
            }
        }
    }

    /// Splits into the mapped data, the lent resources, and the user's header.
    pub(crate) fn parts(&mut self) -> (Option<&MappedScatter>, Option<&mut Resources>, &[u8]) {
        let mapped = match &self.data {
            Data::Mapped(mapped) => Some(mapped),
            _ => None,
        };
        (
            mapped,
            self.resources.as_deref_mut(),
            self.header.get(..self.header_len).unwrap_or(&[]),
        )
    }

    /// Unmaps the data. The device must not use it any more.
    pub(crate) fn unmap(&mut self) {
        self.data = match mem::replace(&mut self.data, Data::Moving) {
            Data::Mapped(mapped) => Data::Table(mapped.unmap()),
            other => other,
        };
    }
}

/// What a path keeps for one tag.
pub(crate) struct TagSlots {
    /// Lent to the tag's request while the path carries it.
    pub(crate) resources: BoxSlot<Resources>,
    /// The request between its submission and the server's answer.
    pub(crate) in_flight: BoxSlot<Request>,
    /// The request between the server's answer and the end of its invalidation.
    pub(crate) invalidating: BoxSlot<Request>,
}

impl TagSlots {
    /// Makes the slots of a tag with `resources` to lend.
    pub(crate) fn new(resources: KBox<Resources>) -> Self {
        Self {
            resources: BoxSlot::new(resources),
            in_flight: BoxSlot::empty(),
            invalidating: BoxSlot::empty(),
        }
    }
}
