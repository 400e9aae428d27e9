// SPDX-License-Identifier: GPL-2.0

//! The block layer's table of callbacks for persistent reservations.
//!
//! C header: [`include/linux/pr.h`](srctree/include/linux/pr.h)

use core::{
    marker::PhantomData,
    ptr,
    slice, //
};

use super::{
    operations::Operations,
    reservation::{
        Change,
        Failure, //
    }, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// The return value of a callback: 0, a positive `enum pr_status`, or a negative error number.
fn to_raw(result: Result<(), Failure>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Failure::Conflict) => bindings::pr_status_PR_STS_RESERVATION_CONFLICT as c_int,
        Err(Failure::PathFailed) => bindings::pr_status_PR_STS_PATH_FAILED as c_int,
        Err(Failure::Errno(error)) => error.to_errno(),
    }
}

/// Whether `PR_FL_IGNORE_KEY` is set. `EOPNOTSUPP` for other flags, as in `drivers/scsi/sd.c`.
/// `block/ioctl.c` checks the flags as well, but not for callers in the kernel.
fn ignore_key_of(flags: u32) -> Result<bool> {
    match flags {
        0 => Ok(false),
        bindings::PR_FL_IGNORE_KEY => Ok(true),
        _ => Err(EOPNOTSUPP),
    }
}

/// The table of callbacks for disks of `O`; null if `O` has none.
pub(super) const fn table<O: Operations>() -> *const kernel::bindings::pr_ops {
    if O::HAS_CHANGE_RESERVATION && O::HAS_RESERVATION && O::HAS_RESERVATION_KEYS {
        let ops: &'static bindings::pr_ops = &Table::<O>::OPS;
        // The kernel crate declares the structure without its fields, hence the cast.
        (&raw const *ops).cast()
    } else {
        ptr::null()
    }
}

/// Makes the table of callbacks.
struct Table<O>(PhantomData<O>);

impl<O: Operations> Table<O> {
    const OPS: bindings::pr_ops = bindings::pr_ops {
        pr_register: Some(Self::register),
        pr_reserve: Some(Self::reserve),
        pr_release: Some(Self::release),
        pr_preempt: Some(Self::preempt),
        pr_clear: Some(Self::clear),
        pr_read_keys: Some(Self::read_keys),
        pr_read_reservation: Some(Self::read_reservation),
    };

    /// The driver's data.
    ///
    /// # Safety
    ///
    /// `bdev` is a device of a disk of `O` that the caller of the callback has open, for as long as
    /// the result is used.
    unsafe fn disk<'a>(bdev: *mut bindings::block_device) -> &'a O::DiskData {
        // SAFETY: By the safety requirement the disk is open, and each opener holds an `Arc` of the
        // data.
        unsafe { &*(*(*bdev).bd_disk).private_data.cast::<O::DiskData>() }
    }

    /// # Safety
    ///
    /// As for [`Self::disk`].
    unsafe fn change(bdev: *mut bindings::block_device, change: Change) -> c_int {
        // SAFETY: By the safety requirement.
        to_raw(O::change_reservation(unsafe { Self::disk(bdev) }, &change))
    }

    /// # Safety
    ///
    /// Only to be called by the block layer, with a device of a disk of `O` that the caller has
    /// open.
    unsafe extern "C" fn register(
        bdev: *mut bindings::block_device,
        old: u64,
        new: u64,
        flags: u32,
    ) -> c_int {
        let ignore_key = match ignore_key_of(flags) {
            Ok(ignore_key) => ignore_key,
            Err(error) => return error.to_errno(),
        };
        let change = Change::Register {
            old,
            new,
            ignore_key,
        };
        // SAFETY: By the safety requirement.
        unsafe { Self::change(bdev, change) }
    }

    /// # Safety
    ///
    /// As for [`Self::register`].
    unsafe extern "C" fn reserve(
        bdev: *mut bindings::block_device,
        key: u64,
        kind: bindings::pr_type,
        flags: u32,
    ) -> c_int {
        let ignore_key = match ignore_key_of(flags) {
            Ok(ignore_key) => ignore_key,
            Err(error) => return error.to_errno(),
        };
        let change = Change::Reserve {
            key,
            kind,
            ignore_key,
        };
        // SAFETY: By the safety requirement.
        unsafe { Self::change(bdev, change) }
    }

    /// # Safety
    ///
    /// As for [`Self::register`].
    unsafe extern "C" fn release(
        bdev: *mut bindings::block_device,
        key: u64,
        kind: bindings::pr_type,
    ) -> c_int {
        // SAFETY: By the safety requirement.
        unsafe { Self::change(bdev, Change::Release { key, kind }) }
    }

    /// # Safety
    ///
    /// As for [`Self::register`].
    unsafe extern "C" fn preempt(
        bdev: *mut bindings::block_device,
        key: u64,
        victim: u64,
        kind: bindings::pr_type,
        abort: bool,
    ) -> c_int {
        let change = Change::Preempt {
            key,
            victim,
            kind,
            abort,
        };
        // SAFETY: By the safety requirement.
        unsafe { Self::change(bdev, change) }
    }

    /// # Safety
    ///
    /// As for [`Self::register`].
    unsafe extern "C" fn clear(bdev: *mut bindings::block_device, key: u64) -> c_int {
        // SAFETY: By the safety requirement.
        unsafe { Self::change(bdev, Change::Clear { key }) }
    }

    /// # Safety
    ///
    /// As for [`Self::register`]. Behind `info` there is room for `num_keys` keys. No other code
    /// uses `info` and that room.
    unsafe extern "C" fn read_keys(
        bdev: *mut bindings::block_device,
        info: *mut bindings::pr_keys,
    ) -> c_int {
        // SAFETY: By the safety requirement.
        let (disk, room) = unsafe { (Self::disk(bdev), (*info).num_keys) };
        // SAFETY: By the safety requirement there is room for `room` keys behind the structure,
        // which no other code uses.
        let keys = unsafe {
            let first = (&raw mut (*info).keys).cast::<u64>();
            slice::from_raw_parts_mut(first, room as usize)
        };
        to_raw(O::reservation_keys(disk, keys).map(|found| {
            // SAFETY: By the safety requirement. The keys are not used any more.
            unsafe {
                (*info).generation = found.generation;
                (*info).num_keys = found.count;
            }
        }))
    }

    /// # Safety
    ///
    /// As for [`Self::register`]. `held` is valid, and no other code uses it.
    unsafe extern "C" fn read_reservation(
        bdev: *mut bindings::block_device,
        held: *mut bindings::pr_held_reservation,
    ) -> c_int {
        // SAFETY: By the safety requirement.
        let disk = unsafe { Self::disk(bdev) };
        to_raw(O::reservation(disk).map(|found| {
            // SAFETY: By the safety requirement.
            unsafe {
                (*held).key = found.key;
                (*held).generation = found.generation;
                (*held).type_ = found.kind;
            }
        }))
    }
}
