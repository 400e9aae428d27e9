// SPDX-License-Identifier: GPL-2.0

//! How a request is sent: what is written to the server's chunk, and from which memory.
//!
//! The data of a small request goes through the tag's bounce buffer, or lies in a page that several
//! sessions share. The data of a longer write is sent from its own memory, if the queue pair takes
//! as many segments. All other data is registered.

use kernel_ext::{
    prelude::*,
    rdma::{
        Access,
        Handler,
        QueuePairRef,
        RemoteMemory,
        SendBatch,
        SendRoom,
        Sge,
        Unposted, //
    },
    sync::{
        atomic::ordering,
        state_cell::Owned, //
    }, //
};
use proto::rtrs::{
    Imm,
    ReadMsg,
    SgDesc,
    WriteMsg, //
};

use super::{
    request::{
        Kind,
        Request,
        USUAL_HEADER, //
    },
    tags::{
        Phase,
        Tags, //
    },
    Chunk,
    PathRequests, //
};
use crate::{
    connection::Connection,
    work::WorkKind, //
};

/// The most scatter entries of one RDMA write: data segments and the header.
///
/// A write with more segments is registered. The entries are on the stack.
pub(crate) const MAX_SEND_SGE: usize = 30;

/// The most requests that are posted together.
const MAX_REQUESTS: usize = 8;

/// The most work requests that are posted together: one for each request, and a registration.
pub(crate) const MAX_BATCH: usize = MAX_REQUESTS + 1;

/// The scatter entries of a request that is copied: the data and the message.
pub(crate) const COPIED_SGE: usize = 2;

/// Room for the requests that are posted together: eight if all but the last are copied, otherwise
/// fewer.
pub type SubmissionRoom = SendRoom<MAX_BATCH, MAX_ENTRIES>;

/// The work requests of a submission.
pub(crate) type FullBatch<'a> = SendBatch<'a, MAX_BATCH, MAX_ENTRIES>;

/// The most scatter entries that are posted together.
const MAX_ENTRIES: usize = MAX_SEND_SGE + (MAX_REQUESTS - 1) * COPIED_SGE;

/// Whether `batch` has room for any request.
#[inline(always)]
pub(crate) fn has_room(batch: &FullBatch<'_>) -> bool {
    batch.has_room(2, MAX_SEND_SGE)
}

/// Why a request could not be sent.
pub(crate) struct Refused<'a> {
    /// The request, as it was before the attempt.
    pub(crate) request: Owned<'a, Request>,
    pub(crate) error: Error,
}

/// Whether the connection can still be used after posting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    /// Each request was posted or taken back.
    All,
    /// A request may have been posted in part. The connection is to be closed; the teardown finds
    /// the request.
    Broken,
}

impl Chunk {
    /// The memory of the server that `request` is written to.
    #[inline(always)]
    fn place(&self, request: &Request) -> RemoteMemory {
        RemoteMemory {
            // The address is in the server's memory. If it wraps around, the server gave a wrong
            // one.
            address: self
                .address
                .load(ordering::Relaxed)
                .wrapping_add(match request.kind {
                    // The server writes a read's data to this part of the chunk.
                    Kind::Read => request.data_len() as u64,
                    Kind::Write | Kind::HeaderOnly => 0,
                }),
            rkey: self.rkey.load(ordering::Relaxed),
        }
    }
}

impl PathRequests {
    /// Adds `request` to `batch`, which is for `connection` and has room. Never sleeps.
    ///
    /// On success the request belongs to this path until the server responds, or until
    /// [`Self::take_back`] or [`Self::take_outstanding`] takes it. The batch has to be posted while
    /// the path's connections still exist. If the request is [`Phase::Registering`], the batch has
    /// to be posted at once, and [`Self::registration_posted`] has to follow.
    ///
    /// With `COPY` the data is copied if it [may be](Self::is_copied). Without `COPY` the data is
    /// sent from where it lies, which may be [the page of the tag](Self::shared_page).
    #[inline(always)]
    pub(crate) fn add<'a, H: Handler, const COPY: bool>(
        &self,
        connection: &Connection<H>,
        batch: &mut FullBatch<'_>,
        mut request: Owned<'a, Request>,
    ) -> Result<Phase, Refused<'a>> {
        if COPY && self.is_copied(&request) {
            let added = self.add_copied(connection, batch, request, None);
            return added.map(|()| Phase::Sent);
        }
        if !COPY {
            if let Some(page) = self.shared_page(&request) {
                let added = self.add_shared(connection, batch, request, page);
                return added.map(|()| Phase::Sent);
            }
        }
        let Some(chunk) = self.chunks.get(request.tag() as usize) else {
            let error = EINVAL;
            return Err(Refused { request, error });
        };
        match self.write_uncopied(connection, chunk, batch, &mut request) {
            Ok(phase) => {
                let state = self.incarnation.state(request.connection, phase);
                request.put(state);
                Ok(phase)
            }
            Err(error) => {
                batch.reset();
                // No work request uses the data, so this does not fail.
                let _ = chunk.region.unmap(&mut request.data);
                Err(Refused { request, error })
            }
        }
    }

    /// As [`Self::add_copied`], with data in the page of the tag. This is a function of its own
    /// because that keeps the caller's frame small.
    #[inline(never)]
    fn add_shared<'a, H: Handler>(
        &self,
        connection: &Connection<H>,
        batch: &mut FullBatch<'_>,
        request: Owned<'a, Request>,
        page: Sge,
    ) -> Result<(), Refused<'a>> {
        self.add_copied(connection, batch, request, Some(page))
    }

    /// Whether `request` has no data, or so little data that it is copied.
    #[inline(always)]
    pub(crate) fn is_copied(&self, request: &Request) -> bool {
        request.data_len() == 0 || self.bounce(request, request.data_len()).is_some()
    }

    /// As [`Self::add`], for a request that [is copied](Self::is_copied), or for a write whose data
    /// is `shared`, in [the page of the tag](Self::shared_page). `EINVAL` for any other request.
    #[inline(always)]
    pub(crate) fn add_copied<'a, H: Handler, const N: usize, const S: usize>(
        &self,
        connection: &Connection<H>,
        batch: &mut SendBatch<'_, N, S>,
        mut request: Owned<'a, Request>,
        shared: Option<Sge>,
    ) -> Result<(), Refused<'a>> {
        match self.write_copied(connection, batch, &mut request, shared) {
            Ok(()) => {
                // Once the batch is posted a response may come, and its handler looks for this
                // state.
                let state = self.incarnation.state(request.connection, Phase::Sent);
                request.put(state);
                Ok(())
            }
            Err(error) => {
                batch.reset();
                Err(Refused { request, error })
            }
        }
    }

    /// Adds the RDMA write that carries `request`.
    ///
    /// In the chunk, the data comes first, then the user's header, then the message, which the
    /// immediate points to.
    #[inline(always)]
    fn write_copied<H: Handler, const N: usize, const S: usize>(
        &self,
        connection: &Connection<H>,
        batch: &mut SendBatch<'_, N, S>,
        request: &mut Request,
        shared: Option<Sge>,
    ) -> Result {
        let chunk = self.chunks.get(request.tag() as usize).ok_or(EINVAL)?;
        let data_len = request.data_len();
        let mut desc = None;
        if let Some(page) = shared {
            batch.add(page)?;
        } else {
            match self.bounce(request, data_len) {
                _ if data_len == 0 => {}
                Some(bounce) if request.kind == Kind::Read => {
                    // At most a page.
                    let len = data_len as u32;
                    desc = Some(SgDesc {
                        len,
                        ..bounce.place
                    });
                }
                Some(bounce) => batch.add(bounce.memory.copy_from_table(&request.data)?)?,
                None => return Err(EINVAL),
            }
        }
        batch.add(self.message_inline(chunk, request, false, desc)?)?;
        let signaled = connection.next_is_signaled();
        let (remote, immediate) = (chunk.place(request), self.immediate(request)?);
        batch.write_with_imm(WorkKind::Send.id(), signaled, remote, immediate)
    }

    /// As [`Self::write_copied`], for data that the device reads or writes in its own memory.
    #[inline(never)]
    fn write_uncopied<H: Handler>(
        &self,
        connection: &Connection<H>,
        chunk: &Chunk,
        batch: &mut FullBatch<'_>,
        request: &mut Request,
    ) -> Result<Phase> {
        if request.data_len() > self.accept.max_io_size as usize {
            return Err(EMSGSIZE);
        }
        let (kind, region) = (request.kind, &chunk.region);
        let (remote, immediate) = (chunk.place(request), self.immediate(request)?);
        region.map(&mut request.data, kind.dma_direction())?;
        let limit = connection.max_send_sge() as usize;
        if kind != Kind::Read {
            let message = self.message(chunk, request, false, None)?;
            if batch.write_table(&request.data, region, message, limit, remote, immediate)? {
                return Ok(Phase::Direct);
            }
        }
        region.load(&request.data)?;
        let (access, desc) = if kind == Kind::Read {
            let desc = SgDesc {
                addr: region.iova(),
                key: region.rkey(),
                len: u32::try_from(region.len())?,
            };
            (Access::RemoteWrite, Some(desc))
        } else {
            batch.add(region.sge()?)?;
            (Access::Local, None)
        };
        batch.add(self.message(chunk, request, !self.leaves_invalidation(), desc)?)?;
        let signaled = connection.next_is_signaled();
        batch.register(WorkKind::Registration.id(), false, region, access)?;
        batch.write_with_imm(WorkKind::Send.id(), signaled, remote, immediate)?;
        Ok(Phase::Registering)
    }

    /// As [`Self::message_inline`], for callers that are less urgent.
    #[inline(never)]
    fn message(
        &self,
        chunk: &Chunk,
        request: &Request,
        need_inval: bool,
        desc: Option<SgDesc>,
    ) -> Result<Sge> {
        self.message_inline(chunk, request, need_inval, desc)
    }

    /// Writes the user's header, and the transport's message behind it. `EMSGSIZE` if both together
    /// are too long.
    #[inline(always)]
    fn message_inline(
        &self,
        chunk: &Chunk,
        request: &Request,
        need_inval: bool,
        desc: Option<SgDesc>,
    ) -> Result<Sge> {
        let (message, header) = (&chunk.message, request.header());
        let usr_len = request.header_len();
        match <&[u8; USUAL_HEADER]>::try_from(header) {
            // A copy of known length takes no call.
            Ok(header) => message.copy_in(0, header)?,
            Err(_) => message.copy_in(0, header)?,
        }
        let size = if request.kind == Kind::Read {
            let read = ReadMsg {
                usr_len,
                need_inval,
                desc,
            };
            // The bytes behind a shorter message are not read.
            message.copy_in(header.len(), &read.to_bytes())?;
            read.size()
        } else {
            message.copy_in(header.len(), &WriteMsg { usr_len }.to_bytes())?;
            WriteMsg::SIZE
        };
        let len = header.len().wrapping_add(size);
        if len > self.accept.max_hdr_size as usize {
            return Err(EMSGSIZE);
        }
        message.sge(len)
    }

    /// The immediate that says where the message of `request` lies. `EMSGSIZE` if the message lies
    /// beyond the chunk.
    #[inline(always)]
    fn immediate(&self, request: &Request) -> Result<u32> {
        Imm::encode_io_req(
            &self.layout,
            request.tag(),
            // At most `max_io_size`, which is a `u32`, and the length of a header.
            (request.data_len() as u32).wrapping_add(u32::from(request.header_len())),
        )
        .ok_or(EMSGSIZE)
    }

    /// Notes that the registration of request `number` was posted on `connection`, with the
    /// request.
    pub(crate) fn registration_posted<H: Handler>(
        &self,
        connection: &Connection<H>,
        number: u32,
    ) -> Posted {
        let queue_pair = connection.queue_pair();
        let cid_and_flags = self.cid_and_flags(number, connection.cid());
        let state = |phase| self.incarnation.state(cid_and_flags, phase);
        let Some(cell) = self.tags.get(number) else {
            return Posted::All;
        };
        if cell.change(state(Phase::Registering), state(Phase::Registered)) {
            return Posted::All;
        }
        // The server was faster: it responded to a request that it did not have yet. The handler of
        // that response left the invalidation to this task, as it must come after the registration.
        if cell.change(state(Phase::RespondedEarly), state(Phase::Invalidating))
            && self.post_invalidation(queue_pair, number).is_err()
        {
            return Posted::Broken;
        }
        Posted::All
    }

    /// Posts the invalidation of the registration of request `number`. Its completion calls
    /// [`Self::region_completed`].
    pub(super) fn post_invalidation<H: Handler>(
        &self,
        queue_pair: &QueuePairRef<H>,
        number: u32,
    ) -> Result {
        let chunk = self.chunks.get(number as usize).ok_or(EINVAL)?;
        let mut room = SendRoom::<1, 1>::EMPTY;
        let mut batch = SendBatch::new(&mut room);
        batch.invalidate(&chunk.region)?;
        Ok(queue_pair.post(&mut batch)?)
    }

    /// Takes back the requests of a batch that were not posted on connection `cid`, and gives each
    /// of them to `refused`. `numbers` are all requests of the batch, `tags` are those of the
    /// session.
    #[cold]
    pub(crate) fn take_back<'a>(
        &self,
        tags: &'a Tags,
        cid: u16,
        numbers: &[u32],
        unposted: Unposted,
        mut refused: impl FnMut(Refused<'a>),
    ) -> Posted {
        let error = unposted.error;
        // Any other errno means that the queue pair is failing. Its teardown sends the requests on
        // another path, or has them wait.
        let stays = [ENOMEM, EINVAL, ESHUTDOWN].contains(&error);
        let Some(first) = unposted.first.filter(|_| stays) else {
            return Posted::Broken;
        };
        let mut posted = Posted::All;
        for number in numbers.iter().skip(first) {
            let cid_and_flags = self.cid_and_flags(*number, cid);
            let sent = self.incarnation.state(cid_and_flags, Phase::Sent);
            match tags.get(*number).and_then(|cell| cell.take(sent)) {
                Some(mut request) => {
                    self.left(&mut request);
                    refused(Refused { request, error });
                }
                // The data is mapped for the device, or the server has responded to a request that
                // it never got.
                None => posted = Posted::Broken,
            }
        }
        posted
    }
}
