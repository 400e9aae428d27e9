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
    ptr::{
        self,
        NonNull, //
    },
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
    Mode,
    SECTOR_SIZE, //
};
use crate::{
    bindings,
    gate::{
        Entered,
        Gate, //
    }, //
};

/// A piece of memory for the data of a request; made by the types of this crate.
pub struct Segment {
    /// The first page.
    pub(crate) page: NonNull<bindings::page>,
    /// Where the data begins, in bytes from the start of `page`.
    pub(crate) offset: u32,
    /// The length in bytes; it may reach into the pages that follow.
    pub(crate) len: u32,
}

/// The memory of a request's data.
///
/// # Safety
///
/// - The segments name memory that stays valid, and may be read and written by the device, until
///   the object is dropped; moving the object does not matter.
/// - They are not empty and their lengths add up to `len()`, every time.
/// - Only the first one may begin, and only the last one end, elsewhere than at a page boundary.
pub unsafe trait Memory: Send + 'static {
    /// The length in bytes.
    fn len(&self) -> usize;

    /// Whether there is no memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` with each segment, in order.
    fn for_each_segment(&self, visit: impl FnMut(Segment));
}

/// Who wants to know that a request is finished.
pub trait Completion: Send + 'static {
    /// The memory of the data.
    type Memory: Memory;

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
    /// The first sector, of [`SECTOR_SIZE`] bytes.
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

    /// Reads into `memory`.
    ///
    /// Process context; may sleep. `EINVAL` if it is not of whole blocks, `EIO` if it reaches
    /// beyond the end of the device.
    #[inline]
    pub fn read(self, at: Position, memory: C::Memory, completion: C) -> Result<(), Refused<C>> {
        self.transfer(bindings::req_op_REQ_OP_READ, at, memory, completion)
    }

    /// Flushes the write cache of the device.
    ///
    /// Process context; may sleep.
    pub fn flush(self, at: Position, completion: C) -> Result<(), Refused<C>> {
        let op = bindings::req_op_REQ_OP_WRITE | flag(bindings::req_flag_bits___REQ_PREFLUSH);
        // A flush is for the whole device.
        let at = Position { sector: 0, ..at };
        self.submit(op, at, 0, None, completion)
    }

    /// Submits a request with data.
    #[inline]
    fn transfer(
        self,
        op: u32,
        at: Position,
        memory: C::Memory,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let checked = u32::try_from(memory.len())
            .map_err(|_| EINVAL)
            .and_then(|len| self.check_range(at.sector, len).map(|()| len));
        match checked {
            Ok(len) => self.submit(op, at, len, Some(memory), completion),
            Err(error) => Err(Refused { completion, error }),
        }
    }

    /// Whether the device has these sectors and can be asked for them.
    ///
    /// The block layer checks the first only, and logs a line for each failure.
    #[inline]
    fn check_range(&self, sector: u64, len: u32) -> Result {
        let device = self.device();
        // A power of two.
        let below_block = u64::from(device.logical_block_size()).wrapping_sub(1);
        let aligned = |bytes: u64| bytes & below_block == 0;
        let start = sector.checked_mul(u64::from(SECTOR_SIZE)).ok_or(EINVAL)?;
        if len == 0 || !aligned(start) || !aligned(u64::from(len)) {
            return Err(EINVAL);
        }
        // Cannot wrap around: both are far below 2^63.
        let end = sector + u64::from(len / SECTOR_SIZE);
        if end > device.nr_sectors() {
            return Err(EIO);
        }
        Ok(())
    }

    /// Makes a bio and submits it.
    ///
    /// `len` is the number of bytes it is about; `memory` has as many, or there is none.
    fn submit(
        self,
        op: u32,
        at: Position,
        len: u32,
        memory: Option<C::Memory>,
        completion: C,
    ) -> Result<(), Refused<C>> {
        let mut segments = 0usize;
        if let Some(memory) = &memory {
            memory.for_each_segment(|_| segments += 1);
        }
        let op = if at.sync {
            op | flag(bindings::req_flag_bits___REQ_SYNC)
        } else {
            op
        };
        let vecs = u16::try_from(segments).unwrap_or(u16::MAX);
        let in_one = u32::from(vecs) <= bindings::BIO_MAX_VECS;
        // SAFETY: The device is open and the set initialised while `entered` is held.
        let bio = unsafe {
            bindings::bio_alloc_bioset(
                self.device().as_raw(),
                if in_one { vecs } else { 0 },
                op,
                GFP_NOIO,
                self.entered.bios.set.get(),
            )
        };
        // It waits rather than fail.
        let Some(bio) = NonNull::new(bio) else {
            return Err(Refused {
                completion,
                error: ENOMEM,
            });
        };
        let raw = bio.as_ptr();
        // SAFETY: The bio is ours until it is submitted.
        unsafe {
            (*raw).bi_end_io = Some(State::<C>::end_io);
            (*raw).bi_ioprio = at.priority.0;
            (*raw).bi_iter.bi_sector = at.sector;
        }
        let added = match &memory {
            None => {
                // SAFETY: As above.
                unsafe { (*raw).bi_iter.bi_size = len };
                true
            }
            // SAFETY: As above.
            Some(memory) if in_one => unsafe { add_all(raw, memory) },
            Some(_) => true,
        };
        if !added {
            // SAFETY: The bio was not submitted.
            unsafe { bindings::bio_put(raw) };
            return Err(Refused {
                completion,
                error: EIO,
            });
        }
        let block_size = if in_one {
            0
        } else {
            self.device().logical_block_size()
        };
        // SAFETY: There is room for a `State` in front of every bio of the set, which is aligned
        // by the check in `BioSet::new`.
        let state = unsafe {
            let state = State::<C>::of(raw);
            state.write(State {
                completion,
                memory,
                entered: self.entered,
            });
            state
        };
        if in_one {
            // SAFETY: The bio is complete: `end_io` finds its state.
            unsafe { bindings::submit_bio(raw) };
        } else {
            // SAFETY: As above; the state stays until `raw` is ended, which takes the `bio_endio`
            // here besides the parts.
            unsafe {
                if let Some(memory) = &(*state).memory {
                    submit_parts(raw, memory, block_size);
                }
                bindings::bio_endio(raw);
            }
        }
        Ok(())
    }
}

impl<C: Completion> DeviceUse<C, ReadWrite> {
    /// Writes what is in `memory`.
    ///
    /// As [`DeviceUse::read`]; `EROFS` if the device has become read-only.
    #[inline]
    pub fn write(
        self,
        at: Position,
        flags: WriteFlags,
        memory: C::Memory,
        completion: C,
    ) -> Result<(), Refused<C>> {
        if self.device().is_read_only() {
            return Err(Refused {
                completion,
                error: EROFS,
            });
        }
        let mut op = bindings::req_op_REQ_OP_WRITE;
        if flags.fua {
            op |= flag(bindings::req_flag_bits___REQ_FUA);
        }
        if flags.preflush {
            op |= flag(bindings::req_flag_bits___REQ_PREFLUSH);
        }
        self.transfer(op, at, memory, completion)
    }

    /// Changes `len` bytes without data.
    ///
    /// As [`DeviceUse::write`]; ends with `EOPNOTSUPP` if the device does not have the operation.
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
            self.check_range(at.sector, len)
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
        self.submit(op, at, len, None, completion)
    }
}

/// What is kept in front of a bio.
struct State<C: Completion> {
    completion: C,
    memory: Option<C::Memory>,
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
        let errno = unsafe { bindings::blk_status_to_errno((*bio).bi_status) };
        // SAFETY: This is the reference that came with the allocation.
        unsafe { bindings::bio_put(bio) };
        drop(state.memory);
        state.completion.done(to_result(errno));
        // Only now can the device, the set and, in the end, the module go.
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

/// Adds all segments of `memory` to `bio`; false if they do not fit.
///
/// # Safety
///
/// `bio` is valid and not submitted, and `memory` outlives it.
#[inline]
unsafe fn add_all(bio: *mut bindings::bio, memory: &impl Memory) -> bool {
    let mut fits = true;
    memory.for_each_segment(|segment| {
        // SAFETY: The segment names valid memory.
        fits = fits && unsafe { add(bio, &segment, 0, segment.len) };
    });
    fits
}

/// Adds `len` bytes of a segment, from `skip` on, to `bio`; false if they do not fit.
///
/// # Safety
///
/// `bio` is valid and not submitted; the bytes lie in the segment, whose memory outlives the bio.
#[inline]
unsafe fn add(bio: *mut bindings::bio, segment: &Segment, skip: u32, len: u32) -> bool {
    // SAFETY: By the safety requirement.
    let added =
        unsafe { bindings::bio_add_page(bio, segment.page.as_ptr(), len, segment.offset + skip) };
    u32::try_from(added) == Ok(len)
}

/// Submits `memory` in as many bios as it takes, all of which `parent` waits for.
///
/// # Safety
///
/// `parent` has a sector and an operation and no data; it is not ended before this returns.
/// `memory` stays valid until it is ended.
unsafe fn submit_parts(parent: *mut bindings::bio, memory: &impl Memory, block_size: u32) {
    // One vector may be lost to a start in the middle of a page. A part ends at a block boundary.
    let vecs = bindings::BIO_MAX_VECS;
    let room = (vecs - 1) * bindings::PAGE_SIZE as u32;
    let part_len = room - room.checked_rem(block_size).unwrap_or(0);
    let mut part: *mut bindings::bio = ptr::null_mut();
    // SAFETY: The parent is valid.
    let (bdev, mut op, prio, mut sector) = unsafe {
        (
            (*parent).bi_bdev,
            (*parent).bi_opf,
            (*parent).bi_ioprio,
            (*parent).bi_iter.bi_sector,
        )
    };
    let mut failed = false;
    memory.for_each_segment(|segment| {
        let mut skip = 0;
        while skip < segment.len && !failed {
            if part.is_null() {
                // SAFETY: The general set is always there; its bios wait for memory rather than
                // fail, and are not those that the parent could have used up.
                part = unsafe {
                    bindings::bio_alloc_bioset(
                        bdev,
                        vecs as u16,
                        op,
                        GFP_NOIO,
                        &raw mut bindings::fs_bio_set,
                    )
                };
                if part.is_null() {
                    failed = true;
                    break;
                }
                // SAFETY: The part is ours, the parent not ended.
                unsafe {
                    (*part).bi_iter.bi_sector = sector;
                    (*part).bi_ioprio = prio;
                    bindings::bio_chain(part, parent);
                }
                // What was written before is flushed by the first part.
                op &= !flag(bindings::req_flag_bits___REQ_PREFLUSH);
            }
            // SAFETY: The part is ours.
            let filled = unsafe { (*part).bi_iter.bi_size };
            let len = (segment.len - skip).min(part_len - filled);
            // SAFETY: The bytes lie in the segment.
            if !unsafe { add(part, &segment, skip, len) } {
                failed = true;
                break;
            }
            skip += len;
            if filled + len == part_len {
                sector += u64::from(part_len / SECTOR_SIZE);
                // SAFETY: The part is complete.
                unsafe { bindings::submit_bio(part) };
                part = ptr::null_mut();
            }
        }
    });
    if failed {
        // SAFETY: The parent is not ended.
        unsafe { (*parent).bi_status = BLK_STS_IOERR };
    }
    if !part.is_null() {
        // SAFETY: The last part is complete, or ended here without having been submitted.
        unsafe {
            if failed {
                bindings::bio_endio(part);
            } else {
                bindings::submit_bio(part);
            }
        }
    }
}

/// The status of a request that failed for no better known reason.
const BLK_STS_IOERR: bindings::blk_status_t = 10;
