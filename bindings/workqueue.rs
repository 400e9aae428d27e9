// SPDX-License-Identifier: GPL-2.0

//! Workqueues that a module owns, and delayed work.
//!
//! Would extend: `rust/kernel/workqueue.rs`, which lacks allocating a queue, cancelling and
//! flushing. Work items that run at once are those of the kernel crate ([`Work`],
//! [`impl_has_work!`]) in an [`Arc`]. The kernel crate's delayed work does not handle a queue that
//! is destroyed before the timers of its items have expired, so this module has its own
//! [`DelayedWork`].
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! [`Work`]: kernel::workqueue::Work
//! [`impl_has_work!`]: kernel::workqueue::impl_has_work

use core::{
    marker::PhantomData,
    mem,
    ops::BitOr,
    ptr::NonNull, //
};
use kernel::{
    container_of,
    sync::{
        Arc,
        LockClassKey, //
    },
    time::Jiffies,
    types::Opaque,
    workqueue::{
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    bindings,
    prelude::*,
    sync::gate::{
        Entered,
        Gate, //
    }, //
};

/// The flags of a workqueue: [`QueueFlags::UNBOUND`] or [`QueueFlags::PER_CPU`], and optionally
/// further flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFlags(u32);

impl QueueFlags {
    /// Work runs on any CPU (`WQ_UNBOUND`).
    pub const UNBOUND: Self = Self(bindings::wq_flags_WQ_UNBOUND);
    /// Work runs on the CPU that queued it (`WQ_PERCPU`).
    pub const PER_CPU: Self = Self(bindings::wq_flags_WQ_PERCPU);
    /// Work may be needed to free memory: one worker is kept in reserve (`WQ_MEM_RECLAIM`).
    pub const MEM_RECLAIM: Self = Self(bindings::wq_flags_WQ_MEM_RECLAIM);
    /// High priority workers (`WQ_HIGHPRI`).
    pub const HIGH_PRIORITY: Self = Self(bindings::wq_flags_WQ_HIGHPRI);
    /// One item at a time, in the order of queueing.
    pub const ORDERED: Self = Self(bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags___WQ_ORDERED);
}

impl BitOr for QueueFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An owned `workqueue_struct`.
///
/// # Invariants
///
/// The pointer came from `alloc_workqueue`, and the workqueue is destroyed when this value is
/// dropped.
pub(crate) struct RawQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: The C functions on a workqueue may be called from any task.
unsafe impl Send for RawQueue {}

// SAFETY: As above, also concurrently.
unsafe impl Sync for RawQueue {}

impl RawQueue {
    /// Makes a queue that runs at most `max_active` items at a time; 0 for the kernel's default.
    /// With [`QueueFlags::PER_CPU`] the limit holds for each CPU. Sleeps.
    pub(crate) fn new(name: &CStr, flags: QueueFlags, max_active: i32) -> Result<Self> {
        // SAFETY: The format takes one string, which is passed and is copied.
        let raw = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags.0,
                max_active,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: The queue was just made.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// The C structure.
    pub(crate) fn as_ptr(&self) -> *mut bindings::workqueue_struct {
        self.0.as_ptr()
    }

    fn queue(&self) -> &Queue {
        // SAFETY: By the type invariant the queue exists as long as `self`.
        unsafe { Queue::from_raw(self.as_ptr()) }
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue exists. The function waits for all queued work.
        unsafe { bindings::destroy_workqueue(self.as_ptr()) };
    }
}

/// A workqueue; destroyed when dropped.
///
/// The module's struct owns the queue and drops it last. All other users have a [`QueueHandle`],
/// which does not keep the queue alive: queueing fails once the drop has begun. The drop waits for
/// all queued work, also for delayed work whose time has not come, so that no work runs afterwards;
/// so cancel delayed work before. Work of this queue must not drop the queue. If the queue is
/// dropped where sleeping is not allowed, the last handle destroys it.
///
/// # Examples
///
/// ```ignore
/// let queue = OwnedQueue::new(c"rnbd_client", QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM)?;
/// let handle = queue.handle();
/// handle.enqueue(session.clone()).map_err(|_| EBUSY)?;
/// ```
pub struct OwnedQueue {
    handle: QueueHandle,
}

impl OwnedQueue {
    /// Makes a queue. Sleeps.
    pub fn new(name: &CStr, flags: QueueFlags) -> Result<Self> {
        // As in `alloc_ordered_workqueue()`.
        let max_active = if flags.0 & bindings::wq_flags___WQ_ORDERED != 0 {
            1
        } else {
            0
        };
        let raw = RawQueue::new(name, flags, max_active)?;
        Ok(Self {
            handle: QueueHandle {
                gate: Arc::new(Gate::new(raw)?, GFP_KERNEL)?,
            },
        })
    }

    /// A handle to queue work with.
    pub fn handle(&self) -> QueueHandle {
        self.handle.clone()
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // No work can be queued once the gate is closed. Delayed work whose timer runs has entered
        // the gate, so closing waits for it. Where sleeping is not allowed the gate stays open, and
        // the last handle destroys the queue.
        drop(self.handle.gate.close());
    }
}

/// The right to queue work on an [`OwnedQueue`] as long as the queue exists.
#[derive(Clone)]
pub struct QueueHandle {
    gate: Arc<Gate<RawQueue>>,
}

impl QueueHandle {
    /// Keeps the queue from being destroyed; `None` if it is being destroyed already. Any context.
    pub(crate) fn enter(&self) -> Option<Entered<RawQueue>> {
        self.gate.enter()
    }

    /// Queues `item` to run at once. Any context.
    ///
    /// Gives `item` back if it is queued already or if the queue is being destroyed.
    pub fn enqueue<T, const ID: u64>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>> + Send + Sync + 'static,
        Arc<T>: RawWorkItem<ID, EnqueueOutput = Result<(), Arc<T>>>,
    {
        let Some(raw) = self.gate.enter() else {
            return Err(item);
        };
        raw.queue().enqueue::<Arc<T>, ID>(item)
    }

    /// Runs a closure on the queue. Sleeps, as it allocates.
    ///
    /// `ENOMEM`, or `ESHUTDOWN` if the queue is being destroyed.
    pub fn spawn(&self, run: impl FnOnce() + Send + 'static) -> Result {
        let raw = self.gate.enter().ok_or(ESHUTDOWN)?;
        Ok(raw.queue().try_spawn(GFP_KERNEL, run)?)
    }

    /// Waits until all work that is queued now has run. Delayed work counts as queued once its time
    /// has come. Sleeps; not to be called in work of this queue.
    pub fn flush(&self) {
        if let Some(raw) = self.gate.enter() {
            // SAFETY: The queue exists while its gate is entered.
            unsafe { bindings::__flush_workqueue(raw.as_ptr()) };
        }
    }
}

/// Takes `item` off its queue, or waits until its work has run. True if `item` was queued.
///
/// Sleeps; not to be called in that work itself.
pub fn cancel_sync<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    // SAFETY: The item is initialised, and the function synchronises with all other functions on
    // it.
    let was_queued = unsafe { bindings::cancel_work_sync(raw_work::<T, ID>(item)) };
    if was_queued {
        // SAFETY: By `WorkItem::Pointer` the work is only ever queued with an `Arc<T>::into_raw` of
        // this very item. The queue gave that `Arc` up, so it is ours. It is not the last one, as
        // the caller has another.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
    was_queued
}

/// Waits until `item`'s work has run as often as it is queued now.
///
/// Sleeps; not to be called in that work itself.
pub fn flush<T, const ID: u64>(item: &Arc<T>)
where
    T: HasWork<T, ID> + WorkItem<ID, Pointer = Arc<T>>,
{
    // SAFETY: The item is initialised, and stays so as the caller holds a reference.
    unsafe { bindings::flush_work(raw_work::<T, ID>(item)) };
}

fn raw_work<T: HasWork<T, ID>, const ID: u64>(item: &Arc<T>) -> *mut bindings::work_struct {
    // SAFETY: The pointer of an `Arc` is valid.
    let work = unsafe { T::raw_get_work(Arc::as_ptr(item).cast_mut()) };
    // SAFETY: The pointer to the field is valid.
    unsafe { Work::raw_get(work) }
}

/// The function that runs when the time of a [`DelayedWork`] has come.
pub trait DelayedWorkItem<const ID: u64 = 0>: Send + Sync + 'static {
    /// Runs the work, in process context, on the queue of the work.
    fn run(this: Arc<Self>);
}

/// A work item that waits for its time before it is queued.
///
/// The item is a field of the struct on which it works; the struct declares the field by
/// [`impl_has_delayed_work!`](crate::impl_has_delayed_work). While the item waits or is queued it
/// holds a reference to that struct.
///
/// # Examples
///
/// ```ignore
/// #[pin_data]
/// struct Path {
///     #[pin]
///     reconnect: DelayedWork<Self>,
/// }
///
/// kernel_ext::impl_has_delayed_work! {
///     impl HasDelayedWork<Self> for Path { self.reconnect }
/// }
///
/// impl DelayedWorkItem for Path {
///     fn run(this: Arc<Self>) { … }
/// }
///
/// let path = Arc::pin_init(pin_init!(Path {
///     reconnect <- kernel_ext::new_delayed_work!(&queue, "Path::reconnect"),
/// }), GFP_KERNEL)?;
/// let _ = DelayedWork::queue(path.clone(), msecs_to_jiffies(500));
/// DelayedWork::cancel_sync(&path);
/// ```
///
/// # Invariants
///
/// While the item waits or is queued, one `Arc<T>` and one entry of `queue`'s gate belong to it.
#[pin_data]
pub struct DelayedWork<T: ?Sized, const ID: u64 = 0> {
    #[pin]
    inner: Opaque<bindings::delayed_work>,
    queue: QueueHandle,
    _item: PhantomData<fn(Arc<T>)>,
}

// SAFETY: The C functions on delayed work may be called from any task.
unsafe impl<T: ?Sized, const ID: u64> Send for DelayedWork<T, ID> {}

// SAFETY: As above, also concurrently.
unsafe impl<T: ?Sized, const ID: u64> Sync for DelayedWork<T, ID> {}

/// Locates the [`DelayedWork`] in a struct.
///
/// # Safety
///
/// The two functions must be inverse to each other, for pointers to a `Self` and to the field.
pub unsafe trait HasDelayedWork<T, const ID: u64 = 0> {
    /// From the struct to the field.
    ///
    /// # Safety
    ///
    /// `this` must be valid.
    unsafe fn raw_get_delayed_work(this: *mut Self) -> *mut DelayedWork<T, ID>;

    /// From the field to the struct.
    ///
    /// # Safety
    ///
    /// `work` must be that field of a valid struct.
    unsafe fn delayed_work_container_of(work: *mut DelayedWork<T, ID>) -> *mut Self;
}

/// Implements [`HasDelayedWork`](crate::workqueue::HasDelayedWork).
#[macro_export]
macro_rules! impl_has_delayed_work {
    ($(impl$({$($generics:tt)*})?
       HasDelayedWork<$work_type:ty $(, $id:tt)?>
       for $self:ty
       { self.$field:ident }
    )*) => {$(
        // SAFETY: Both functions use the same field. Its type is right, as the first function
        // compiles.
        unsafe impl$(<$($generics)+>)?
            $crate::workqueue::HasDelayedWork<$work_type $(, $id)?> for $self
        {
            unsafe fn raw_get_delayed_work(
                this: *mut Self,
            ) -> *mut $crate::workqueue::DelayedWork<$work_type $(, $id)?> {
                // SAFETY: The caller promises that the pointer is valid.
                unsafe { &raw mut (*this).$field }
            }

            unsafe fn delayed_work_container_of(
                work: *mut $crate::workqueue::DelayedWork<$work_type $(, $id)?>,
            ) -> *mut Self {
                // SAFETY: The caller promises that the pointer is to this field of a struct.
                unsafe { ::kernel::container_of!(work, Self, $field) }
            }
        }
    )*};
}

/// Makes the initialiser of a [`DelayedWork`](crate::workqueue::DelayedWork) for a
/// [`QueueHandle`](crate::workqueue::QueueHandle), with lock classes of its own.
#[macro_export]
macro_rules! new_delayed_work {
    ($queue:expr, $name:literal) => {
        $crate::workqueue::DelayedWork::new(
            $queue,
            $crate::lock_class_name!($name),
            ::kernel::static_lock_class!(),
            $crate::lock_class_name!(::core::concat!($name, "_timer")),
            ::kernel::static_lock_class!(),
        )
    };
}

impl<T, const ID: u64> DelayedWork<T, ID>
where
    T: HasDelayedWork<T, ID> + DelayedWorkItem<ID>,
{
    /// Makes work for `queue`; see [`new_delayed_work!`](crate::new_delayed_work).
    pub fn new(
        queue: &QueueHandle,
        work_name: &'static CStr,
        work_key: Pin<&'static LockClassKey>,
        timer_name: &'static CStr,
        timer_key: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        let queue = queue.clone();
        // INVARIANT: The work is neither waiting nor queued.
        pin_init!(Self {
            inner <- Opaque::ffi_init(move |slot: *mut bindings::delayed_work| {
                // SAFETY: `slot` is valid for writes, and pinned.
                unsafe {
                    bindings::init_work_with_key(
                        &raw mut (*slot).work,
                        Some(Self::run_raw),
                        false,
                        work_name.as_char_ptr(),
                        work_key.as_ptr(),
                    )
                };
                // SAFETY: `slot` is valid for writes, and pinned. The function and the flag are
                // those that the workqueue code expects of a `delayed_work`.
                unsafe {
                    bindings::timer_init_key(
                        &raw mut (*slot).timer,
                        Some(bindings::delayed_work_timer_fn),
                        bindings::TIMER_IRQSAFE,
                        timer_name.as_char_ptr(),
                        timer_key.as_ptr(),
                    )
                };
            }),
            queue,
            _item: PhantomData,
        })
    }

    /// Queues `item` in `delay` jiffies. Any context.
    ///
    /// Gives `item` back if it is waiting or queued already, is being cancelled, or if the queue
    /// is being destroyed.
    pub fn queue(item: Arc<T>, delay: Jiffies) -> Result<(), Arc<T>> {
        let work = Self::of(&item).inner.get();
        let Some(raw) = Self::of(&item).queue.gate.enter() else {
            return Err(item);
        };
        // The item may run before the call below returns, so it must have its `Arc` already.
        let pointer = Arc::into_raw(item);
        // SAFETY: The reference just leaked keeps the item valid until it has run or was
        // cancelled, and the queue exists as its gate is entered until then.
        let queued = unsafe {
            bindings::queue_delayed_work_on(
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                raw.as_ptr(),
                work,
                delay,
            )
        };
        if queued {
            // INVARIANT: The `Arc` and the entry belong to the work now.
            mem::forget(raw);
            Ok(())
        } else {
            // SAFETY: The pointer was leaked above, and the queue has not taken it.
            Err(unsafe { Arc::from_raw(pointer) })
        }
    }

    /// Queues `item` in `delay` jiffies, also if it waits for another time already. Any context.
    ///
    /// Gives `item` back as [`DelayedWork::queue`] does, but not because it was waiting or queued.
    pub fn modify(item: Arc<T>, delay: Jiffies) -> Result<(), Arc<T>> {
        // `mod_delayed_work()` is not used, as it does not tell that it failed because the work is
        // being cancelled.
        Self::cancel(&item);
        Self::queue(item, delay)
    }

    /// Takes `item` off its timer or queue, without waiting for running work. True if `item` was
    /// waiting or queued. Any context except hard interrupts.
    pub fn cancel(item: &Arc<T>) -> bool {
        // SAFETY: The work is initialised.
        let was_queued = unsafe { bindings::cancel_delayed_work(Self::of(item).inner.get()) };
        if was_queued {
            // SAFETY: The work was just taken off its timer or queue.
            unsafe { Self::give_back(item) };
        }
        was_queued
    }

    /// Takes `item` off its timer or queue and waits until its work is not running, even if the
    /// work queues itself. True if `item` was waiting or queued.
    ///
    /// Sleeps; not to be called in that work itself.
    pub fn cancel_sync(item: &Arc<T>) -> bool {
        // SAFETY: The work is initialised.
        let was_queued = unsafe { bindings::cancel_delayed_work_sync(Self::of(item).inner.get()) };
        if was_queued {
            // SAFETY: The work was just taken off its timer or queue.
            unsafe { Self::give_back(item) };
        }
        was_queued
    }

    fn of(item: &Arc<T>) -> &Self {
        // SAFETY: The pointer of an `Arc` is valid, and so is the one to its field, for as long as
        // the `Arc` is borrowed.
        unsafe { &*T::raw_get_delayed_work(Arc::as_ptr(item).cast_mut()) }
    }

    /// Drops the `Arc` and the entry of the gate that belonged to cancelled work.
    ///
    /// # Safety
    ///
    /// The caller must have taken the work off its timer or queue, and must call this once for each
    /// time.
    unsafe fn give_back(item: &Arc<T>) {
        // SAFETY: The work was waiting or queued, so an entry of the gate belonged to it.
        drop(unsafe { Self::of(item).queue.gate.reclaim() });
        // SAFETY: In the same way an `Arc` of this item belonged to the work. It is not the last
        // one, as the caller has another.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }

    /// Runs the work.
    ///
    /// # Safety
    ///
    /// Called by the workqueue with the `work_struct` of a `DelayedWork<T, ID>` that was queued.
    unsafe extern "C" fn run_raw(work: *mut bindings::work_struct) {
        // SAFETY: By the safety requirement.
        let inner = unsafe { container_of!(work, bindings::delayed_work, work) };
        let inner: *mut Opaque<bindings::delayed_work> = inner.cast();
        // SAFETY: By the safety requirement.
        let this = unsafe { container_of!(inner, Self, inner) };
        // SAFETY: The field is part of an item that is valid, as the work was queued.
        let item = unsafe { T::delayed_work_container_of(this) };
        // SAFETY: While the work was queued an `Arc` of the item belonged to it. The work is not
        // queued any more, so the `Arc` is ours.
        let item = unsafe { Arc::from_raw(item) };
        // SAFETY: In the same way an entry of the gate belonged to the work. Without that entry the
        // queue still stays until this function returns, as destroying a queue waits for its
        // running work.
        drop(unsafe { Self::of(&item).queue.gate.reclaim() });
        T::run(item);
    }
}
