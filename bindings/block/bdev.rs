// SPDX-License-Identifier: GPL-2.0

//! Block devices that are opened by path. Would be a new part of `kernel::block`.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    str::{
        CStr,
        CString, //
    },
    sync::aref::ARef, //
};

use super::disk::{
    Limits,
    Mode,
    UniqueIdKind,
    UNIQUE_ID_LEN, //
};
use crate::{
    bindings,
    kobject::{
        Kobject,
        LinkTarget, //
    },
    prelude::*, //
};

/// An open block device or partition, which is closed when this value is dropped.
///
/// Opening and dropping sleep. The device is closed when the drop returns, so it is not busy any
/// more then.
///
/// # Invariants
///
/// `file` is a block device file, to which this object holds the only reference, and `bdev` is its
/// block device. So the device, its queue and its whole disk stay valid as long as this object.
pub struct BlockDevice {
    file: NonNull<bindings::file>,
    bdev: NonNull<bindings::block_device>,
    /// Whether each submission may sleep: in the driver, or to wait for memory for integrity data.
    may_sleep: bool,
}

// SAFETY: Block device files are not tied to a task.
unsafe impl Send for BlockDevice {}
// SAFETY: Through a shared reference attributes are read and requests submitted, which the block
// layer allows in any task, also concurrently.
unsafe impl Sync for BlockDevice {}

impl BlockDevice {
    /// Opens the block device with the given path, looked up from the root of the init process.
    ///
    /// Process context; sleeps. Errors are those of the path lookup and of the device: `ENOENT`,
    /// `ENOTBLK`, `EACCES` for writing to a read-only device, `ENXIO`, `ENOMEDIUM` and more (C:
    /// `bdev_file_open_by_path`).
    pub fn open(path: &CStr, mode: Mode) -> Result<Self> {
        let write = mode == Mode::ReadWrite;
        // SAFETY: The path is a C string, which the function only reads.
        let file =
            unsafe { bindings::rnbd_helper_bdev_file_open_by_path(path.as_char_ptr(), write) };
        let file = NonNull::new(from_err_ptr(file)?).ok_or(ENXIO)?;
        // SAFETY: The file is an open block device.
        let bdev = unsafe { bindings::file_bdev(file.as_ptr()) };
        match NonNull::new(bdev) {
            // INVARIANT: The reference came with the file.
            Some(bdev) => Ok(Self {
                file,
                bdev,
                // SAFETY: The device is open.
                may_sleep: unsafe { bindings::rnbd_helper_bdev_may_sleep(bdev.as_ptr()) },
            }),
            None => {
                // SAFETY: The reference came with the file and is not used again.
                unsafe { bindings::__fput_sync(file.as_ptr()) };
                Err(ENXIO)
            }
        }
    }

    /// The raw device, valid as long as `self`.
    pub(super) fn as_raw(&self) -> *mut bindings::block_device {
        self.bdev.as_ptr()
    }

    /// The file of the device, valid as long as `self`.
    pub(crate) fn as_file(&self) -> *mut bindings::file {
        self.file.as_ptr()
    }

    /// The kernel's number of the device (C: `dev_t`).
    pub fn number(&self) -> u32 {
        // SAFETY: The device is open by the type invariant.
        unsafe { (*self.as_raw()).bd_dev }
    }

    /// Reads an identifier that is stored in the whole disk, and returns its length in bytes.
    /// `None` if the disk has no identifier of this kind. Sleeps.
    ///
    /// An error means that the identifier is unknown at present, for example `EAGAIN` from a
    /// multipath NVMe namespace without a path. SCSI's `ENXIO` gives `None`: the disk has no
    /// identifiers, or SCSI failed to read them when it found the disk.
    pub fn unique_id(
        &self,
        kind: UniqueIdKind,
        id: &mut [u8; UNIQUE_ID_LEN],
    ) -> Result<Option<usize>> {
        // SAFETY: The device is open by the type invariant; the function writes at most 16 bytes.
        let len = unsafe {
            bindings::rnbd_helper_bdev_unique_id(self.as_raw(), id.as_mut_ptr(), kind as c_int)
        };
        match usize::try_from(len) {
            Ok(len) => Ok(Some(len).filter(|&len| 0 < len && len <= UNIQUE_ID_LEN)),
            Err(_) => match Error::from_errno(len) {
                EOPNOTSUPP | EINVAL | ENXIO => Ok(None),
                error => Err(error),
            },
        }
    }

    /// The number of the partition; 0 for the whole disk. Any context.
    pub fn partition(&self) -> u32 {
        // SAFETY: The device is open by the type invariant.
        unsafe { bindings::rnbd_helper_bdev_partno(self.as_raw()) }
    }

    /// Whether the device, or a partition of it, is claimed: mounted, or used as a part of another
    /// disk. Any context.
    pub fn is_held(&self) -> bool {
        // SAFETY: The device is open by the type invariant.
        unsafe { bindings::rnbd_helper_bdev_is_held(self.as_raw()) }
    }

    /// The sequence number of the disk (C: `diskseq`). It differs from that of every other disk
    /// that had the same name and number since the machine was started. Any context.
    pub fn disk_sequence(&self) -> u64 {
        // SAFETY: The device is open by the type invariant.
        unsafe { bindings::rnbd_helper_bdev_diskseq(self.as_raw()) }
    }

    /// The directory of the whole disk in sysfs, valid as long as `self`.
    fn disk_kobject(&self) -> &Kobject {
        // SAFETY: The device is open by the type invariant, which keeps its disk.
        unsafe { Kobject::from_raw(bindings::rnbd_helper_bdev_disk_kobj(self.as_raw())) }
    }

    /// The kernel's name of the device, such as `vda1`.
    ///
    /// May sleep.
    pub fn name(&self) -> Result<CString> {
        let mut buf = [0u8; Self::NAME_SIZE];
        // SAFETY: The device is open by the type invariant, the buffer has the size given.
        unsafe {
            bindings::rnbd_helper_bdev_name(self.as_raw(), buf.as_mut_ptr().cast(), buf.len())
        };
        let name = CStr::from_bytes_until_nul(&buf).map_err(|_| EINVAL)?;
        Ok(CString::try_from(name)?)
    }

    /// The name of a disk (`DISK_NAME_LEN`) and a partition's number.
    const NAME_SIZE: usize = 32 + 16;

    /// The present size in sectors of 512 bytes. Any context.
    #[inline]
    pub fn nr_sectors(&self) -> u64 {
        // SAFETY: The device is open by the type invariant.
        unsafe { (&raw const (*self.as_raw()).bd_nr_sectors).read_volatile() }
    }

    /// The smallest unit of a request, in bytes. Any context.
    #[inline]
    pub fn logical_block_size(&self) -> u32 {
        // SAFETY: The device is open by the type invariant.
        unsafe {
            (&raw const (*(*self.as_raw()).bd_queue).limits.logical_block_size).read_volatile()
        }
    }

    /// Whether the submission of a bio with `REQ_NOWAIT` never sleeps; see [`bio`](super::bio). Any
    /// context.
    #[inline]
    pub(super) fn can_submit_without_sleeping(&self) -> bool {
        self.features() & bindings::RNBD_BLK_FEAT_NOWAIT != 0 && !self.may_sleep
    }

    /// The present features (`BLK_FEAT_`). Any context.
    #[inline]
    fn features(&self) -> u32 {
        // SAFETY: By the type invariant the device is open, which keeps its queue.
        unsafe { (&raw const (*(*self.as_raw()).bd_queue).limits.features).read_volatile() }
    }

    /// Whether the device is read-only at present, independent of the mode in which it was opened.
    /// Any context.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        let flag = |bdev: *mut bindings::block_device| {
            // SAFETY: The device is open by the type invariant, and so is the whole disk.
            let flags = unsafe {
                (&raw const (*bdev).__bd_flags)
                    .cast::<u32>()
                    .read_volatile()
            };
            flags & bindings::BD_READ_ONLY != 0
        };
        let bdev = self.as_raw();
        // SAFETY: An open device has its disk.
        let disk = unsafe { (*bdev).bd_disk };
        // SAFETY: As above.
        let (whole, state) = unsafe {
            let state = (&raw const (*disk).state).read_volatile();
            ((*disk).part0, state)
        };
        flag(bdev) || flag(whole) || state & 1 << bindings::GD_READ_ONLY != 0
    }

    /// Whether the disk was removed: a removed disk fails all requests, and does not come back. Any
    /// context.
    ///
    /// A removed disk has the size 0. If a caller sees the size 0 and then gets `false` here, the
    /// disk had that size without having been removed.
    pub fn is_gone(&self) -> bool {
        // SAFETY: The device is open by the type invariant, which keeps its disk.
        unsafe { bindings::rnbd_helper_bdev_is_gone(self.as_raw()) }
    }

    /// The number of requests of the device in flight, from all users, as the device counts them: a
    /// suspended device of the device mapper does not count the requests that it holds, and a
    /// device with `queue/iostats` 0 may not count at all. Any context.
    pub fn requests_in_flight(&self) -> u32 {
        // SAFETY: The device is open by the type invariant.
        unsafe { bindings::bdev_count_inflight(self.as_raw()) }
    }

    /// The present limits. During an update some of them may be old and some new. Any context;
    /// never waits for the disk.
    pub fn limits(&self) -> Limits {
        let mut raw = bindings::rnbd_bdev_limits::default();
        // SAFETY: The device is open by the type invariant, `raw` is valid for writes.
        unsafe { bindings::rnbd_helper_bdev_limits(self.as_raw(), &raw mut raw) };
        Limits {
            logical_block_size: raw.logical_block_size,
            physical_block_size: raw.physical_block_size,
            max_segments: raw.max_segments,
            max_sectors: raw.max_sectors,
            max_hw_sectors: raw.max_hw_sectors,
            max_write_zeroes_sectors: raw.max_write_zeroes_sectors,
            max_discard_sectors: raw.max_discard_sectors,
            max_secure_erase_sectors: raw.max_secure_erase_sectors,
            discard_granularity: raw.discard_granularity,
            discard_alignment: raw.discard_alignment,
            write_cache: raw.write_cache,
            fua: raw.fua,
            rotational: raw.rotational,
        }
    }
}

// SAFETY: The kobject is initialised, as the disk is open.
unsafe impl LinkTarget for BlockDevice {
    fn target(&self) -> ARef<Kobject> {
        self.disk_kobject().into()
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        // The file must be closed when this returns. An ordinary fput() of a kernel thread closes
        // the file some time later; an administrator who has unmapped a device would still find it
        // busy.
        // SAFETY: The reference is ours by the type invariant and is not used again.
        unsafe { bindings::__fput_sync(self.file.as_ptr()) };
    }
}
