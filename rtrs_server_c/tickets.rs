// SPDX-License-Identifier: GPL-2.0

//! The handles by which users in C know operations: the address of a ticket, which says where the
//! operation is.
//!
//! The tracepoints of the kernel's rnbd-server read the direction in the ticket
//! (`include/rtrs-srv.h`). Nothing that is read there is trusted: the ticket may be an old one
//! whose memory has another use by now, or there may be no ticket at all. So an operation is only
//! found if its own ticket has that very address.
//!
//! Each chunk has several tickets and uses them in turn. So the next operation has another ticket
//! than an operation that was responded to.

use kernel::page::PAGE_SIZE;
use kernel_ext::{
    c_caller::{
        self,
        Handle, //
    },
    prelude::*,
    rdma::chunk::{
        single::Chunk,
        ChunkSet, //
    }, //
};
use rtrs_server::Direction;

/// The size of a ticket in bytes: the direction, an unused byte, the place of the session, the
/// number of the chunk.
const TICKET: usize = 8;
/// The tickets of a chunk.
const IN_TURN: usize = 16;
/// The number of chunks whose tickets are in a page.
const CHUNKS_IN_PAGE: usize = PAGE_SIZE / (TICKET * IN_TURN);

/// C: `READ` and `WRITE`.
const READ: u8 = 0;
const WRITE: u8 = 1;

/// The tickets of a session.
pub(crate) struct Tickets {
    pages: KVVec<Chunk>,
}

impl Tickets {
    /// Makes the tickets of a session of `depth` chunks. Sleeps.
    pub(crate) fn new(depth: usize) -> Result<Self> {
        let count = depth.div_ceil(CHUNKS_IN_PAGE);
        let set = ChunkSet::of_blocks(count, PAGE_SIZE, -1, None)?;
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            pages.push(Chunk::new(&set, index)?, GFP_KERNEL)?;
        }
        Ok(Self { pages })
    }

    /// Writes the ticket of an operation of `chunk`, of the session at `place`; `count` is one more
    /// than for the chunk's previous operation. `None` if there is no such chunk.
    pub(crate) fn write(
        &self,
        place: u16,
        chunk: u32,
        direction: Direction,
        count: usize,
    ) -> Option<Handle> {
        let (page, within) = (
            chunk as usize / CHUNKS_IN_PAGE,
            chunk as usize % CHUNKS_IN_PAGE,
        );
        let page = self.pages.get(page)?;
        // Within a page: `within` is below `CHUNKS_IN_PAGE`.
        let offset = within
            .wrapping_mul(IN_TURN)
            .wrapping_add(count % IN_TURN)
            .wrapping_mul(TICKET);
        let direction = match direction {
            Direction::Read => READ,
            Direction::Write => WRITE,
        };
        let ([p, q], [a, b, c, d]) = (place.to_le_bytes(), chunk.to_le_bytes());
        let ticket: [u8; TICKET] = [direction, 0, p, q, a, b, c, d];
        page.copy_in(offset, &ticket).ok()?;
        let address = page.address()?.addr().get();
        Some(Handle::new(address.wrapping_add(offset) as u64))
    }
}

/// The place of the session, and the chunk, that the ticket at `handle` names. If there is no such
/// ticket, the result may be anything, or `None`. Any context.
pub(crate) fn read(handle: Handle) -> Option<(u16, u32)> {
    let [_, _, p, q, a, b, c, d]: [u8; TICKET] = c_caller::peek(handle)?;
    Some((u16::from_le_bytes([p, q]), u32::from_le_bytes([a, b, c, d])))
}
