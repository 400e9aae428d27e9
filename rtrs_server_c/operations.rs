// SPDX-License-Identifier: GPL-2.0

//! The operations that the user in C of a session has, from `rdma_ev()` to `rtrs_srv_resp_rdma()`.
//!
//! The user knows an operation by the address of its ticket. The state of the chunk's cell is that
//! address as long as the user has the operation. So an operation that was responded to, or was
//! never handed over, is not found.

use kernel::page::PAGE_SIZE;
use kernel_ext::{
    c_caller::{
        CallbackMemory,
        Handle, //
    },
    prelude::*,
    rdma::chunk::{
        single::Chunk,
        ChunkSet, //
    },
    sync::state_cell::StateCell, //
};
use rtrs_server::Operation;

use crate::tickets::Tickets;

/// The user has no operation of the chunk.
const FREE: u64 = 0;

/// Clears the bytes behind a message that is shorter than the previous one.
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// What is kept for the operation of a chunk.
struct InHand {
    /// `Some` while the user has the operation.
    operation: Option<Operation>,
    /// How many operations were handed over.
    count: usize,
    /// The length of the last message, in bytes; the bytes behind the message are zero.
    message_len: usize,
}

/// The operations of a session, by chunk.
///
/// # Invariants
///
/// - There are as many `messages` as `cells`.
/// - A message is a page to which only the owner of its cell writes. The page is zero from the
///   cell's `message_len` on, unless the user has written there.
pub(crate) struct Operations {
    cells: KVVec<StateCell<InHand>>,
    messages: KVVec<Chunk>,
    tickets: Tickets,
}

/// What the user is told of an operation.
pub(crate) struct HandedOver {
    pub(crate) handle: Handle,
    pub(crate) data: CallbackMemory,
    pub(crate) message: CallbackMemory,
}

impl Operations {
    /// Makes the operations of a session of `depth` chunks. Sleeps.
    pub(crate) fn new(depth: u32) -> Result<Self> {
        let depth = depth as usize;
        let pages = ChunkSet::of_blocks(depth, PAGE_SIZE, -1, None)?;
        let mut cells = KVVec::with_capacity(depth, GFP_KERNEL)?;
        let mut messages = KVVec::with_capacity(depth, GFP_KERNEL)?;
        for index in 0..depth {
            let none = InHand {
                operation: None,
                count: 0,
                message_len: 0,
            };
            cells.push(StateCell::new(none, FREE), GFP_KERNEL)?;
            messages.push(Chunk::new(&pages, index)?, GFP_KERNEL)?;
        }
        // INVARIANT: New pages are zero.
        Ok(Self {
            cells,
            messages,
            tickets: Tickets::new(depth)?,
        })
    }

    /// Keeps an operation of the session at `place` until the user responds. An operation that
    /// cannot be kept is responded to with the error. Any context.
    #[inline]
    pub(crate) fn keep(
        &self,
        place: u16,
        operation: Operation,
        message: &[u8],
    ) -> Option<HandedOver> {
        match self.try_keep(place, operation, message) {
            Ok(handed_over) => Some(handed_over),
            Err((operation, error)) => {
                operation.respond(Err(error));
                None
            }
        }
    }

    #[inline]
    fn try_keep(
        &self,
        place: u16,
        operation: Operation,
        message: &[u8],
    ) -> Result<HandedOver, (Operation, Error)> {
        let chunk = operation.chunk_id();
        let len = operation.data_len() as usize;
        let data = operation.data();
        let data = data.and_then(|data| CallbackMemory::of_data(&data, len));
        let found = (self.cells.get(chunk as usize)).zip(self.messages.get(chunk as usize));
        let (Some(data), Some((cell, page))) = (data, found) else {
            // Not possible: the listener needs chunks of one block.
            return Err((operation, EIO));
        };
        // By the transport's rule there is no other operation of the chunk.
        let Some(mut kept) = cell.take(FREE) else {
            return Err((operation, EBUSY));
        };
        let cleared = match kept.message_len.checked_sub(message.len()) {
            None | Some(0) => Ok(()),
            Some(behind) => clear(page, message.len(), behind),
        };
        let copied = cleared.and_then(|()| page.copy_in(0, message));
        let memory = CallbackMemory::of_chunk(page, message.len());
        let (Ok(()), Some(memory)) = (copied, memory) else {
            return Err((operation, EMSGSIZE));
        };
        kept.message_len = message.len();
        kept.count = kept.count.wrapping_add(1);
        let direction = operation.direction();
        let Some(handle) = self.tickets.write(place, chunk, direction, kept.count) else {
            return Err((operation, EIO));
        };
        kept.operation = Some(operation);
        // The user may respond before it was told.
        kept.put(handle.number());
        Ok(HandedOver {
            handle,
            data,
            message: memory,
        })
    }

    /// Takes out the operation of `chunk` that the user knows as `handle`. Of several callers one
    /// gets the operation. Any context.
    #[inline]
    pub(crate) fn take(&self, chunk: u32, handle: Handle) -> Option<Operation> {
        let cell = self.cells.get(chunk as usize)?;
        if handle == Handle::NULL {
            return None;
        }
        cell.take(handle.number())?.operation.take()
    }
}

/// Clears `len` bytes of `page`. `EMSGSIZE` if a page has fewer.
#[cold]
fn clear(page: &Chunk, offset: usize, len: usize) -> Result {
    page.copy_in(offset, ZEROES.get(..len).ok_or(EMSGSIZE)?)
}
