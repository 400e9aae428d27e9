// SPDX-License-Identifier: GPL-2.0

//! Posting on a queue pair.

use super::{
    batch::Target,
    qp::Handler,
    receive::Receives,
    verbs,
    MemoryRegion,
    QueuePairRef,
    Receive,
    SendBatch,
    Unposted,
    WorkCompletion,
    WrId, //
};
use crate::{
    bindings,
    prelude::*,
    rdma::message_buffers::{
        Incoming,
        MessageBuffer, //
    },
    sync::atomic::ordering, //
};
use core::{
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr, //
};

/// The receives that are posted at once. Their work requests are on the stack.
const RECVS_PER_POST: usize = 16;

impl<H: Handler> QueuePairRef<H> {
    /// Posts the requests of `batch`, in order, and empties it. Any context.
    ///
    /// On an error the requests before [`Unposted::first`] were posted, and the error says why the
    /// rest was not. `EINVAL` if the batch has no requests, for a [`WrId`] out of range, for more
    /// scatter entries than the queue pair takes in a request, for memory of another domain, and if
    /// the batch is for another queue pair: nothing was posted then. `ESHUTDOWN` while the queue
    /// pair is being dropped. Any other error is the driver's; `ENOMEM` means that the queue is
    /// full.
    ///
    /// Inlined, so that a batch of one request is linked without a loop.
    #[inline(always)]
    pub fn post<const N: usize, const S: usize>(
        &self,
        batch: &mut SendBatch<'_, N, S>,
    ) -> Result<(), Unposted> {
        let inner = self.inner();
        let target = Target {
            cqes: &inner.cqes,
            domain: inner.domain_serial,
            queue_pair: inner.serial,
            max_send_sge: inner.max_send_sge,
        };
        // The batch is linked before `closing` is read: after an acquire load the compiler would
        // read the batch's fields from memory again.
        let (linked, registering) = (batch.link(&target), batch.registering());
        let linked = match inner.closing.load(ordering::Acquire) {
            true => Err(ESHUTDOWN),
            false => linked,
        };
        let first = match linked {
            Ok(first) => first,
            Err(error) => {
                batch.clear();
                let first = Some(0);
                return Err(Unposted { first, error });
            }
        };
        // SAFETY: The batch was linked, so the pointer is null or a region of the domain of the
        // queue pair. The queue pair holds the domain, which keeps the region.
        let registering = unsafe { registering.as_ref() };
        if let Some(region) = registering {
            self.forget_invalidated(region.registering(inner.serial));
        }
        let mut bad = ptr::null();
        // SAFETY: The queue pair is valid; the batch is linked and ends with null. The batch and
        // its entries are valid during the call, and the driver does not use them later.
        let error = unsafe { verbs::post_send(inner.qp, first, &mut bad) };
        if let Some(region) = registering {
            region.registered();
        }
        let result = if error == 0 {
            Ok(())
        } else {
            // If `bad` is the first of several requests, that is not reliable: some drivers (erdma)
            // return the head of the list even if they have posted a part of it.
            let first = batch.position(bad);
            Err(Unposted {
                first: first.filter(|first| *first > 0 || batch.len() == 1),
                error: Error::from_errno(error),
            })
        };
        batch.clear();
        result
    }

    /// Forgets that the peer has invalidated `rkey`. To be called before a region is registered
    /// with `rkey`.
    fn forget_invalidated(&self, rkey: u32) {
        let invalidated = &self.inner().invalidated;
        if invalidated.load(ordering::Relaxed) == rkey {
            // If this fails, the handler has noted another key meanwhile, so `rkey` is forgotten
            // already.
            let _ = invalidated.cmpxchg(rkey, 0, ordering::Relaxed);
        }
    }

    /// Notes the key that the device has invalidated at the peer's request, if `completion` reports
    /// one and is of this queue pair. Returns whether a key was noted. Any context.
    ///
    /// The key stays noted until the next one is noted, or until it is registered again; see
    /// [`Self::peer_ended()`].
    pub fn note_invalidation(&self, completion: &WorkCompletion<'_>) -> bool {
        let Some(rkey) = completion.invalidated_rkey() else {
            return false;
        };
        if completion.queue_pair() != self.inner().qp {
            return false;
        }
        self.inner().invalidated.store(rkey, ordering::Release);
        true
    }

    /// Whether `region` was registered on this queue pair, and the device has reported that the
    /// peer invalidated its key. If so, the memory of the region is free. Only the device's report
    /// counts, not what a message of the peer says. Any context.
    pub fn peer_ended(&self, region: &MemoryRegion) -> bool {
        region.ended_by_peer(self.inner().serial, &self.inner().invalidated)
    }

    /// Posts a receive into `buffer`. Any context. Errors as [`Self::post()`].
    pub fn post_recv(&self, id: WrId, buffer: &MessageBuffer<Incoming>) -> Result {
        let mut sge = buffer.for_receive(self.inner().domain_serial)?;
        let wr = self.recv_wr(id, ptr::null_mut(), &mut sge, 1)?;
        // SAFETY: The request and its list are valid during the call.
        unsafe { self.post_recv_list(&wr) }
    }

    /// Posts receives. [`Self::receive_again()`] posts them again, `at_once` at a time. Sleeps.
    ///
    /// `EEXIST` if it was called before. Otherwise errors as [`Self::post()`]; some receives may
    /// have been posted then.
    pub fn post_receives<'a>(
        &self,
        receives: impl ExactSizeIterator<Item = Result<Receive<'a>>>,
        at_once: u32,
    ) -> Result {
        let inner = self.inner();
        let receives = receives.map(|receive| {
            let (id, buffer) = receive?;
            let cqe: *const bindings::ib_cqe = inner.cqes.get(id.0 as usize).ok_or(EINVAL)?;
            let sge = match buffer {
                Some(buffer) => Some(buffer.for_receive(inner.domain_serial)?),
                None => None,
            };
            Ok((cqe.cast_mut(), sge))
        });
        // SAFETY: The `ib_cqe`s stay as long as the queue pair, of which the receives are a part.
        let receives = unsafe { Receives::new(receives, at_once) }?;
        if !inner.receives.populate(receives) {
            return Err(EEXIST);
        }
        let receives = inner.receives.as_ref().ok_or(EINVAL)?;
        // SAFETY: By the invariant of `Receives` the linked requests are complete.
        receives.post_linked(|wr| unsafe { self.post_recv_list(wr) })
    }

    /// Posts receive `index` of [`Self::post_receives()`] again, which has completed: at once, or
    /// later together with further receives. Any context.
    ///
    /// For the completion handler, which is called for one completion at a time: `EBUSY` during
    /// another call. `EINVAL` if there is no such receive, or if the receive waits already to be
    /// posted. Errors as [`Self::post()`].
    #[inline(always)]
    pub fn receive_again(&self, index: u32) -> Result {
        let receives = self.inner().receives.as_ref().ok_or(EINVAL)?;
        // SAFETY: By the invariant of `Receives` the linked requests are complete.
        receives.again(index as usize, |wr| unsafe { self.post_recv_list(wr) })
    }

    /// Posts `count` receives without a buffer, all with the work request id `id`: for RDMA writes
    /// with immediate. Any context. Errors as [`Self::post()`].
    #[inline]
    pub fn post_empty_recvs(&self, id: WrId, count: u32) -> Result {
        let mut wrs = [const { MaybeUninit::<bindings::ib_recv_wr>::uninit() }; RECVS_PER_POST];
        let mut left = count as usize;
        while left > 0 {
            let mut next = ptr::null_mut();
            for wr in wrs.iter_mut().take(left) {
                next = wr.write(self.recv_wr(id, next, ptr::null_mut(), 0)?);
                left -= 1;
            }
            // SAFETY: The list ends with null, and it is valid during the call.
            unsafe { self.post_recv_list(next) }?;
        }
        Ok(())
    }

    #[inline]
    fn recv_wr(
        &self,
        id: WrId,
        next: *mut bindings::ib_recv_wr,
        list: *mut bindings::ib_sge,
        count: c_int,
    ) -> Result<bindings::ib_recv_wr> {
        let cqe: *const bindings::ib_cqe = self.inner().cqes.get(id.0 as usize).ok_or(EINVAL)?;
        Ok(bindings::ib_recv_wr {
            next,
            __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(cqe.cast_mut()),
            },
            sg_list: list,
            num_sge: count,
        })
    }

    /// # Safety
    ///
    /// `wr` is a list of requests of this queue pair, valid during the call.
    #[inline]
    unsafe fn post_recv_list(&self, wr: *const bindings::ib_recv_wr) -> Result {
        let inner = self.inner();
        if inner.closing.load(ordering::Acquire) {
            return Err(ESHUTDOWN);
        }
        // SAFETY: The queue pair is valid, and the list by the function's requirement.
        let error = unsafe { verbs::post_recv(inner.qp, wr) };
        if error != 0 {
            return Err(Error::from_errno(error));
        }
        Ok(())
    }
}
