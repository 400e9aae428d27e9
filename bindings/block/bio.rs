// SPDX-License-Identifier: GPL-2.0

//! Requests to block devices. Would be a new part of `kernel::block`.
//!
//! The access mode is part of the type of an open device: a device that was opened [`ReadOnly`] has
//! no function that could change it. A caller enters the device ([`OpenDevice::enter`]) before it
//! submits a request. Closing the device waits until all callers and all requests in flight have
//! left.
//!
//! The state of a request is kept in front of its bio, in the memory of a [`BioSet`], so that a
//! request takes no allocation of its own.
//!
//! # Submission without sleeping
//!
//! `submit_bio` can sleep in many places. With [`Wait::Never`] it reaches none of them:
//!
//! - A bio is only allocated if there is free memory. Data that takes several bios is refused, as
//!   the second bio may have to wait for the memory of the first.
//! - A queue that is frozen (`bio_queue_enter`), has no free tag (`blk_mq_get_tag`) or has a full
//!   zone, and a stacked device that is suspended, end a bio with `REQ_NOWAIT` by `EAGAIN`.
//! - A bio with `REQ_NOWAIT` is not split: it ends by `EAGAIN`. Below a stacked driver, a part of
//!   it may have been carried out by then. Repeating the whole request is right: its data still
//!   exists, and its end was not reported.
//! - Write-back throttling (`wbt_wait`) sleeps before `REQ_NOWAIT` is checked. It lets reads pass,
//!   and writes with `REQ_SYNC` and `REQ_IDLE`. All writes have these two flags here, as those of
//!   direct IO have. It throttles every discard, so [`DeviceUse::range`] may always sleep.
//! - The other throttling policies (`iocost`, `iolatency`) let the root control group pass, which
//!   has the kernel threads.
//! - A driver whose `queue_rq` may sleep (`BLK_MQ_F_BLOCKING`), and integrity data, for which
//!   memory is waited for, are detected when the device is opened. Requests to such a device are
//!   refused.
//! - Requests to a driver without `BLK_FEAT_NOWAIT` are refused. A stacked driver has the feature
//!   if all devices below it have it. A device without the feature may be added below it at any
//!   time: then the block layer ends the bio by `EOPNOTSUPP`, which therefore counts as `EAGAIN`.
//!
//! C header: [`include/linux/bio.h`](srctree/include/linux/bio.h)

use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    str::CStr,
    sync::Arc, //
};

use super::{
    bdev::BlockDevice,
    disk::{
        check_range,
        Access,
        Completion,
        Position,
        RangeOp,
        ReadOnly,
        ReadWrite,
        Refused,
        Wait,
        WriteFlags, //
    },
    memory::{
        Memory,
        GFP_NOIO,
        GFP_NOWAIT, //
    }, //
};
use crate::{
    bindings,
    prelude::*,
    sync::gate::{
        Entered,
        Gate,
        GateOwner, //
    }, //
};

mod flags;
mod memory;
mod set;

pub use self::set::BioSet;

use self::{
    flags::{
        flag,
        nowait,
        NOWAIT,
        WRITE, //
    },
    memory::{
        add_all,
        submit_parts, //
    },
    set::{
        State,
        Target, //
    }, //
};

/// A block device that is open for requests with the access `A`.
///
/// Dropping it waits for its requests and closes the device. Process context.
pub struct OpenDevice<C: Completion, A: Access> {
    gate: Gate<Target<C>>,
    _access: PhantomData<A>,
}

impl<C: Completion, A: Access> OpenDevice<C, A> {
    /// Opens the block device with the given path; see [`BlockDevice::open`]. Sleeps.
    pub fn open(path: &CStr, bios: &Arc<BioSet<C>>) -> Result<Self> {
        let target = Target {
            device: BlockDevice::open(path, A::MODE)?,
            bios: bios.clone(),
        };
        Ok(Self {
            gate: Gate::new(target)?,
            _access: PhantomData,
        })
    }

    /// Enters the device, unless it is closed or being drained. Any context.
    #[inline]
    pub fn enter(&self) -> Option<DeviceUse<C, A>> {
        Some(DeviceUse {
            entered: self.gate.enter()?,
            _access: PhantomData,
        })
    }

    /// The gate that requests enter. Closing or draining the gate waits for all requests that have
    /// entered.
    pub fn gate(&self) -> &dyn GateOwner {
        &self.gate
    }
}

/// The use of an open device, for attributes or for one request.
pub struct DeviceUse<C: Completion, A: Access> {
    entered: Entered<Target<C>>,
    _access: PhantomData<A>,
}

impl<C: Completion, A: Access> DeviceUse<C, A> {
    /// The device.
    pub fn device(&self) -> &BlockDevice {
        &self.entered.device
    }

    /// Prepares a read into the memory of a completion.
    #[inline]
    pub fn reading(self, wait: Wait) -> Transfer<C> {
        Transfer {
            entered: self.entered,
            op: bindings::req_op_REQ_OP_READ | nowait(wait),
        }
    }

    /// Flushes the write cache of the device. `EAGAIN` as of [`Transfer::submit`].
    pub fn flush(self, wait: Wait, at: Position, completion: C) -> Result<(), Refused<C>> {
        let op = WRITE | flag(bindings::req_flag_bits___REQ_PREFLUSH) | nowait(wait);
        // A flush is for the whole device, so it has no sector.
        let at = Position { sector: 0, ..at };
        self.submit_empty(op, at, 0, completion)
    }

    /// Submits a request without data for a range of `len` bytes.
    fn submit_empty(
        self,
        op: u32,
        at: Position,
        len: u32,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let entered = self.entered;
        let bio = Transfer { entered, op }.prepare(at, 0, completion)?;
        // SAFETY: The bio is ours until it is submitted, and it is complete.
        unsafe {
            (*bio).bi_iter.bi_size = len;
            bindings::submit_bio(bio);
        }
        Ok(())
    }
}

/// A request that lacks only its position and its memory.
///
/// # Invariants
///
/// `op` is an operation and flags of a bio. An operation that changes the device comes from a
/// `DeviceUse` with [`ReadWrite`].
pub struct Transfer<C: Completion> {
    entered: Entered<Target<C>>,
    op: u32,
}

impl<C: Completion> Transfer<C> {
    /// Submits the request.
    ///
    /// `EINVAL` if the request is not for whole blocks, `EIO` if it reaches beyond the end of the
    /// device, `EAGAIN` if it must not sleep but would.
    #[inline(always)]
    pub fn submit(self, at: Position, completion: C) -> Result<(), Refused<C>> {
        let (len, segment) = match completion.memory() {
            Some(memory) => (memory.len(), memory.only_segment()),
            None => (0, None),
        };
        let checked = u32::try_from(len).map_err(|_| EINVAL).and_then(|len| {
            let device = &self.entered.device;
            let block_size = device.logical_block_size();
            check_range(block_size, device.nr_sectors(), at.sector, len)
        });
        if let Err(error) = checked {
            return Err(Refused { completion, error });
        }
        let Some(segment) = segment else {
            return self.submit_segments(at, completion);
        };
        let bio = self.prepare(at, 1, completion)?;
        // SAFETY: The bio has room for the segment, is ours until it is submitted, and is complete
        // with it. The completion in its state keeps the memory.
        unsafe {
            let (page, len) = (segment.page.as_ptr(), segment.len);
            bindings::__bio_add_page(bio, page, len, segment.offset);
            bindings::submit_bio(bio);
        }
        Ok(())
    }

    /// Submits a request whose data is in several segments.
    #[inline(never)]
    fn submit_segments(self, at: Position, completion: C) -> Result<(), Refused<C>> {
        let mut segments = 0usize;
        if let Some(memory) = completion.memory() {
            memory.for_each_segment(|_| segments += 1);
        }
        let vecs = u16::try_from(segments).unwrap_or(u16::MAX);
        if u32::from(vecs) > bindings::BIO_MAX_VECS {
            if self.op & NOWAIT != 0 {
                return Err(Refused {
                    completion,
                    error: EAGAIN,
                });
            }
            let block_size = self.entered.device.logical_block_size();
            let bio = self.prepare(at, 0, completion)?;
            // SAFETY: The state, and the memory of its completion, stay until `bio` is ended. It
            // ends when all parts have ended and `bio_endio` was called here.
            unsafe {
                if let Some(memory) = (*State::<C>::of(bio)).completion.memory() {
                    submit_parts(bio, &memory, block_size);
                }
                bindings::bio_endio(bio);
            }
            return Ok(());
        }
        let bio = self.prepare(at, vecs, completion)?;
        // SAFETY: The state was written, and is only used here until the bio is submitted.
        let memory = unsafe { &*State::<C>::of(bio) }.completion.memory();
        // SAFETY: The bio is ours until it is submitted. The completion keeps the memory.
        let added = memory.is_some_and(|memory| unsafe { add_all(bio, &memory) });
        if added {
            // SAFETY: The bio is complete.
            unsafe { bindings::submit_bio(bio) };
            return Ok(());
        }
        // SAFETY: The bio was not submitted, so no other code reads the state.
        let state = unsafe { State::<C>::of(bio).read() };
        // SAFETY: As above.
        unsafe { bindings::bio_put(bio) };
        Err(Refused {
            completion: state.completion,
            error: EIO,
        })
    }

    /// Makes a bio with room for `vecs` segments, and writes its state.
    #[inline]
    fn prepare(
        self,
        at: Position,
        vecs: u16,
        completion: C,
    ) -> Result<*mut bindings::bio, Refused<C>> {
        let Target { device, bios } = &*self.entered;
        let bio = if self.op & NOWAIT == 0 {
            // SAFETY: `entered` keeps the gate's target, so the device is open and the set is
            // initialised. There are at most `BIO_MAX_VECS` vectors.
            unsafe {
                bindings::bio_alloc_bioset(device.as_raw(), vecs, self.op, GFP_NOIO, bios.as_raw())
            }
        } else if device.can_submit_without_sleeping() {
            // SAFETY: As above.
            unsafe {
                let set = bios.as_raw();
                bindings::bio_alloc_bioset(device.as_raw(), vecs, self.op, GFP_NOWAIT, set)
            }
        } else {
            ptr::null_mut()
        };
        if bio.is_null() {
            // Only without waiting: with `GFP_NOIO` the allocation waits for memory.
            return Err(Refused {
                completion,
                error: EAGAIN,
            });
        }
        // SAFETY: The bio is ours. There is room for a `State` in front of every bio of the set,
        // and the check in `BioSet::new` ensures its alignment.
        unsafe {
            (*bio).bi_end_io = Some(State::<C>::end_io);
            (*bio).bi_ioprio = at.priority.as_raw();
            (*bio).bi_iter.bi_sector = at.sector;
            State::<C>::of(bio).write(State {
                completion,
                entered: self.entered,
            });
        }
        Ok(bio)
    }
}

impl<C: Completion> DeviceUse<C, ReadWrite> {
    /// The use of the device for reads and flushes only.
    #[inline]
    pub fn read_only(self) -> DeviceUse<C, ReadOnly> {
        DeviceUse {
            entered: self.entered,
            _access: PhantomData,
        }
    }

    /// Prepares a write of the memory of a completion. `EROFS` if the device has become read-only.
    #[inline]
    pub fn writing(self, flags: WriteFlags, wait: Wait) -> Result<Transfer<C>> {
        if self.device().is_read_only() {
            return Err(EROFS);
        }
        let mut op = WRITE | nowait(wait);
        if flags.fua {
            op |= flag(bindings::req_flag_bits___REQ_FUA);
        }
        if flags.preflush {
            op |= flag(bindings::req_flag_bits___REQ_PREFLUSH);
        }
        Ok(Transfer {
            entered: self.entered,
            op,
        })
    }

    /// Changes `len` bytes without data. Process context; may sleep.
    ///
    /// `EROFS` if the device has become read-only, other errors as of [`Transfer::submit`]. The
    /// request ends with `EOPNOTSUPP` if the device does not have the operation.
    pub fn range(
        self,
        op: RangeOp,
        at: Position,
        len: u32,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let checked = if self.device().is_read_only() {
            Err(EROFS)
        } else {
            let device = self.device();
            let block_size = device.logical_block_size();
            check_range(block_size, device.nr_sectors(), at.sector, len)
        };
        if let Err(error) = checked {
            return Err(Refused { completion, error });
        }
        let op = match op {
            RangeOp::Discard => bindings::req_op_REQ_OP_DISCARD,
            RangeOp::SecureErase => bindings::req_op_REQ_OP_SECURE_ERASE,
            RangeOp::WriteZeroes { no_unmap: false } => bindings::req_op_REQ_OP_WRITE_ZEROES,
            RangeOp::WriteZeroes { no_unmap: true } => {
                bindings::req_op_REQ_OP_WRITE_ZEROES | flag(bindings::req_flag_bits___REQ_NOUNMAP)
            }
        };
        self.submit_empty(op, at, len, completion)
    }
}
