// SPDX-License-Identifier: GPL-2.0

//! Requests that the user has abandoned, although the server may still be at work on them.
//!
//! The user gets its memory back when no device can reach it. If the data was copied or has been
//! written, that is at once; otherwise when the registration is invalid. Then other memory, the
//! sink, is registered under the same key, at the same address. So the data of a late read goes to
//! the sink, and causes no error that would cost the path.
//!
//! The tag and the server's chunk stay in use until the server has responded. If the path is lost
//! before, no response comes. Then the tag is free when the same path is up again, because a
//! server, also C's, refuses a path whose requests are still at work.

use kernel_ext::{
    page::buffer::PageBuffer,
    prelude::*,
    rdma::{
        Access,
        Handler,
        QueuePairRef,
        SendBatch,
        SendRoom, //
    },
    sync::state_cell::Owned, //
};
use rtrs_core::connection::SERVICE_CID;

use super::{
    request::{
        Kind,
        Request, //
    },
    response::Mismatch,
    submit::Posted,
    tags::{
        IncarnationNumber,
        Phase,
        FLAGS,
        MOVED, //
    },
    Chunk,
    PathRequests, //
};
use crate::work::WorkKind;

impl PathRequests {
    /// Returns the connection that carries request `number`, with [`FLAGS`](super::tags::FLAGS), if
    /// the request can be abandoned. That is so if the server has not responded, if the device has
    /// no write of the data's own memory left to do, and if the request has [`MOVED`] as `moved`
    /// says.
    pub(crate) fn abandonable_on(&self, number: u32, moved: bool) -> Option<u16> {
        let state = self.tags.get(number)?.state();
        let can_be = [Phase::Sent, Phase::DirectWritten, Phase::Registered];
        let phase = self.incarnation.phase_of(state)?;
        let connection = IncarnationNumber::connection_of(state);
        // A request on the service connection gets no note when it is sent again.
        let may_be = connection & !FLAGS != SERVICE_CID;
        let is_same = may_be && (connection & MOVED != 0) == moved;
        (is_same && can_be.contains(&phase)).then_some(connection)
    }

    /// Abandons request `number`, if [it can be](Self::abandonable_on), and returns whether it
    /// could. `cid_and_flags` is the connection of `queue_pair` with the request's `FLAGS`.
    /// `committed` is called if the request is abandoned, before the server's response can be
    /// noticed. Any context; the path must not be taken down meanwhile.
    pub(crate) fn abandon<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        cid_and_flags: u16,
        number: u32,
        sink: PageBuffer,
        committed: impl FnOnce(),
    ) -> (bool, Posted) {
        let state = |phase| self.incarnation.state(cid_and_flags, phase);
        let (Some(cell), Some(chunk)) = (self.tags.get(number), self.chunks.get(number as usize))
        else {
            return (false, Posted::All);
        };
        let idle = cell
            .take_notable(state(Phase::Sent))
            .or_else(|| cell.take_notable(state(Phase::DirectWritten)));
        if let Some(mut request) = idle {
            committed();
            self.left(&mut request);
            self.release(chunk, &mut request);
            if let Err(request) = request.put_unless_noted(state(Phase::Abandoned)) {
                self.close_request(chunk, request);
            }
            return (true, Posted::All);
        }
        let Some(mut request) = cell.take_notable(state(Phase::Registered)) else {
            return (false, Posted::All);
        };
        committed();
        self.left(&mut request);
        request.sink = Some(sink);
        if let Err(request) = request.put_unless_noted(state(Phase::Revoking)) {
            request.put(state(Phase::Closing));
        }
        match self.post_invalidation(queue_pair, number) {
            Ok(()) => (true, Posted::All),
            Err(_) => (true, Posted::Broken),
        }
    }

    /// Gives the user its data back. No device uses the data.
    fn release(&self, chunk: &Chunk, request: &mut Request) {
        // If the region says that a device does, the table keeps the data until the path is torn
        // down.
        let _ = chunk.region.unmap(&mut request.data);
        request.data.clear();
    }

    /// Handles a response to request `number` on connection `cid`, that of `queue_pair`, as
    /// [`Self::responded`]. The user has abandoned the request, or is just abandoning it. A
    /// response to a request that is just being abandoned is taken from any connection.
    #[cold]
    pub(super) fn responded_late<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        cid: u16,
        number: u32,
        invalidated: bool,
    ) -> Result<(), Mismatch> {
        let (Some(cell), Some(chunk)) = (self.tags.get(number), self.chunks.get(number as usize))
        else {
            return Err(Mismatch::Unknown);
        };
        // The mark does not say on which connection the response came, and nothing else says so
        // while the request is being abandoned. A server that responds on a wrong connection only
        // ends its own work on its own chunk early, as it can on the right connection, too.
        if cell.note() {
            // The party that abandons the request does the rest.
            return Ok(());
        }
        // Read only now: the party that abandoned the request may just have put it back.
        let cid_and_flags = self.cid_and_flags(number, cid);
        let state = |phase| self.incarnation.state(cid_and_flags, phase);
        if let Some(request) = cell.take(state(Phase::Abandoned)) {
            self.close_request(chunk, request);
            return Ok(());
        }
        if cell.change(state(Phase::Revoking), state(Phase::Closing)) {
            return Ok(());
        }
        if cell.change(state(Phase::Sunk), state(Phase::Closing)) {
            if invalidated && queue_pair.peer_ended(&chunk.region) {
                self.close(chunk, cid_and_flags, number);
                return Ok(());
            }
            let posted = self.post_invalidation(queue_pair, number);
            return posted.map_err(|_| Mismatch::Unposted);
        }
        Err(match self.incarnation.phase_of(cell.state()) {
            Some(phase) if phase.awaits_response() => Mismatch::Misdirected,
            Some(Phase::Abandoned | Phase::Revoking | Phase::Sunk) => Mismatch::Misdirected,
            _ => Mismatch::Unknown,
        })
    }

    /// Handles the end of a registration of request `number`, which connection `cid` carries and
    /// the user has abandoned: the registration is invalid. Completion context. `Unposted` if the
    /// queue pair takes no work requests.
    #[cold]
    pub(super) fn revoked<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        cid: u16,
        number: u32,
    ) -> Result<(), Mismatch> {
        let cid_and_flags = self.cid_and_flags(number, cid);
        let state = |phase| self.incarnation.state(cid_and_flags, phase);
        let (Some(cell), Some(chunk)) = (self.tags.get(number), self.chunks.get(number as usize))
        else {
            return Ok(());
        };
        let Some(mut request) = cell.take_notable(state(Phase::Revoking)) else {
            self.close(chunk, cid_and_flags, number);
            return Ok(());
        };
        self.release(chunk, &mut request);
        let sunk = match request.sink.take() {
            Some(sink) if request.kind == Kind::Read => {
                Self::sink(queue_pair, chunk, &mut request, sink)
            }
            _ => Ok(false),
        };
        match sunk {
            Ok(true) => {}
            Ok(false) => {
                // Data of a read that still comes then ends the path.
                if let Err(request) = request.put_unless_noted(state(Phase::Abandoned)) {
                    self.close_request(chunk, request);
                }
                return Ok(());
            }
            Err(_) => {
                // The sink is mapped until the teardown of the path.
                if let Err(request) = request.put_unless_noted(state(Phase::Sunk)) {
                    request.put(state(Phase::Closing));
                }
                return Err(Mismatch::Unposted);
            }
        }
        if let Err(request) = request.put_unless_noted(state(Phase::Sunk)) {
            request.put(state(Phase::Closing));
            let posted = self.post_invalidation(queue_pair, number);
            return posted.map_err(|_| Mismatch::Unposted);
        }
        Ok(())
    }

    /// Registers `sink` in place of the data of `request`, whose registration is invalid. Returns
    /// whether that was possible; if not, nothing is mapped. The error is that of posting the
    /// registration; after an error the path is of no use.
    fn sink<H: Handler>(
        queue_pair: &QueuePairRef<H>,
        chunk: &Chunk,
        request: &mut Request,
        sink: PageBuffer,
    ) -> Result<bool> {
        let region = &chunk.region;
        let (address, len) = region.last_place();
        // Only the offset in the page matters.
        let (offset, len) = (address as usize, usize::try_from(len)?);
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        let prepare = || -> Result {
            request.data.set_sink(sink, offset, len)?;
            region.map(&mut request.data, request.kind.dma_direction())?;
            region.load_in_place(&request.data)?;
            let id = WorkKind::Registration.id();
            batch.register(id, true, region, Access::RemoteWrite)
        };
        if prepare().is_err() {
            // No work request uses the data, so this does not fail.
            let _ = region.unmap(&mut request.data);
            request.data.clear();
            return Ok(false);
        }
        queue_pair.post(&mut batch)?;
        Ok(true)
    }

    /// Ends request `number`, if it is in [`Phase::Closing`] on connection `cid_and_flags`.
    fn close(&self, chunk: &Chunk, cid_and_flags: u16, number: u32) {
        let state = self.incarnation.state(cid_and_flags, Phase::Closing);
        if let Some(request) = self.tags.get(number).and_then(|cell| cell.take(state)) {
            self.close_request(chunk, request);
        }
    }

    /// Ends `request`, which the user has abandoned, and to which the server has responded.
    fn close_request(&self, chunk: &Chunk, mut request: Owned<'_, Request>) {
        if chunk.region.unmap(&mut request.data).is_err() {
            // The device may still use the data. The teardown of the path ends the request.
            let state = self.incarnation.state(request.connection, Phase::Closing);
            return request.put(state);
        }
        self.tags.abandoned_ended(request);
    }
}
