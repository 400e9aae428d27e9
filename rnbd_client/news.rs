// SPDX-License-Identifier: GPL-2.0

//! How far the client has read a server's news of its devices.

use kernel_ext::{
    prelude::*,
    sync::atomic::{
        ordering,
        Atomic, //
    }, //
};
use proto::rnbd::{
    News,
    NewsRsp,
    FEATURE_NEWS,
    NO_NEWS, //
};

use crate::server::Server;

/// The bits of a change's number that a doorbell has.
const DOORBELL_MASK: u32 = (1 << 28) - 1;

/// The most responses that are read at a time: more than the disks of any client take.
const MAX_RESPONSES: u32 = 2048;

/// Reads the news of a session.
///
/// # Invariants
///
/// - `read` has an epoch in its upper half, and in its lower half the number of the last change
///   that was read in that epoch. Only [`Self::read`] changes it.
/// - `wanted` is set while there may be a change that was not read, except in these cases: a task
///   is about to read the news, or reads them; a link event is to come, after which a task reads
///   the news; the session has no device; the server's last response was invalid.
/// - `all` is set while a device was opened since the last change that was read: a response may
///   have had news of the device before the device was ready for them.
pub(crate) struct NewsReader {
    read: Atomic<u64>,
    wanted: Atomic<bool>,
    all: Atomic<bool>,
}

impl NewsReader {
    /// Makes a reader that has read nothing.
    pub(crate) fn new() -> Self {
        Self {
            read: Atomic::new(0),
            wanted: Atomic::new(false),
            all: Atomic::new(false),
        }
    }

    /// Whether the change that the server has rung for in `epoch` is the last change that was read:
    /// the same doorbell comes by each path. A doorbell for an older change counts as news. Any
    /// context.
    pub(crate) fn has_read(&self, epoch: u32, doorbell: u32) -> bool {
        self.since(epoch) & DOORBELL_MASK == doorbell
    }

    /// Notes that there may be something to read. Any context.
    pub(crate) fn want(&self) {
        self.wanted.store(true, ordering::Release);
    }

    /// Notes that a device was opened: the next question is about all devices. Any context.
    pub(crate) fn want_all(&self) {
        self.all.store(true, ordering::Relaxed);
        self.want();
    }

    /// Whether there may be something to read, which the caller then reads. Any context.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.xchg(false, ordering::Full)
    }

    /// The number of the last change that was read in `epoch`.
    fn since(&self, epoch: u32) -> u32 {
        let read = self.read.load(ordering::Acquire);
        // Two halves of 32 bits.
        if (read >> 32) as u32 == epoch {
            read as u32
        } else {
            NO_NEWS
        }
    }

    /// Asks the server in `epoch` for changes, and hands each response to `take`. Returns for how
    /// many ms the server goes away, if the last response tells that. One caller at a time; sleeps.
    ///
    /// Does nothing in a session without `FEATURE_NEWS`. `ECONNABORTED` in a later epoch, `EINVAL`
    /// if the server's responses do not come to an end, otherwise the errors of
    /// [`Server::ask_news`], and `ENOMEM`.
    pub(crate) fn read(
        &self,
        server: &Server,
        epoch: u32,
        mut take: impl FnMut(&NewsRsp<'_>),
    ) -> Result<Option<u32>> {
        let features = server.features_in(epoch).ok_or(ECONNABORTED)?;
        if features & FEATURE_NEWS == 0 {
            return Ok(None);
        }
        let all = self.all.xchg(false, ordering::Full);
        let since = if all { NO_NEWS } else { self.since(epoch) };
        let result = self.read_since(server, epoch, since, &mut take);
        if result.is_err() && all {
            self.all.store(true, ordering::Relaxed);
        }
        result
    }

    /// Does what [`Self::read`] does, from the change after number `since` on.
    fn read_since(
        &self,
        server: &Server,
        epoch: u32,
        since: u32,
        take: &mut impl FnMut(&NewsRsp<'_>),
    ) -> Result<Option<u32>> {
        let mut request = News {
            since,
            first_device_id: 0,
        };
        let mut buffer = KVec::from_elem(0u8, NewsRsp::MAX_SIZE, GFP_KERNEL)?;
        let mut first_sequence = None;
        for _ in 0..MAX_RESPONSES {
            let (response, drain_ms) = server.ask_news(epoch, &request, &mut buffer)?;
            take(&response);
            // The first response's number counts: the server tells again of later changes.
            let sequence = *first_sequence.get_or_insert(response.sequence());
            let Some(rest) = response.rest(&request) else {
                // INVARIANT: All changes up to that number were handed on.
                let read = u64::from(epoch) << 32 | u64::from(sequence);
                self.read.store(read, ordering::Release);
                return Ok(drain_ms);
            };
            request = rest;
        }
        Err(EINVAL)
    }
}
