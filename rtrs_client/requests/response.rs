// SPDX-License-Identifier: GPL-2.0

//! How a request ends: by the server's response, and by the device's last use of the data.

use kernel_ext::{
    prelude::*,
    rdma::{
        Handler,
        QueuePairRef, //
    },
    sync::{
        atomic::ordering,
        state_cell::Owned, //
    }, //
};

use super::{
    request::{
        Kind,
        Request, //
    },
    tags::Phase,
    Chunk,
    PathRequests, //
};

/// Why a response ends no request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// No request was in flight under this number.
    Unknown,
    /// The request was sent on another connection. It waits for the teardown.
    Misdirected,
    /// The invalidation of the data's registration could not be posted, since the queue pair has
    /// failed. The request waits for the teardown.
    Unposted,
}

impl PathRequests {
    /// Handles the server's response to request `number` on connection `cid`, that of `queue_pair`.
    /// `invalidated` if the response says that it has had the device invalidate the registration
    /// just before. Completion context.
    ///
    /// The request is finished now, or when the device does not use its data any more.
    #[inline(always)]
    pub(crate) fn responded<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        cid: u16,
        number: u32,
        result: Result,
        invalidated: bool,
    ) -> Result<(), Mismatch> {
        let cell = self.tags.get(number).ok_or(Mismatch::Unknown)?;
        let Some(request) = cell.take(self.incarnation.state(cid, Phase::Sent)) else {
            return self.responded_in_steps(queue_pair, cid, number, result, invalidated);
        };
        self.finish_sent(request, result);
        Ok(())
    }

    /// Finishes a request in [`Phase::Sent`] to which the server has responded.
    #[inline(always)]
    fn finish_sent(&self, mut request: Owned<'_, Request>, result: Result) {
        let len = request.data_len();
        let result = match self.bounce(&request, len) {
            // The server has written the data to the bounce buffer.
            Some(bounce) if request.kind == Kind::Read && len != 0 => {
                result.and_then(|()| bounce.memory.copy_to_table(&mut request.data))
            }
            _ => result,
        };
        self.finish(request, result);
    }

    /// As [`Self::responded`], for a request whose data the device uses in its own memory. The
    /// device may send that data again until it has heard that the server has it, and the server
    /// can reach registered memory. Also for a request that has moved, or was sent again.
    #[inline(never)]
    fn responded_in_steps<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        cid: u16,
        number: u32,
        result: Result,
        invalidated: bool,
    ) -> Result<(), Mismatch> {
        let cid_and_flags = self.cid_and_flags(number, cid);
        let state = |phase| self.incarnation.state(cid_and_flags, phase);
        let (Some(cell), Some(chunk)) = (self.tags.get(number), self.chunks.get(number as usize))
        else {
            return Err(Mismatch::Unknown);
        };
        if cid_and_flags != cid {
            if let Some(request) = cell.take(state(Phase::Sent)) {
                self.finish_sent(request, result);
                return Ok(());
            }
        }
        let step = |from, to| cell.change(state(from), state(to));
        let now = cell.state();
        let awaits = [
            Phase::Direct,
            Phase::DirectWritten,
            Phase::Registering,
            Phase::Registered,
        ];
        if !awaits.iter().any(|phase| now == state(*phase)) {
            // A second response does not change the result of the first one.
            return self.responded_late(queue_pair, cid, number, invalidated);
        }
        // The result is stored before the state says that there is a result.
        let errno = result.map_or_else(|error| error.to_errno(), |()| 0);
        chunk.result.store(errno, ordering::Relaxed);
        if step(Phase::Direct, Phase::DirectResponded)
            // An honest server has the request before it responds, but the task that posted the
            // registration may not have come back yet.
            || step(Phase::Registering, Phase::RespondedEarly)
        {
            return Ok(());
        }
        if let Some(request) = cell.take(state(Phase::DirectWritten)) {
            self.end(chunk, request);
            return Ok(());
        }
        if step(Phase::Registered, Phase::Invalidating) {
            // The server's word is not enough: once the request is finished, the server must not be
            // able to write to this memory.
            if invalidated && queue_pair.peer_ended(&chunk.region) {
                self.end_in(chunk, number, state(Phase::Invalidating));
                return Ok(());
            }
            let posted = self.post_invalidation(queue_pair, number);
            return posted.map_err(|_| Mismatch::Unposted);
        }
        // The user has abandoned the request just now.
        self.responded_late(queue_pair, cid, number, invalidated)
    }

    /// Notes that the device does not use the data of request `number` any more: the data was
    /// written, or its registration is invalid. Connection `cid` carries the request. Completion
    /// context.
    ///
    /// `Unposted` as for [`Self::responded`].
    pub(crate) fn region_completed<H: Handler>(
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
        if cell.change(state(Phase::Direct), state(Phase::DirectWritten))
            || self.end_in(chunk, number, state(Phase::DirectResponded))
            || self.end_in(chunk, number, state(Phase::Invalidating))
        {
            return Ok(());
        }
        self.revoked(queue_pair, cid, number)
    }

    /// Ends request `number` if its tag is in `state`, and returns whether it was.
    fn end_in(&self, chunk: &Chunk, number: u32, state: u64) -> bool {
        let taken = self.tags.get(number).and_then(|cell| cell.take(state));
        taken.map(|request| self.end(chunk, request)).is_some()
    }

    /// Finishes a request to which the server has responded, and whose data the device does not use
    /// any more.
    fn end(&self, chunk: &Chunk, mut request: Owned<'_, Request>) {
        if chunk.region.unmap(&mut request.data).is_err() {
            // A device may still use the data. The teardown of the path finishes the request.
            let state = self
                .incarnation
                .state(request.connection, Phase::Invalidating);
            return request.put(state);
        }
        let errno = chunk.result.load(ordering::Relaxed);
        self.finish(request, kernel::error::to_result(errno));
    }

    /// Notes that `request` is not in flight any more: takes it out of the policy's count. Any
    /// context.
    #[inline]
    pub(crate) fn left(&self, request: &mut Request) {
        if core::mem::take(&mut request.is_in_policy_count) {
            self.change_policy_count(request.connection, -1);
        }
    }

    /// Finishes `request`, to which the server has responded.
    #[inline(always)]
    fn finish(&self, mut request: Owned<'_, Request>, result: Result) {
        self.left(&mut request);
        self.stats.responded(&request);
        self.tags.finish(request, result);
    }
}
