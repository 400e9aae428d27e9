// SPDX-License-Identifier: GPL-2.0

//! The memory of a request to a file, and the work that carries the request out. Belongs to
//! [`fs`](super).

use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    container_of,
    static_lock_class,
    types::Opaque, //
};

use super::{
    backlog::{
        Backlog,
        Backlogs,
        Link, //
    },
    pool::Pool,
    target::Target, //
};
use crate::{
    bindings,
    block::{
        disk::{
            Completion,
            RangeOp,
            Wait, //
        },
        memory::{
            Memory,
            Segment,
            GFP_NOIO,
            GFP_NOWAIT, //
        }, //
    },
    prelude::*,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        gate::Entered, //
    }, //
};

/// The operation of a request.
#[derive(Clone, Copy)]
pub(super) enum Task {
    /// Reads into the memory of the completion, or writes that memory to the file.
    Transfer {
        /// Whether the request is a write.
        write: bool,
        /// Flags of the `kiocb` besides those of the file.
        flags: i32,
        /// Whether all earlier writes are made durable first.
        preflush: bool,
    },
    /// Makes all earlier writes durable.
    Flush,
    /// Changes bytes without data.
    Range {
        /// The kind of change.
        op: RangeOp,
        /// The length in bytes.
        len: u32,
    },
}

/// The number of pieces of memory for which a slot has room. Nearly all requests have one piece.
const VECS: usize = 8;

/// A request to a file.
///
/// # Invariants
///
/// - From [`Slot::submit`] on the slot belongs to the backlog of its file, or to its work, which is
///   queued. The work that begins, or that takes the slot from the backlog, carries the request out
///   and owns the slot. For an asynchronous call of the file system, that work and the end of the
///   `kiocb` have one count of `users` each. The holder of the last count owns the slot: that
///   holder finishes the request, which frees the slot, or queues the slot for the rest of a write.
/// - While `users` is not 0, `vecs`, `more` and `done` are not written to, and `kiocb` belongs to
///   the file system.
pub(super) struct Slot<C: Completion> {
    kiocb: Opaque<bindings::kiocb>,
    work: Opaque<bindings::work_struct>,
    link: Link,
    /// The number of the backlog in which the slot waits.
    backlog: u32,
    users: Atomic<u32>,
    /// The result with which the `kiocb` has ended.
    ended: Atomic<i64>,
    task: Task,
    /// The first byte in the file.
    position: i64,
    /// The number of bytes of a direct write that are done.
    done: usize,
    priority: u16,
    vecs: [bindings::bio_vec; VECS],
    /// Used in place of `vecs` if the memory has more pieces.
    more: Option<KVec<bindings::bio_vec>>,
    completion: C,
    // Keeps the file open, and with it the pool that the slot is a part of.
    entered: Entered<Target>,
}

impl<C: Completion> Slot<C> {
    /// The number of requests that can be made even if no memory is left.
    const RESERVE: i32 = 4;

    /// The most requests that a work item carries out. More would hold up the request whose work
    /// item is queued behind.
    const AT_ONCE: usize = 16;

    /// Makes the pool for the slots of a file. Sleeps.
    pub(super) fn pool() -> Result<Pool> {
        Pool::new::<Self>(Self::RESERVE)
    }

    /// Submits a request. If there is no memory, the completion is returned; this does not happen
    /// with [`Wait::Allowed`], which sleeps. Any context with [`Wait::Never`].
    ///
    /// The range of the request, which begins at `position`, must be within the file and consist of
    /// whole blocks.
    pub(super) fn submit(
        entered: Entered<Target>,
        task: Task,
        position: i64,
        priority: u16,
        wait: Wait,
        completion: C,
    ) -> Result<(), C> {
        let gfp = match wait {
            Wait::Never => GFP_NOWAIT,
            Wait::Allowed => GFP_NOIO,
        };
        let Some(slot) = entered.slots.take::<Self>(gfp) else {
            return Err(completion);
        };
        let slot = slot.as_ptr();
        // SAFETY: The memory has room for a slot, and the slot is ours until its work is queued.
        unsafe {
            slot.write(Self {
                kiocb: Opaque::uninit(),
                work: Opaque::zeroed(),
                link: Link::new(),
                backlog: Backlogs::here(),
                users: Atomic::new(0),
                ended: Atomic::new(0),
                task,
                position,
                done: 0,
                priority,
                vecs: [bindings::bio_vec::default(); VECS],
                more: None,
                completion,
                entered,
            });
            bindings::init_work_with_key(
                (*slot).work.get(),
                Some(Self::run),
                false,
                c"kernel_ext::fs::Slot::work".as_char_ptr(),
                static_lock_class!().as_ptr(),
            );
            Self::queue(slot);
        }
        Ok(())
    }

    /// Has the request carried out, later. The slot is not the caller's any more. Any context.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, and its work is initialised and not queued.
    unsafe fn queue(slot: *mut Self) {
        // SAFETY: By the safety requirement. The slot stays in its place until it is taken from the
        // backlog, which stays until the slot is finished, as the slot has entered the target. That
        // can be as soon as `add` has unlocked the backlog. The unlocking is the last use of the
        // backlog there, and a spinlock may be freed by a task that takes it afterwards.
        let is_added = unsafe {
            let link = NonNull::new_unchecked(&raw mut (*slot).link);
            Self::backlog(slot).is_some_and(|backlog| backlog.add(link))
        };
        if !is_added {
            // SAFETY: By the safety requirement.
            unsafe { Self::queue_work(slot) };
        }
    }

    /// The backlog in which the slot waits.
    ///
    /// # Safety
    ///
    /// The slot is valid, and stays so as long as the reference is used.
    unsafe fn backlog<'a>(slot: *mut Self) -> Option<&'a Backlog> {
        // SAFETY: By the safety requirement.
        let (target, number): (&Target, _) = unsafe { (&*(*slot).entered, (*slot).backlog) };
        target.backlogs.get(number)
    }

    /// Queues the work of a slot. The slot belongs to the work from then on. Any context.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, and its work is initialised and not queued.
    unsafe fn queue_work(slot: *mut Self) {
        let any_cpu = bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int;
        // SAFETY: By the safety requirement. The queue and the pool stay until the work has run, as
        // the slot has entered their target.
        unsafe {
            let target: &Target = &(*slot).entered;
            let queue = target.queue.as_ptr();
            bindings::queue_work_on(any_cpu, queue, (*slot).work.get());
        }
    }

    /// Carries out the request of the slot, and further ones that wait, in process context.
    ///
    /// # Safety
    ///
    /// Called by the workqueue with the work of a slot that was submitted.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        let work: *mut Opaque<bindings::work_struct> = work.cast();
        // SAFETY: By the safety requirement.
        let slot = unsafe { container_of!(work, Self, work) };
        // SAFETY: The slot is ours by the type invariant, and stays until its request is carried
        // out.
        let next = unsafe { Self::backlog(slot) }.and_then(Backlog::hand_over);
        let Some(next) = next else {
            // SAFETY: The slot is ours.
            return unsafe { Self::carry_out(slot) };
        };
        // Keeps the backlog, as each of the slots may be finished below.
        // SAFETY: The slot is ours.
        let (entered, number) = unsafe { ((*slot).entered.clone(), (*slot).backlog) };
        // SAFETY: All links of this backlog are those of slots of this type, as a file has one type
        // of requests. The slot of the link is ours, as the backlog has handed it over.
        unsafe { Self::queue_work(Self::of(next)) };
        // SAFETY: The slot is ours.
        unsafe { Self::carry_out_in_turn(slot) };
        for _ in 1..Self::AT_ONCE {
            let Some(link) = entered.backlogs.get(number).and_then(Backlog::take) else {
                break;
            };
            // SAFETY: As above; the backlog has given the slot of the link up.
            unsafe { Self::carry_out_in_turn(Self::of(link)) };
        }
    }

    /// The slot with this link.
    ///
    /// # Safety
    ///
    /// The link is the one of a slot of this type.
    unsafe fn of(link: NonNull<Link>) -> *mut Self {
        // SAFETY: By the safety requirement.
        unsafe { container_of!(link.as_ptr(), Self, link) }
    }

    /// Carries out a request behind which further requests are carried out.
    ///
    /// # Safety
    ///
    /// As [`Self::carry_out`].
    unsafe fn carry_out_in_turn(slot: *mut Self) {
        // SAFETY: By the safety requirement; the completion is only read.
        unsafe { (*slot).completion.requests_follow() };
        // SAFETY: By the safety requirement.
        unsafe { Self::carry_out(slot) };
    }

    /// Carries a request out, in process context.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, and not used by the caller any more.
    unsafe fn carry_out(slot: *mut Self) {
        // SAFETY: The slot is ours by the safety requirement, and stays until it is finished.
        let (task, position, done, target) = unsafe {
            let slot = &*slot;
            (slot.task, slot.position, slot.done, &*slot.entered)
        };
        let result = match task {
            Task::Transfer {
                write,
                flags,
                preflush,
            } => {
                let flushed = if preflush && done == 0 {
                    target.sync()
                } else {
                    Ok(())
                };
                let transferred = match flushed {
                    // SAFETY: As above.
                    Ok(()) => unsafe { Self::transfer(slot, write, flags) },
                    Err(error) => Some(Err(error)),
                };
                match transferred {
                    Some(result) => result,
                    // The end of the `kiocb` finishes the request.
                    None => return,
                }
            }
            Task::Flush => target.sync(),
            // The request may have waited for its turn, so the file may be shorter now.
            Task::Range { op, len } => target
                .still_has(position, len as usize)
                .and_then(|()| target.change(op, position, len)),
        };
        // SAFETY: The file system does not have the slot, so no other task uses it.
        unsafe { Self::finish(slot, result) };
    }

    /// Reads or writes; `None` if the end of the `kiocb` finishes the request.
    ///
    /// # Safety
    ///
    /// As [`Self::carry_out`]; the slot is not used any more if this returns `None`.
    unsafe fn transfer(slot: *mut Self, write: bool, flags: i32) -> Option<Result> {
        // SAFETY: By the safety requirement the slot is ours.
        let (target, position, priority) =
            unsafe { (&*(*slot).entered, (*slot).position, (*slot).priority) };
        // SAFETY: As above; the memory stays until the completion is dropped.
        let vectors = unsafe { Self::vectors(slot) };
        let vectors = vectors.and_then(|vectors| {
            // The request may have waited for its turn, so the file may be shorter now.
            target.still_has(position, vectors.1)?;
            Ok(vectors)
        });
        let (vecs, len) = match vectors {
            Ok(vectors) => vectors,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: The slot is ours, and the file is open.
        unsafe {
            let kiocb = (*slot).kiocb.get();
            kiocb.write_bytes(0, 1);
            (*kiocb).ki_filp = target.as_file();
            (*kiocb).ki_flags = bindings::rnbd_helper_file_iocb_flags(target.as_file()) | flags;
            (*kiocb).ki_ioprio = priority;
        }
        if target.is_direct() {
            // SAFETY: As above; the slot is not used any more.
            unsafe { Self::call_async(slot, vecs, len, write) };
            return None;
        }
        // SAFETY: As above.
        Some(unsafe { Self::call_sync(slot, vecs, len, write) })
    }

    /// Reads or writes by direct IO; the end of the `kiocb` finishes the request.
    ///
    /// # Safety
    ///
    /// As [`Self::transfer`]. The slot is not used any more by the caller.
    unsafe fn call_async(slot: *mut Self, vecs: Vectors, len: usize, write: bool) {
        // SAFETY: The slot is ours until the call; after the call this function still has a count.
        let ended = unsafe {
            let kiocb = (*slot).kiocb.get();
            (*slot).users.store(2, ordering::Relaxed);
            let done = (*slot).done;
            // Positions are far below 2^63.
            (*kiocb).ki_pos = (*slot).position + done as i64;
            (*kiocb).ki_complete = Some(Self::end);
            bindings::rnbd_helper_call_iter(kiocb, vecs.first, vecs.count, len, done, write)
        };
        if ended != -(bindings::EIOCBQUEUED as isize) {
            // The file system has ended the `kiocb` without calling `ki_complete`.
            // SAFETY: The count for the end is given back here, as the file system does not do it.
            unsafe { Self::end((*slot).kiocb.get(), ended as kernel::ffi::c_long) };
        }
        // The count of this function is given back only now: although the `kiocb` has ended, the
        // file system may have used the file until the call returned, as ext4 does for the time of
        // access.
        // SAFETY: This function has a count, and does not use the slot any more.
        unsafe { Self::leave(slot) };
    }

    /// Reads or writes through the page cache, until all is done or an error occurs.
    ///
    /// # Safety
    ///
    /// As [`Self::transfer`].
    unsafe fn call_sync(slot: *mut Self, vecs: Vectors, len: usize, write: bool) -> Result {
        let mut done = 0;
        while done < len {
            // SAFETY: The slot is ours. A `kiocb` without `ki_complete` is not used any more when
            // the call returns.
            let result = unsafe {
                let kiocb = (*slot).kiocb.get();
                // Positions are far below 2^63.
                (*kiocb).ki_pos = (*slot).position + done as i64;
                (*kiocb).ki_complete = None;
                let result = bindings::rnbd_helper_call_iter(
                    kiocb, vecs.first, vecs.count, len, done, write,
                );
                if write {
                    bindings::rnbd_helper_kiocb_end_write(kiocb);
                }
                result
            };
            match usize::try_from(result) {
                // This is the end of the file: the file has become shorter.
                Ok(0) => return Err(EIO),
                Ok(more) => done += more,
                Err(_) => return Err(error_of(result as i64)),
            }
        }
        Ok(())
    }

    /// Lists the pieces of the completion's memory; also returns the length of the memory.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, and not submitted to a file system.
    unsafe fn vectors(slot: *mut Self) -> Result<(Vectors, usize)> {
        // SAFETY: By the safety requirement; the completion is not written to.
        let memory = unsafe { &(*slot).completion }.memory().ok_or(EINVAL)?;
        let len = memory.len();
        let mut count = 0;
        memory.for_each_segment(|_| count += 1);
        // SAFETY: The slot is ours, and there are no other references to these fields.
        let (vecs, more) = unsafe { (&mut (*slot).vecs, &mut (*slot).more) };
        let vecs = if count <= VECS {
            &mut vecs[..count]
        } else {
            // Waiting for memory is fine, as the file systems wait for memory here, too.
            let longer = KVec::from_elem(bindings::bio_vec::default(), count, GFP_KERNEL)?;
            &mut more.insert(longer)[..]
        };
        let mut places = vecs.iter_mut();
        let mut listed = 0;
        memory.for_each_segment(|segment| {
            if let Some(place) = places.next() {
                *place = vector(&segment);
                listed += segment.len as usize;
            }
        });
        if listed != len {
            return Err(EINVAL);
        }
        let first = vecs.as_ptr();
        Ok((Vectors { first, count }, len))
    }

    /// Called by the file system when a `kiocb` has ended. Any context.
    ///
    /// # Safety
    ///
    /// `kiocb` is that of a slot, and is not used any more. The caller has the count of `users` for
    /// the end.
    unsafe extern "C" fn end(kiocb: *mut bindings::kiocb, ended: kernel::ffi::c_long) {
        let kiocb: *mut Opaque<bindings::kiocb> = kiocb.cast();
        // SAFETY: By the safety requirement.
        let slot = unsafe { container_of!(kiocb, Self, kiocb) };
        // SAFETY: The count keeps the slot.
        unsafe {
            if let Task::Transfer { write: true, .. } = (*slot).task {
                bindings::rnbd_helper_kiocb_end_write((*slot).kiocb.get());
            }
            (*slot).ended.store(ended as i64, ordering::Relaxed);
            Self::leave(slot);
        }
    }

    /// Gives a count of `users` back. The last count finishes the request, or queues the slot for
    /// the rest of a write. Any context.
    ///
    /// # Safety
    ///
    /// The caller has a count, and does not use the slot any more.
    unsafe fn leave(slot: *mut Self) {
        // SAFETY: The count keeps the slot.
        if unsafe { (*slot).users.fetch_sub(1, ordering::Full) } != 1 {
            return;
        }
        // SAFETY: By the type invariant the slot belongs to the last count.
        let (ended, task, len, done) = unsafe {
            let len = (*slot).completion.memory().map_or(0, |memory| memory.len());
            let ended = (*slot).ended.load(ordering::Relaxed);
            (ended, (*slot).task, len, (*slot).done)
        };
        let result = match usize::try_from(ended) {
            Ok(more) if done + more == len => Ok(()),
            Ok(more @ 1..) if matches!(task, Task::Transfer { write: true, .. }) => {
                // The file system wrote less. Only a write of the rest tells why, for example that
                // the file system is full.
                // SAFETY: The slot is ours, and its work is not queued.
                return unsafe {
                    (*slot).done = done + more;
                    Self::queue(slot);
                };
            }
            // Less was read: the file has become shorter, and the rest of the memory still has old
            // content.
            Ok(_) => Err(EIO),
            Err(_) => Err(error_of(ended)),
        };
        // SAFETY: As above.
        unsafe { Self::finish(slot, result) };
    }

    /// Frees the slot and passes the result to the completion. Any context.
    ///
    /// # Safety
    ///
    /// The slot is the caller's, and the caller does not use the slot any more.
    unsafe fn finish(slot: *mut Self, result: Result) {
        // SAFETY: By the safety requirement the slot is valid. Its other fields need no drop, and
        // the slot is not read again.
        let (more, completion, entered) = unsafe {
            (
                ptr::read(&raw const (*slot).more),
                ptr::read(&raw const (*slot).completion),
                ptr::read(&raw const (*slot).entered),
            )
        };
        drop(more);
        // SAFETY: The memory comes from this pool, and is not used any more.
        unsafe { entered.slots.put(slot) };
        completion.done(result);
        // Only from here on can the file and the pool be freed, and finally the module be unloaded.
        // Unloading waits until this function has returned, see `module::Returned`.
        drop(entered);
    }
}

/// A list of pieces of memory.
#[derive(Clone, Copy)]
struct Vectors {
    first: *const bindings::bio_vec,
    count: usize,
}

/// Converts a piece of memory to the C structure.
fn vector(segment: &Segment) -> bindings::bio_vec {
    bindings::bio_vec {
        bv_page: segment.page.as_ptr(),
        bv_len: segment.len,
        bv_offset: segment.offset,
    }
}

/// The error of a negative result. `EIO` for numbers that must not reach a user, such as
/// `ERESTARTSYS`.
fn error_of(result: i64) -> Error {
    match i32::try_from(result) {
        Ok(number @ -511..=-1) => Error::from_errno(number),
        _ => EIO,
    }
}
