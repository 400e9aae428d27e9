// SPDX-License-Identifier: GPL-2.0

//! Requests to block devices.
//!
//! A device is opened with an access mode that is part of its type: a device that was opened
//! [`ReadOnly`] has no function that could change it. Whoever wants to submit requests enters it
//! first ([`OpenDevice::enter`]); closing it waits for all that have entered, and every request in
//! flight is one of them.
//!
//! The state of a request is kept in front of its bio, in the memory of a [`BioSet`], so that a
//! request takes no allocation of its own.
//!
//! C header: [`include/linux/bio.h`](srctree/include/linux/bio.h)

use core::{
    marker::PhantomData,
    mem,
    ptr, //
};
use kernel::{
    error::to_result,
    prelude::*,
    str::CStr,
    sync::Arc,
    types::Opaque, //
};

use super::bdev::{
    BlockDevice,
    Mode, //
};
use crate::{
    bindings,
    block::mq::limits::SECTOR_SIZE,
    sync::gate::{
        Entered,
        Gate, //
    }, //
};

mod memory;

pub use self::memory::{
    Memory,
    Segment, //
};

use self::memory::{
    add_all,
    submit_parts, //
};

/// Who wants to know that a request is finished, and has its memory until then.
pub trait Completion: Send + 'static {
    /// The memory of the data, borrowed from the completion.
    type Memory<'a>: Memory
    where
        Self: 'a;

    /// The memory of the data; `None` if there is none.
    ///
    /// It can be used until the completion is dropped: nobody gets another than a shared reference
    /// to the completion before it is done.
    fn memory(&self) -> Option<Self::Memory<'_>>;

    /// Called exactly once for an accepted request, when the device does not use the memory any
    /// more. Any context: it must not sleep.
    fn done(self, result: Result);
}

/// What a device may be used for; see [`ReadOnly`] and [`ReadWrite`].
pub trait Access: sealed::Sealed + Send + Sync + 'static {
    /// How the device is opened.
    const MODE: Mode;
}

/// Reading and flushing.
pub enum ReadOnly {}

/// Everything.
pub enum ReadWrite {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ReadOnly {}
    impl Sealed for super::ReadWrite {}
}

impl Access for ReadOnly {
    const MODE: Mode = Mode::Read;
}

impl Access for ReadWrite {
    const MODE: Mode = Mode::ReadWrite;
}

/// An IO priority that the schedulers know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority(u16);

impl Priority {
    /// None: that of the submitting thread.
    pub const NONE: Self = Self(0);

    /// The priority with this value, `None` if there is none.
    ///
    /// The upper three bits are the class, of which four exist. mq-deadline uses the class as an
    /// index without looking.
    pub const fn new(value: u16) -> Option<Self> {
        if value >> bindings::IOPRIO_CLASS_SHIFT > Self::CLASS_IDLE {
            return None;
        }
        Some(Self(value))
    }

    /// The last class (`IOPRIO_CLASS_IDLE`).
    const CLASS_IDLE: u16 = 3;
}

/// Where a request goes, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// Its priority.
    pub priority: Priority,
    /// Whether somebody waits for it (`REQ_SYNC`).
    pub sync: bool,
}

/// When written data has to be on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Before this write is done (`REQ_FUA`).
    pub fua: bool,
    /// What was written before, before this write begins (`REQ_PREFLUSH`).
    pub preflush: bool,
}

/// What to do with sectors without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOp {
    /// They are not needed any more.
    Discard,
    /// They must not be recoverable.
    SecureErase,
    /// They shall read as zeroes.
    WriteZeroes {
        /// Whether they stay allocated (`REQ_NOUNMAP`).
        no_unmap: bool,
    },
}

/// A request that was not accepted: its completion comes back.
pub struct Refused<C> {
    /// What was passed in.
    pub completion: C,
    /// Why.
    pub error: Error,
}

/// The memory that requests with completions of type `C` are made of.
///
/// Made and dropped in process context.
///
/// # Invariants
///
/// `set` was initialised with [`State::<C>::FRONT_PAD`] bytes in front of each bio. No bio of it
/// exists when it is dropped, as each is counted in the gate of a device that holds a reference.
#[pin_data(PinnedDrop)]
pub struct BioSet<C: Completion> {
    #[pin]
    set: Opaque<bindings::bio_set>,
    _completion: PhantomData<fn(C)>,
}

// SAFETY: A `bio_set` can be used from anywhere at once.
unsafe impl<C: Completion> Send for BioSet<C> {}
// SAFETY: As above.
unsafe impl<C: Completion> Sync for BioSet<C> {}

impl<C: Completion> BioSet<C> {
    /// The requests that can be made however little memory is left.
    const RESERVE: u32 = 4;

    /// Makes a set. Sleeps.
    pub fn new() -> Result<Arc<Self>> {
        const {
            // What lies in front of a bio is aligned as the bio.
            assert!(mem::align_of::<State<C>>() <= mem::align_of::<bindings::bio>());
        }
        let flags = bindings::BIOSET_NEED_BVECS | bindings::BIOSET_PERCPU_CACHE;
        Arc::pin_init(
            try_pin_init!(Self {
                // INVARIANT: The front pad is as required.
                set <- Opaque::try_ffi_init(|slot: *mut bindings::bio_set| {
                    // SAFETY: `slot` is valid for writes; a `bio_set` has to be zero to begin with.
                    unsafe { ptr::write_bytes(slot, 0, 1) };
                    // SAFETY: `slot` is valid and pinned.
                    to_result(unsafe {
                        bindings::bioset_init(
                            slot,
                            Self::RESERVE,
                            State::<C>::FRONT_PAD,
                            flags as kernel::ffi::c_int,
                        )
                    })
                }),
                _completion: PhantomData,
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl<C: Completion> PinnedDrop for BioSet<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The set is initialised, and has no bio any more by the type invariant.
        unsafe { bindings::bioset_exit(self.set.get()) };
    }
}

/// What the gate of an open device guards.
struct Target<C: Completion> {
    // Closed before the set goes.
    device: BlockDevice,
    bios: Arc<BioSet<C>>,
}

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

    /// Closes the device when all requests are finished; from now on nobody can enter.
    ///
    /// Process context; sleeps.
    pub fn close(&self) {
        drop(self.gate.close());
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
    pub fn reading(self) -> Transfer<C> {
        Transfer {
            entered: self.entered,
            op: bindings::req_op_REQ_OP_READ,
        }
    }

    /// Flushes the write cache of the device.
    ///
    /// Process context; may sleep.
    pub fn flush(self, at: Position, completion: C) -> Result<(), Refused<C>> {
        let op = bindings::req_op_REQ_OP_WRITE | flag(bindings::req_flag_bits___REQ_PREFLUSH);
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

/// A read or a write that is ready but for its place and its memory.
pub struct Transfer<C: Completion> {
    entered: Entered<Target<C>>,
    op: u32,
}

impl<C: Completion> Transfer<C> {
    /// Submits it.
    ///
    /// Process context; may sleep. `EINVAL` if it is not of whole blocks, `EIO` if it reaches
    /// beyond the end of the device.
    #[inline(always)]
    pub fn submit(self, at: Position, completion: C) -> Result<(), Refused<C>> {
        let (len, segment) = match completion.memory() {
            Some(memory) => (memory.len(), memory.only_segment()),
            None => (0, None),
        };
        let checked = u32::try_from(len)
            .map_err(|_| EINVAL)
            .and_then(|len| check_range(&self.entered.device, at.sector, len));
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
        let op = if at.sync {
            self.op | flag(bindings::req_flag_bits___REQ_SYNC)
        } else {
            self.op
        };
        let Target { device, bios } = &*self.entered;
        // SAFETY: The device is open and the set initialised while `entered` is held.
        let bio = unsafe {
            bindings::bio_alloc_bioset(device.as_raw(), vecs, op, GFP_NOIO, bios.set.get())
        };
        // It waits rather than fail.
        if bio.is_null() {
            return Err(Refused {
                completion,
                error: ENOMEM,
            });
        }
        // SAFETY: The bio is ours. There is room for a `State` in front of every bio of the set,
        // which is aligned by the check in `BioSet::new`.
        unsafe {
            (*bio).bi_end_io = Some(State::<C>::end_io);
            (*bio).bi_ioprio = at.priority.0;
            (*bio).bi_iter.bi_sector = at.sector;
            State::<C>::of(bio).write(State {
                completion,
                entered: self.entered,
            });
        }
        Ok(bio)
    }
}

/// Whether `device` has these sectors and can be asked for them.
///
/// The block layer checks the first only, and logs a line for each failure.
#[inline]
fn check_range(device: &BlockDevice, sector: u64, len: u32) -> Result {
    // A power of two.
    let below_block = u64::from(device.logical_block_size()).wrapping_sub(1);
    let aligned = |bytes: u64| bytes & below_block == 0;
    let start = sector.checked_mul(u64::from(SECTOR_SIZE)).ok_or(EINVAL)?;
    if len == 0 || !aligned(start | u64::from(len)) {
        return Err(EINVAL);
    }
    // Cannot wrap around: both are far below 2^63.
    let end = sector + u64::from(len / SECTOR_SIZE);
    if end > device.nr_sectors() {
        return Err(EIO);
    }
    Ok(())
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

    /// A write of what is in the memory of a completion. `EROFS` if the device has become read-only.
    #[inline]
    pub fn writing(self, flags: WriteFlags) -> Result<Transfer<C>> {
        if self.device().is_read_only() {
            return Err(EROFS);
        }
        let mut op = bindings::req_op_REQ_OP_WRITE;
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

    /// Changes `len` bytes without data.
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
            check_range(self.device(), at.sector, len)
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

/// What is kept in front of a bio.
struct State<C: Completion> {
    completion: C,
    // Keeps the device open, and with it the set that the bio is a part of.
    entered: Entered<Target<C>>,
}

impl<C: Completion> State<C> {
    /// The space in front of a bio, in bytes.
    const FRONT_PAD: u32 =
        mem::size_of::<Self>().next_multiple_of(mem::align_of::<bindings::bio>()) as u32;

    /// Where the state of a bio is.
    ///
    /// # Safety
    ///
    /// `bio` comes from a [`BioSet<C>`].
    unsafe fn of(bio: *mut bindings::bio) -> *mut Self {
        // SAFETY: So much space is in front of the bio, in the same allocation.
        unsafe { bio.byte_sub(Self::FRONT_PAD as usize) }.cast()
    }

    /// Called by the block layer when the request is finished. Any context.
    ///
    /// # Safety
    ///
    /// `bio` comes from a [`BioSet<C>`], has a state, and is not used any more.
    unsafe extern "C" fn end_io(bio: *mut bindings::bio) {
        // SAFETY: By the safety requirement; this is called once for a bio, and nobody else reads
        // the state.
        let state = unsafe { Self::of(bio).read() };
        // SAFETY: The bio is finished.
        let status = unsafe { (*bio).bi_status };
        // SAFETY: This is the reference that came with the allocation.
        unsafe { bindings::bio_put(bio) };
        state.completion.done(match status {
            0 => Ok(()),
            // SAFETY: Takes any value.
            status => to_result(unsafe { bindings::blk_status_to_errno(status) }),
        });
        // Only now can the device, the set and, in the end, the module go; that waits for this
        // function to return, see `module::Returned`.
        drop(state.entered);
    }
}

/// Memory may be waited for, but not by submitting IO, since it is IO that waits.
const GFP_NOIO: bindings::gfp_t =
    1 << bindings::___GFP_DIRECT_RECLAIM_BIT | 1 << bindings::___GFP_KSWAPD_RECLAIM_BIT;

/// The flag of a bit number.
#[inline(always)]
const fn flag(bit: bindings::req_flag_bits) -> u32 {
    1 << bit
}
