// SPDX-License-Identifier: GPL-2.0

//! A disk. Would extend `kernel::block::mq::gen_disk`.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    limits::{
        ChangingLimits,
        Limits,
        MAX_CAPACITY, //
    },
    operations::Operations,
    reservation_table,
    tag_set::TagSet, //
};
use crate::{
    bindings,
    block::{
        disk::{
            UniqueIdKind,
            UNIQUE_ID_LEN, //
        },
        major::Major, //
    },
    compat,
    kobject::{
        AsKobject,
        Kobject,
        LinkTarget, //
    },
    mm::without_io,
    prelude::*, //
};
use core::{
    mem::ManuallyDrop,
    ptr,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    static_lock_class,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    time::msecs_to_jiffies, //
};

/// The time in ms for which [`GenDisk::change_limits`] waits for requests before it asks whether to
/// go on.
pub const LIMITS_WAIT_MS: u32 = 50;

/// The attributes of a new disk.
pub struct DiskParams<'a> {
    /// The name of the disk below `/dev`, at most 31 bytes.
    pub name: &'a CStr,
    /// The driver's major number.
    pub major: &'a Arc<Major>,
    /// The minor number of the whole disk.
    pub first_minor: u32,
    /// The number of minor numbers: the whole disk and its partitions.
    pub minors: u16,
    /// The size in sectors of 512 bytes, at most [`MAX_CAPACITY`].
    pub capacity: u64,
    /// Whether the disk is read-only.
    pub read_only: bool,
    /// Limits and features.
    pub limits: Limits,
}

/// A disk that programs can use.
///
/// Dropping it removes the disk. New requests fail. The drop waits for requests in flight, so these
/// must be able to end. File systems on the disk see a dead device. Each opener of the disk keeps
/// the driver's data and module until the opener closes the disk. Dropping sleeps, and must not
/// happen in the disk's own callbacks.
///
/// # Invariants
///
/// - `raw` is a disk that `device_add_disk` has added and only `drop` removes. Its queue uses
///   `tag_set`. This value owns the reference that came with the disk, so the disk is valid.
/// - The disk's `private_data` and `queuedata` are `data`, which comes from `Arc::into_raw`. This
///   value owns that `Arc<O::DiskData>`, and each opener owns a further one.
pub struct GenDisk<O: Operations> {
    raw: NonNull<bindings::gendisk>,
    data: NonNull<O::DiskData>,
    // Outlives the disk.
    tag_set: ManuallyDrop<Arc<TagSet<O>>>,
    // Keeps the numbers reserved as long as the disk exists.
    major: ManuallyDrop<Arc<Major>>,
}

// SAFETY: The C functions that are called with a disk do their own locking, and the data is `Send +
// Sync`.
unsafe impl<O: Operations> Send for GenDisk<O> {}

// SAFETY: See above.
unsafe impl<O: Operations> Sync for GenDisk<O> {}

impl<O: Operations> GenDisk<O> {
    const OPS: bindings::rnbd_disk_operations = bindings::rnbd_disk_operations {
        block: bindings::block_device_operations {
            open: Some(open_callback::<O>),
            release: Some(release_callback::<O>),
            getgeo: Some(getgeo_callback),
            get_unique_id: Some(get_unique_id_callback::<O>),
            pr_ops: reservation_table::table::<O>(),
            // An open disk keeps the driver's module loaded, not the module of this crate.
            owner: compat::this_module::<O::OwnerModule>(),
            ..pin_init::zeroed()
        },
        wwid: Some(wwid_callback::<O>),
    };

    /// Makes a disk and adds it. Adding reads the partitions, so requests must work by then.
    ///
    /// `EINVAL` for limits that make no sense. Sleeps.
    pub fn add(
        tag_set: &Arc<TagSet<O>>,
        params: &DiskParams<'_>,
        data: Arc<O::DiskData>,
    ) -> Result<Self> {
        let mut limits = params.limits.to_raw()?;
        let first_minor = c_int::try_from(params.first_minor)?;
        if params.capacity > MAX_CAPACITY || params.minors == 0 {
            return Err(EINVAL);
        }
        let data = Arc::into_raw(data).cast_mut();
        // SAFETY: The set is initialised, the limits are valid, and the key is static.
        let raw = from_err_ptr(unsafe {
            bindings::__blk_mq_alloc_disk(
                tag_set.as_raw(),
                &mut limits,
                data.cast::<c_void>(),
                static_lock_class!().as_ptr(),
            )
        })
        .inspect_err(|_| {
            // SAFETY: `data` came from `into_raw` above, and no other code has it.
            drop(unsafe { Arc::from_raw(data) });
        })?;

        // SAFETY: The disk is new, so only this function knows it, and its data is `data`.
        if let Err(error) = unsafe { Self::complete(raw, params, first_minor, data) } {
            // SAFETY: The reference is the one of `__blk_mq_alloc_disk`. The disk was not added, or
            // was removed again, so its queue has no requests and gets none any more.
            unsafe { bindings::put_disk(raw) };
            // SAFETY: `data` came from `into_raw` above, and the disk could not be opened.
            drop(unsafe { Arc::from_raw(data) });
            return Err(error);
        }
        // INVARIANT: The disk was added with `data` and with a queue of `tag_set`.
        Ok(Self {
            // SAFETY: The pointer is not null, as it was dereferenced.
            raw: unsafe { NonNull::new_unchecked(raw) },
            // SAFETY: See above.
            data: unsafe { NonNull::new_unchecked(data) },
            tag_set: ManuallyDrop::new(tag_set.clone()),
            major: ManuallyDrop::new(params.major.clone()),
        })
    }

    /// Fills in a new disk and adds it. `ENAMETOOLONG` if the name does not fit.
    ///
    /// # Safety
    ///
    /// `raw` is a disk of a tag set of `O` that only the caller knows, and is valid during the
    /// call. `data` came from an `Arc`, which stays as long as the disk.
    unsafe fn complete(
        raw: *mut bindings::gendisk,
        params: &DiskParams<'_>,
        first_minor: c_int,
        data: *mut O::DiskData,
    ) -> Result {
        // SAFETY: Only the caller knows the disk.
        let disk = unsafe { &mut *raw };
        let name = params.name.to_bytes_with_nul();
        if name.len() > disk.disk_name.len() {
            return Err(ENAMETOOLONG);
        }
        for (to, from) in disk.disk_name.iter_mut().zip(name) {
            *to = *from as c_char;
        }
        disk.major = params.major.number();
        disk.first_minor = first_minor;
        disk.minors = c_int::from(params.minors);
        let ops: &'static bindings::rnbd_disk_operations = &Self::OPS;
        disk.fops = &raw const ops.block;
        disk.private_data = data.cast::<c_void>();
        // SAFETY: The disk is valid and complete, and its operations are part of a
        // `rnbd_disk_operations`, as the helper requires.
        unsafe {
            bindings::set_capacity(raw, params.capacity);
            bindings::set_disk_ro(raw, params.read_only);
            to_result(bindings::rnbd_helper_add_disk(raw))
        }
    }

    /// The size in sectors of 512 bytes.
    pub fn capacity(&self) -> u64 {
        // SAFETY: The reference that this value owns keeps the disk.
        unsafe { capacity(self.raw.as_ptr()) }
    }

    /// Changes the size, and tells programs of the change by a uevent (C:
    /// `set_capacity_and_notify`).
    ///
    /// `EINVAL` for more than [`MAX_CAPACITY`]. Sleeps.
    pub fn set_capacity(&self, sectors: u64) -> Result {
        if sectors > MAX_CAPACITY {
            return Err(EINVAL);
        }
        // SAFETY: The reference that this value owns keeps the disk, which only `drop` removes.
        unsafe { bindings::set_capacity_and_notify(self.raw.as_ptr(), sectors) };
        Ok(())
    }

    /// Makes the disk read-only or writable. If that is a change, programs are told by a uevent (C:
    /// `set_disk_ro`). Sleeps.
    pub fn set_read_only(&self, read_only: bool) {
        // SAFETY: The reference that this value owns keeps the disk, which only `drop` removes.
        unsafe { bindings::set_disk_ro(self.raw.as_ptr(), read_only) };
    }

    /// Sets the time in ms for which the driver may have a request before [`Operations::timeout`]
    /// is called. The block layer rounds the time up, so the callback may come one or two seconds
    /// later. The time is also `queue/io_timeout` in sysfs. A request that the driver already has
    /// keeps its old time. Any context.
    pub fn set_request_timeout(&self, ms: u32) {
        let jiffies = c_uint::try_from(msecs_to_jiffies(ms)).unwrap_or(c_uint::MAX);
        // SAFETY: The reference that this value owns keeps the disk and its queue.
        unsafe {
            let queue = (*self.raw.as_ptr()).queue;
            bindings::blk_queue_rq_timeout(queue, jiffies);
        }
    }

    /// Changes limits while no request is in flight. New requests wait until the change is over,
    /// and so do tasks that read or write the disk's files in `queue/`.
    ///
    /// While there are requests in flight, or another task changes limits, `go_on` is called every
    /// [`LIMITS_WAIT_MS`]. If it returns false the result is `EBUSY`, and nothing has changed.
    /// `EINVAL` for limits that make no sense. The administrator's settings
    /// (`queue/discard_max_bytes`, `queue/read_ahead_kb` and more) stay.
    ///
    /// Sleeps. `go_on` must neither wait for a request of this disk nor change its limits.
    pub fn change_limits(
        &self,
        limits: &ChangingLimits,
        mut go_on: impl FnMut() -> bool,
    ) -> Result {
        // SAFETY: The reference that this value owns keeps the disk, and that keeps its queue.
        let queue = unsafe { (*self.raw.as_ptr()).queue };
        // Allocations must not wait for requests of this disk, as these wait for the change.
        without_io(|| {
            let mut raw = bindings::queue_limits::default();
            // SAFETY: The disk was added and is not removed while `self` is borrowed, so its queue
            // is in use. This task ends the change by one of the two functions below.
            let begin = |raw: &mut bindings::queue_limits| unsafe {
                bindings::rnbd_helper_limits_begin(queue, raw, LIMITS_WAIT_MS)
            };
            while !begin(&mut raw) {
                if !go_on() {
                    return Err(EBUSY);
                }
            }
            let mut result = limits.replace_in(&mut raw);
            // SAFETY: As above.
            let wait = || unsafe { bindings::rnbd_helper_limits_wait(queue, LIMITS_WAIT_MS) };
            while result.is_ok() && !wait() {
                if !go_on() {
                    result = Err(EBUSY);
                }
            }
            if let Err(error) = result {
                // SAFETY: Ends the change that was begun above.
                unsafe { bindings::rnbd_helper_limits_cancel(queue) };
                return Err(error);
            }
            // SAFETY: As above. No request is in flight. The limits are those of this queue, some
            // of which were replaced.
            to_result(unsafe { bindings::rnbd_helper_limits_commit(queue, &raw mut raw) })
        })
    }

    /// Waits until all requests have ended. From now on new requests wait, and fail when the disk
    /// is removed. Sleeps.
    ///
    /// Only for a disk that is removed next and that no program has open. The removal of an open
    /// disk first writes dirty data back, and would wait for ever.
    pub fn freeze(&self) {
        let queue = self.queue();
        // SAFETY: The reference that this value owns keeps the disk, and that keeps its queue. The
        // queue is not unfrozen again, so the freeze has no owner.
        unsafe {
            bindings::blk_freeze_queue_start_non_owner(queue);
            bindings::blk_mq_freeze_queue_wait(queue);
        }
    }

    /// The queue, which exists as long as the disk.
    pub(super) fn queue(&self) -> *mut bindings::request_queue {
        // SAFETY: The reference that this value owns keeps the disk and its queue.
        unsafe { (*self.raw.as_ptr()).queue }
    }

    /// The directory `/sys/block/NAME`.
    fn kobject(&self) -> &Kobject {
        // SAFETY: The reference that this value owns keeps the disk, and so `part0`, its whole-disk
        // device. Both stay while `self` is borrowed.
        unsafe { Kobject::from_raw(&raw mut (*(*self.raw.as_ptr()).part0).bd_device.kobj) }
    }
}

// SAFETY: The disk is in sysfs from when it was added until `self` is dropped.
unsafe impl<O: Operations> AsKobject for GenDisk<O> {
    fn with_kobject<R>(&self, run: impl FnOnce(&Kobject) -> R) -> Option<R> {
        Some(run(self.kobject()))
    }
}

// SAFETY: The kobject is initialised, as above.
unsafe impl<O: Operations> LinkTarget for GenDisk<O> {
    fn target(&self) -> ARef<Kobject> {
        self.kobject().into()
    }
}

impl<O: Operations> Drop for GenDisk<O> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the disk was added, and this removes it once.
        unsafe { bindings::del_gendisk(self.raw.as_ptr()) };
        // Callbacks must have returned before the references below are dropped. All requests have
        // ended, but the `queue_rq` that took the last one may still run, and the block layer does
        // not count it if the submitter of the request called it directly. Such a callback may
        // still use its hardware queue, which is freed with the last reference to the disk, and the
        // data and the tag set, which may be freed below. The callback runs under the RCU read
        // lock, as the set is not for callbacks that sleep.
        // SAFETY: The function may be called wherever sleeping is allowed.
        unsafe { bindings::synchronize_rcu_expedited() };
        // SAFETY: The reference is the one of `__blk_mq_alloc_disk`. Openers have their own.
        unsafe { bindings::put_disk(self.raw.as_ptr()) };
        // SAFETY: By the type invariant this value owns the `Arc`. The queue has no requests and
        // gets no more, and no callback with a hardware queue runs any more. `open_callback` is not
        // called any more, and each opener has an `Arc` of its own.
        drop(unsafe { Arc::from_raw(self.data.as_ptr()) });
        // SAFETY: The queue has left the set, and neither field is used after this.
        unsafe {
            ManuallyDrop::drop(&mut self.tag_set);
            ManuallyDrop::drop(&mut self.major);
        }
    }
}

/// The size in sectors.
///
/// # Safety
///
/// The disk must be valid.
unsafe fn capacity(disk: *mut bindings::gendisk) -> u64 {
    // SAFETY: By the function's requirement the disk is valid. The supported machines load 64 bits
    // at once, so the value is not torn.
    unsafe { ptr::read_volatile(&raw const (*(*disk).part0).bd_nr_sectors) }
}

/// # Safety
///
/// Only to be called by the block layer, with a disk of `O` that has not been removed.
unsafe extern "C" fn open_callback<O: Operations>(
    disk: *mut bindings::gendisk,
    mode: bindings::blk_mode_t,
) -> c_int {
    from_result(|| {
        // SAFETY: By the type invariant `GenDisk` owns an `Arc` of the data, at least until
        // `del_gendisk` has returned. `del_gendisk` takes the lock under which this callback is
        // called, and later opening fails without calling it.
        let data = unsafe { ArcBorrow::from_raw((*disk).private_data.cast::<O::DiskData>()) };
        O::open(data, mode & bindings::RNBD_BLK_OPEN_WRITE != 0)?;
        // This `Arc` belongs to the opener.
        let _ = Arc::into_raw(Arc::from(data));
        Ok(0)
    })
}

/// # Safety
///
/// Only to be called by the block layer, once for each success of `open_callback`.
unsafe extern "C" fn release_callback<O: Operations>(disk: *mut bindings::gendisk) {
    // SAFETY: This is the opener's `Arc`, from the `into_raw` of `open_callback`.
    let data = unsafe { Arc::from_raw((*disk).private_data.cast::<O::DiskData>()) };
    O::release(data.as_arc_borrow());
}

/// Writes the disk's unique name; returns its length.
///
/// # Safety
///
/// Only to be called for an attribute of a disk of `O` that was made and not yet removed. `wwid`
/// has room for `RNBD_WWID_LEN` bytes.
unsafe extern "C" fn wwid_callback<O: Operations>(
    disk: *mut bindings::gendisk,
    wwid: *mut c_char,
) -> usize {
    // SAFETY: `GenDisk` keeps the data until `del_gendisk` has returned, which waits for readers of
    // attributes.
    let data = unsafe { &*(*disk).private_data.cast::<O::DiskData>() };
    let name = O::wwid(data);
    let len = name.len().min(bindings::RNBD_WWID_LEN as usize);
    // SAFETY: By the function's requirement there is room for `len` bytes.
    unsafe { ptr::copy_nonoverlapping(name.as_ptr(), wwid.cast(), len) };
    len
}

/// Writes the identifier that is stored in the disk; returns its length.
///
/// # Safety
///
/// Only to be called for a disk of `O` that the caller has open. `id` has room for 16 bytes.
unsafe extern "C" fn get_unique_id_callback<O: Operations>(
    disk: *mut bindings::gendisk,
    id: *mut u8,
    kind: bindings::blk_unique_id,
) -> c_int {
    // SAFETY: The caller has the disk open, and each opening holds an `Arc` of the data.
    let data = unsafe { &*(*disk).private_data.cast::<O::DiskData>() };
    let kinds = [UniqueIdKind::Naa, UniqueIdKind::Eui];
    let found = kinds
        .into_iter()
        .find(|found| *found as bindings::blk_unique_id == kind)
        .and_then(|kind| O::unique_id(data, kind));
    let Some((bytes, len)) = found.filter(|(_, len)| (1..=UNIQUE_ID_LEN).contains(len)) else {
        return ENXIO.to_errno();
    };
    // SAFETY: By the function's requirement there is room for all 16 bytes.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), id, UNIQUE_ID_LEN) };
    // The length is at most 16.
    len as c_int
}

/// Reports the same geometry as the C client: 4 heads, 16 sectors.
///
/// # Safety
///
/// Only to be called by the block layer.
unsafe extern "C" fn getgeo_callback(
    disk: *mut bindings::gendisk,
    geometry: *mut kernel::bindings::hd_geometry,
) -> c_int {
    // SAFETY: The block layer passes a structure to be filled in. The kernel crate declares that
    // structure without its fields, hence the cast.
    let geometry = unsafe { &mut *geometry.cast::<bindings::hd_geometry>() };
    geometry.heads = 4;
    geometry.sectors = 16;
    // SAFETY: The block layer passes a valid disk.
    let capacity = unsafe { capacity(disk) };
    // Only the low bits fit, as in all drivers.
    geometry.cylinders = (capacity >> 6) as c_ushort;
    geometry.start = 0;
    0
}
