// SPDX-License-Identifier: GPL-2.0

//! The callbacks of a block driver, and the block layer's table of callbacks. Would extend
//! `kernel::block::mq::operations`.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use super::{
    expired::ExpiredRequest,
    request::{
        self,
        OwnedRequest,
        Refusal, //
    },
    reservation,
    set_data::SetData, //
};
use crate::{
    bindings,
    block::{
        disk::{
            UniqueIdKind,
            UNIQUE_ID_LEN, //
        },
        status::Status, //
    },
    prelude::*, //
};
use core::{
    marker::PhantomData,
    slice, //
};
use kernel::{
    cpu::nr_cpu_ids,
    sync::ArcBorrow,
    ModuleMetadata, //
};

/// A driver of block devices whose requests go through a
/// [`TagSet`](super::tag_set::TagSet).
///
/// The callbacks are called concurrently and on any CPU. The callbacks on the IO path (`queue_rq`,
/// `queue_rqs`, `complete`, `poll`) must not sleep.
#[vtable]
pub trait Operations: Sized + Send + Sync + 'static {
    /// The module with these functions: the `LocalModule` of the driver's crate. An open disk keeps
    /// the module loaded.
    type OwnerModule: ModuleMetadata;
    /// The data that all disks of a tag set share; lives as long as the set.
    type SetData: Send + Sync + 'static;
    /// The data of one disk; lives until the disk is removed and closed by all of its users.
    type DiskData: Send + Sync + 'static;

    /// Takes a request, which has been started.
    ///
    /// The owner of `request` ends the request. It can also be handed back at once by
    /// [`OwnedRequest::refuse`]. The driver must not wait for further requests, as the block layer
    /// does not tell when the last one has come. While a disk is being removed the callback is
    /// still called with earlier requests; after the removal it is not called any more.
    fn queue_rq(
        queue: &HwQueue<'_, Self>,
        request: OwnedRequest<Self::DiskData>,
    ) -> Result<(), Refusal<Self::DiskData>>;

    /// Takes requests of one disk that come together. The requests that are left in the list go to
    /// [`Self::queue_rq`] one by one. Otherwise as [`Self::queue_rq`].
    fn queue_rqs(_requests: RequestList<'_, Self>) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Ends a request of [`OwnedRequest::complete`], on the CPU from which the request came or a
    /// near one. Softirq or interrupt context.
    fn complete(request: OwnedRequest<Self::DiskData>, status: Status) {
        request.end(status);
    }

    /// Called when the driver has had a request for as long as the disk allows
    /// ([`GenDisk::set_request_timeout`](super::gen_disk::GenDisk::set_request_timeout)). Returns
    /// whether the driver has ended the request, or will soon; if false, the time of the request
    /// begins anew. Exactly one of this callback and the usual completion may end the request;
    /// [`RequestTable::take_expired`](super::request_table::RequestTable::take_expired) ensures
    /// that. Process context; may sleep, but allocations must not wait for IO.
    fn timeout(_request: &ExpiredRequest<'_, Self::DiskData, Self::SetData>) -> bool {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Looks for finished requests on a polled queue, and returns how many it found.
    fn poll(_queue: &HwQueue<'_, Self>) -> u32 {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Called when the disk or a partition is opened. Each success is followed by one
    /// [`Self::release`]. May sleep. Called under a lock that adding and removing the disk takes,
    /// too.
    fn open(_disk: ArcBorrow<'_, Self::DiskData>, _for_writing: bool) -> Result {
        Ok(())
    }

    /// The disk's unique name, which `/sys/block/NAME/wwid` shows. Empty if the disk has none; then
    /// there is no such file. Any context.
    fn wwid(_disk: &Self::DiskData) -> &[u8] {
        &[]
    }

    /// The identifier that is stored in the disk, and its length; `None` if the disk has none of
    /// this kind. Any context.
    fn unique_id(
        _disk: &Self::DiskData,
        _kind: UniqueIdKind,
    ) -> Option<([u8; UNIQUE_ID_LEN], usize)> {
        None
    }

    /// Changes the reservation or the registrations of the disk. Process context; sleeps. The
    /// caller holds no lock of the block layer. A disk has `struct pr_ops` if its driver implements
    /// this function, [`Self::reservation`] and [`Self::reservation_keys`].
    fn change_reservation(
        _disk: &Self::DiskData,
        _change: &reservation::Change,
    ) -> Result<(), reservation::Failure> {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// The reservation of the disk. Process context; sleeps.
    fn reservation(_disk: &Self::DiskData) -> Result<reservation::Held, reservation::Failure> {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Writes the keys that are registered with the disk, as many as fit. Process context; sleeps.
    fn reservation_keys(
        _disk: &Self::DiskData,
        _keys: &mut [u64],
    ) -> Result<reservation::Keys, reservation::Failure> {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Called when the disk or a partition is closed, possibly after the disk has been removed. May
    /// sleep. Called under the lock of [`Self::open`].
    fn release(_disk: ArcBorrow<'_, Self::DiskData>) {}
}

/// A hardware queue of a disk, during a callback.
///
/// # Invariants
///
/// `raw` points to a hctx of a disk made with `Operations` `O`. The hctx is live, as the
/// [`GenDisk`](super::gen_disk::GenDisk) waits for the callback before it gives the disk up.
pub struct HwQueue<'a, O: Operations> {
    raw: *mut bindings::blk_mq_hw_ctx,
    _callback: PhantomData<&'a O>,
}

impl<O: Operations> HwQueue<'_, O> {
    /// The number of the queue in its tag set: first the queues of CPUs, then the polled queues.
    #[inline]
    pub fn index(&self) -> u32 {
        // SAFETY: By the type invariant `raw` is valid; the number does not change.
        unsafe { (*self.raw).queue_num }
    }

    /// The disk's data.
    #[inline]
    pub fn disk(&self) -> &O::DiskData {
        // SAFETY: By the type invariant `raw` is valid, and so is its queue. `GenDisk::add` made
        // the queue with a pointer of an `Arc<O::DiskData>`, which `GenDisk` gives up only when no
        // callback with a hardware queue runs any more.
        unsafe { &*(*(*self.raw).queue).queuedata.cast::<O::DiskData>() }
    }

    /// The data that the disks of the tag set share.
    #[inline]
    pub fn set(&self) -> &O::SetData {
        // SAFETY: By the type invariant `raw` is valid, and so are its queue and the tag set, which
        // `GenDisk` keeps as long as the data. The tag set was made for `O`.
        unsafe { &SetData::of((*(*self.raw).queue).tag_set).data }
    }
}

/// Requests of one disk that the block layer offers together.
///
/// # Invariants
///
/// `list` points to a list of requests of one queue of a disk made with `Operations` `O`. The
/// requests belong to the block layer and are not started. Only the holder of this value uses the
/// list.
pub struct RequestList<'a, O: Operations> {
    list: *mut bindings::rq_list,
    _callback: PhantomData<&'a O>,
}

impl<'a, O: Operations> RequestList<'a, O> {
    /// The data that the disks of the tag set share; `None` if the list is empty.
    #[inline]
    pub fn set(&self) -> Option<&'a O::SetData> {
        // SAFETY: By the type invariant the list is valid, and only this value's holder uses it.
        let first = unsafe { (*self.list).head };
        if first.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the request is valid, and so are its queue and the tag set,
        // see `HwQueue::set`.
        Some(unsafe { &SetData::of((*(*first).q).tag_set).data })
    }

    /// Takes the next request out of the list and starts it. Also returns the queue of the request.
    #[inline]
    pub fn take_next(&mut self) -> Option<(HwQueue<'a, O>, OwnedRequest<O::DiskData>)> {
        // SAFETY: By the type invariant the list is valid, and only this value's holder uses it.
        let raw = unsafe { bindings::rnbd_helper_rq_list_pop(self.list) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the type invariant the request belongs to a set of `O`, so `init_request`
        // prepared it, and it is not started. The request is ours, as it is not in the list any
        // more. Its hctx is live as long as its disk.
        unsafe {
            bindings::blk_mq_start_request(raw);
            Some((
                Vtable::<O>::hw_queue((*raw).mq_hctx),
                OwnedRequest::<O::DiskData>::from_raw(raw),
            ))
        }
    }
}

/// Assigns the queues of a set to CPUs: each CPU has the queue with the CPU's number modulo the
/// number of queues.
fn map_queues(set: &mut bindings::blk_mq_tag_set, nr_poll_queues: u32) {
    // A crash kernel makes only one queue.
    let nr_queues = match set.nr_hw_queues.checked_sub(nr_poll_queues) {
        None | Some(0) => 1,
        Some(nr_queues) => nr_queues,
    };
    let nr_maps = set.nr_maps as usize;
    for (hctx_type, map) in set.map.iter_mut().enumerate().take(nr_maps) {
        let is_poll = hctx_type == bindings::hctx_type_HCTX_TYPE_POLL as usize;
        (map.queue_offset, map.nr_queues) = if is_poll {
            (nr_queues, nr_poll_queues)
        } else {
            (0, nr_queues)
        };
        // SAFETY: `mq_map` is an array with an entry for each CPU number.
        let queues = unsafe { slice::from_raw_parts_mut(map.mq_map, nr_cpu_ids() as usize) };
        // `blk_mq_map_queues()` is not used, as it orders CPUs by their shared caches.
        let numbers = (map.queue_offset..).take(map.nr_queues as usize);
        for (queue, number) in queues.iter_mut().zip(numbers.cycle()) {
            *queue = number;
        }
    }
}

/// Makes the block layer's table of callbacks.
pub(super) struct Vtable<O: Operations>(PhantomData<O>);

impl<O: Operations> Vtable<O> {
    /// # Safety
    ///
    /// `hctx` must be a live hctx of a disk of `O` for as long as the result is used.
    unsafe fn hw_queue<'a>(hctx: *mut bindings::blk_mq_hw_ctx) -> HwQueue<'a, O> {
        // INVARIANT: By the safety requirement.
        HwQueue {
            raw: hctx,
            _callback: PhantomData,
        }
    }

    /// # Safety
    ///
    /// Only to be called by the block layer, with a request that the driver owns from now on.
    unsafe extern "C" fn queue_rq(
        hctx: *mut bindings::blk_mq_hw_ctx,
        data: *const bindings::blk_mq_queue_data,
    ) -> bindings::blk_status_t {
        // SAFETY: The block layer passes a valid pointer.
        let raw = unsafe { (*data).rq };
        // SAFETY: By the safety requirement the request is ours. It is not started.
        unsafe { bindings::blk_mq_start_request(raw) };
        // SAFETY: The request belongs to a set of `O`, so `init_request` prepared it, and by the
        // safety requirement it is owned by this function alone.
        let request = unsafe { OwnedRequest::<O::DiskData>::from_raw(raw) };
        // SAFETY: The hctx is live during the callback.
        let queue = unsafe { Self::hw_queue(hctx) };
        match O::queue_rq(&queue, request) {
            Ok(()) => Status::OK.as_raw(),
            Err(refusal) => refusal.hand_back(raw).as_raw(),
        }
    }

    /// # Safety
    ///
    /// Only to be called by the block layer, with requests that the driver may take.
    unsafe extern "C" fn queue_rqs(list: *mut bindings::rq_list) {
        // INVARIANT: By the safety requirement; the block layer passes requests of one queue.
        O::queue_rqs(RequestList {
            list,
            _callback: PhantomData,
        });
    }

    /// # Safety
    ///
    /// Only to be called by the block layer, as the consequence of [`OwnedRequest::complete`].
    unsafe extern "C" fn complete(raw: *mut bindings::request) {
        // SAFETY: `OwnedRequest::complete` gave up the ownership of the request for this very call.
        let request = unsafe { OwnedRequest::<O::DiskData>::from_raw(raw) };
        let status = request.completion_status();
        O::complete(request, status);
    }

    /// # Safety
    ///
    /// Only to be called by the block layer, which keeps the request from being used again until
    /// this returns.
    unsafe extern "C" fn timeout(raw: *mut bindings::request) -> bindings::blk_eh_timer_return {
        // SAFETY: By the safety requirement, and the request belongs to a set of `O`.
        let request = unsafe { ExpiredRequest::<O::DiskData, O::SetData>::from_raw(raw) };
        if O::timeout(&request) {
            bindings::blk_eh_timer_return_BLK_EH_DONE
        } else {
            bindings::blk_eh_timer_return_BLK_EH_RESET_TIMER
        }
    }

    /// # Safety
    ///
    /// Only to be called by the block layer.
    unsafe extern "C" fn poll(
        hctx: *mut bindings::blk_mq_hw_ctx,
        _batch: *mut bindings::io_comp_batch,
    ) -> c_int {
        // SAFETY: The hctx is live during the callback.
        let found = O::poll(&unsafe { Self::hw_queue(hctx) });
        c_int::try_from(found).unwrap_or(c_int::MAX)
    }

    /// # Safety
    ///
    /// Only to be called by the block layer.
    unsafe extern "C" fn init_request(
        _set: *mut bindings::blk_mq_tag_set,
        raw: *mut bindings::request,
        _hctx_index: c_uint,
        _numa_node: c_int,
    ) -> c_int {
        // SAFETY: The set's `cmd_size` is the size of the private area. The block layer passes each
        // request to this function once, before the request is used.
        unsafe { request::init_private(raw) };
        0
    }

    /// # Safety
    ///
    /// Only to be called by the block layer.
    unsafe extern "C" fn map_queues(set: *mut bindings::blk_mq_tag_set) {
        // SAFETY: The block layer passes a set made for `O`.
        let data: &SetData<O::SetData> = unsafe { SetData::of(set) };
        // SAFETY: No other code uses the set during this callback.
        map_queues(unsafe { &mut *set }, data.nr_poll_queues);
    }

    /// The callbacks of a tag set.
    pub(super) const MQ_OPS: bindings::blk_mq_ops = bindings::blk_mq_ops {
        queue_rq: Some(Self::queue_rq),
        queue_rqs: if O::HAS_QUEUE_RQS {
            Some(Self::queue_rqs)
        } else {
            None
        },
        complete: Some(Self::complete),
        poll: if O::HAS_POLL { Some(Self::poll) } else { None },
        timeout: if O::HAS_TIMEOUT {
            Some(Self::timeout)
        } else {
            None
        },
        init_request: Some(Self::init_request),
        map_queues: Some(Self::map_queues),
        ..pin_init::zeroed()
    };
}
