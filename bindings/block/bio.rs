// SPDX-License-Identifier: GPL-2.0

//! Requests to block devices. Would be a new part of `kernel::block`.
//!
//! A device is opened with an access mode that is part of its type: a device that was opened
//! [`ReadOnly`] has no function that could change it. Whoever wants to submit requests enters it
//! first ([`OpenDevice::enter`]); closing it waits for all that have entered, and every request in
//! flight is one of them.
//!
//! The state of a request is kept in front of its bio, in the memory of a [`BioSet`], so that a
//! request takes no allocation of its own.
//!
//! # Submission without sleeping
//!
//! `submit_bio` can sleep in many places. With [`Wait::Never`] it reaches none of them:
//!
//! - Memory for the bio is taken if it is there. Data that takes several bios is not tried, as the
//!   second one may have to wait for the first one's memory.
//! - A queue that is frozen (`bio_queue_enter`), has no free tag (`blk_mq_get_tag`) or has a full
//!   zone, and a stacked device that is suspended, end a bio with `REQ_NOWAIT` by `EAGAIN`.
//! - A bio with `REQ_NOWAIT` is not split: it ends by `EAGAIN`. Below a stacked driver, a part of
//!   it may have been carried out by then. The request is then done again as a whole, which is
//!   right: its data is still there, and nobody was told that it had ended.
//! - Write-back throttling (`wbt_wait`) sleeps before anything looks at `REQ_NOWAIT`. It lets reads
//!   pass, and writes with `REQ_SYNC` and `REQ_IDLE`, which direct IO sets for the same reason; all
//!   writes have them here. It throttles every discard, so operations without data are not tried.
//! - The other policies of that kind (`iocost`, `iolatency`) let the root control group pass, in
//!   which kernel threads are.
//! - A driver whose `queue_rq` may sleep (`BLK_MQ_F_BLOCKING`), and integrity data, whose memory is
//!   waited for, are found when the device is opened. Such a device is not tried.
//! - A driver without `BLK_FEAT_NOWAIT` is not tried. A stacked driver has the feature if all that
//!   is below it has it, and may get other devices at any time: then the block layer ends the bio
//!   by `EOPNOTSUPP`, which therefore counts as `EAGAIN`.
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
/// Dropping it waits for its requests and closes the device: process context.
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

    /// Lets the caller at the device, unless it is closed. Any context.
    #[inline]
    pub fn enter(&self) -> Option<DeviceUse<C, A>> {
        Some(DeviceUse {
            entered: self.gate.enter()?,
            _access: PhantomData,
        })
    }

    /// What its requests enter by: closed or drained, it waits for those that have entered.
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

    /// A read into the memory of a completion.
    #[inline]
    pub fn reading(self, wait: Wait) -> Transfer<C> {
        Transfer {
            entered: self.entered,
            op: bindings::req_op_REQ_OP_READ | nowait(wait),
        }
    }

    /// Flushes the write cache of the device. `EAGAIN` as [`Transfer::submit`].
    pub fn flush(self, wait: Wait, at: Position, completion: C) -> Result<(), Refused<C>> {
        let op = WRITE | flag(bindings::req_flag_bits___REQ_PREFLUSH) | nowait(wait);
        // A flush is for the whole device.
        let at = Position { sector: 0, ..at };
        self.submit_empty(op, at, 0, completion)
    }

    /// Submits a request without data, about `len` bytes.
    fn submit_empty(
        self,
        op: u32,
        at: Position,
        len: u32,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let entered = self.entered;
        let bio = Transfer { entered, op }.prepare(at, 0, completion)?;
        // SAFETY: The bio is ours until it is submitted, and is complete then.
        unsafe {
            (*bio).bi_iter.bi_size = len;
            bindings::submit_bio(bio);
        }
        Ok(())
    }
}

/// A request that is ready but for its place and its memory.
///
/// # Invariants
///
/// `op` is an operation and flags of a bio. It changes nothing unless the device was entered by a
/// `DeviceUse` that is [`ReadWrite`].
pub struct Transfer<C: Completion> {
    entered: Entered<Target<C>>,
    op: u32,
}

impl<C: Completion> Transfer<C> {
    /// Submits it.
    ///
    /// `EINVAL` if it is not of whole blocks, `EIO` if it reaches beyond the end of the device,
    /// `EAGAIN` if it must not sleep and would.
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
        // then; the completion in its state has the memory.
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
            // SAFETY: The state, and the memory that its completion has, stays until `bio` is
            // ended, which takes the `bio_endio` here besides the parts.
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
        // SAFETY: The bio is ours until it is submitted; the completion has the memory.
        let added = memory.is_some_and(|memory| unsafe { add_all(bio, &memory) });
        if added {
            // SAFETY: The bio is complete.
            unsafe { bindings::submit_bio(bio) };
            return Ok(());
        }
        // SAFETY: The bio was not submitted, so that nobody else reads the state.
        let state = unsafe { State::<C>::of(bio).read() };
        // SAFETY: As above.
        unsafe { bindings::bio_put(bio) };
        Err(Refused {
            completion: state.completion,
            error: EIO,
        })
    }

    /// Makes a bio with room for `vecs` segments, whose state is complete.
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
            // With `GFP_NOIO` memory is waited for.
            return Err(Refused {
                completion,
                error: EAGAIN,
            });
        }
        // SAFETY: The bio is ours. There is room for a `State` in front of every bio of the set,
        // which is aligned by the check in `BioSet::new`.
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
    /// The use of the device for what does not change it.
    #[inline]
    pub fn read_only(self) -> DeviceUse<C, ReadOnly> {
        DeviceUse {
            entered: self.entered,
            _access: PhantomData,
        }
    }

    /// A write of what is in the memory of a completion. `EROFS` if the device has become
    /// read-only.
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
    /// `EROFS` as above, other errors as [`Transfer::submit`]; ends with `EOPNOTSUPP` if the
    /// device does not have the operation.
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
