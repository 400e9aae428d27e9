// SPDX-License-Identifier: GPL-2.0

//! Requests whose data is registered for them alone: long reads, and writes of many segments.

use kernel::prelude::*;
use kernel_ext::{
    rdma::{
        Access,
        QueuePairRef,
        RemoteMemory,
        SendChain,
        SgeList, //
    },
    sync::atomic::ordering, //
};
use proto::rtrs::{
    SgDesc,
    FEATURE_SHORT_RESPONSES, //
};

use super::{
    Answered,
    Refused,
    Submitted,
    Transfer, //
};
use crate::{
    connection::{
        Connection,
        ConnectionHandler, //
    },
    request::{
        Kind,
        Request,
        Tag, //
    },
    work::WorkKind, //
};

impl Transfer {
    /// Posts the registration of the data, which is mapped, and the RDMA write that carries
    /// `request`.
    #[inline(never)]
    pub(super) fn send_registered(
        &self,
        connection: &Connection,
        tag: &Tag,
        mut request: KBox<Request>,
    ) -> Result<Submitted, Refused> {
        let mut entries = SgeList::<2>::new();
        let mut chain = SendChain::<2>::new();
        let built = self.register(tag, &mut request, &mut entries);
        let built = built.and_then(|(access, remote, immediate)| {
            let resources = request.resources.as_ref().ok_or(EBUSY)?;
            chain.reg_mr(
                WorkKind::Registration.id(),
                false,
                &resources.region,
                access,
            )?;
            chain.rdma_write_with_imm(
                WorkKind::Send.id(),
                connection.next_is_signaled(),
                &entries,
                remote,
                immediate,
            )
        });
        if let Err(error) = built {
            self.release(tag, &mut request);
            return Err(Refused { request, error });
        }
        request.registered = true;
        let queue_pair = connection.queue_pair();
        let rkey = request.resources.as_ref().map(|r| r.region.rkey());
        if let Some(rkey) = rkey {
            queue_pair.handler().forget_invalidated(rkey);
        }
        let number = request.tag();
        // Ordered by the slot: whoever takes the request sees that it is not posted yet.
        tag.ends.store(0, ordering::Relaxed);
        self.count(request.connection, 1);
        drop(tag.in_flight.put(request));
        let posted = queue_pair.post_mut(&mut chain).and_then(|()| {
            if tag.ends.fetch_add(1, ordering::Full) == 0 {
                return Ok(());
            }
            // The server was faster: it answered what it did not have yet. Whoever got that answer
            // left the invalidation to this side, as it must come after the registration.
            self.post_invalidation(queue_pair, number, rkey.ok_or(EINVAL)?)
        });
        match posted {
            Ok(()) => Ok(Submitted::Posted),
            // The registration may have been posted, so the device may use the region.
            Err(_) => Ok(Submitted::Broken),
        }
    }

    /// Takes the data of `request` into its region, and writes the message; says how the region is
    /// to be registered, and what is to be sent.
    fn register(
        &self,
        tag: &Tag,
        request: &mut Request,
        entries: &mut SgeList<2>,
    ) -> Result<(Access, RemoteMemory, u32)> {
        let (kind, data_len) = (request.kind, request.data_len());
        let (data, resources, _) = request.parts();
        let resources = resources.ok_or(EBUSY)?;
        resources.region.map(data)?;
        let (access, desc) = if kind == Kind::Read {
            let desc = SgDesc {
                addr: resources.region.iova(),
                key: resources.region.rkey(),
                len: u32::try_from(resources.region.len())?,
            };
            (Access::RemoteWrite, Some(desc))
        } else {
            entries.push(resources.region.sge()?)?;
            (Access::Local, None)
        };
        // A server that is as short as it can be leaves the invalidation to the client, which does
        // it for less than a message.
        let need_inval = self.accept.features & FEATURE_SHORT_RESPONSES == 0;
        entries.push(self.write_message(request, need_inval, desc)?)?;
        let (remote, immediate) = self.place(tag, request, data_len)?;
        Ok((access, remote, immediate))
    }

    /// The server answered `request`, which is registered.
    #[inline(never)]
    pub(super) fn invalidate(
        &self,
        queue_pair: &QueuePairRef<ConnectionHandler>,
        tag: &Tag,
        mut request: KBox<Request>,
        invalidated: Option<u32>,
    ) -> Answered {
        // An honest server has the request before it answers, but whoever posted it may not have
        // come back yet.
        if tag.ends.load(ordering::Acquire) == 0 {
            drop(tag.answered.put(request));
            if tag.ends.fetch_add(1, ordering::Full) == 0 {
                return Answered::InUse;
            }
            // It has, just now.
            match tag.answered.take() {
                Some(posted) => request = posted,
                None => return Answered::InUse,
            }
        }
        // That the server says so is not enough: it must not be able to write to this memory
        // once the request is finished.
        let rkey = request.resources.as_ref().map(|r| r.region.rkey());
        let rkey = match rkey {
            Some(rkey) if invalidated != Some(rkey) => rkey,
            _ => {
                self.release(tag, &mut request);
                return Answered::Finished(request);
            }
        };
        let number = request.tag();
        drop(tag.answered.put(request));
        match self.post_invalidation(queue_pair, number, rkey) {
            Ok(()) => Answered::InUse,
            Err(_) => Answered::Failed,
        }
    }

    /// Posts the invalidation of the registration of request `number`; [`Transfer::used`] follows.
    fn post_invalidation(
        &self,
        queue_pair: &QueuePairRef<ConnectionHandler>,
        number: u32,
        rkey: u32,
    ) -> Result {
        let mut chain = SendChain::<1>::new();
        chain.local_invalidate(self.last_use(number).id(), true, rkey)?;
        queue_pair.post(chain)
    }
}
