// SPDX-License-Identifier: GPL-2.0

//! Protection domains, and the lifetime of memory that hardware may access.
//!
//! Would be: `rust/kernel/rdma/pd.rs`.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    Device,
    DeviceHandle, //
};
use crate::{
    bindings,
    preempt,
    prelude::*, //
};
use core::{
    mem::{
        self,
        ManuallyDrop, //
    },
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
};
use kernel::{
    error::from_err_ptr,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        Arc, //
    }, //
};

/// A protection domain (`ib_pd`).
///
/// Each connection attempt of a path should make a domain of its own: a domain releases its
/// [`Retained`] resources when the last reference to it is dropped. Dropping the last reference
/// sleeps. Where sleeping is not allowed the domain is left behind with its resources, see
/// [`preempt`](crate::preempt).
///
/// # Invariants
///
/// - `raw` is a valid protection domain of `device`, owned by this type.
/// - Everything that is made in the domain holds a reference to this value, or is in the list
///   `retired`.
/// - `retired` heads a list of [`Header`]s of leaked [`Node`]s, which the list owns. They are
///   linked by `next`, and have the `release` of their type.
/// - `queue_pairs` is the number of [`Membership`]s that have not ended, plus [`CLOSED`] if one has
///   ended as drained. After that no membership is made.
pub struct ProtectionDomain {
    raw: NonNull<bindings::ib_pd>,
    retired: Atomic<*mut Header>,
    queue_pairs: Atomic<u32>,
    device: DeviceHandle,
    /// A number that no other domain has or had. Not 0.
    serial: u64,
}

/// In [`ProtectionDomain::queue_pairs`]: no queue pair can be made in the domain any more.
const CLOSED: u32 = 1 << 31;

/// The number of domains that were made.
static MADE: Atomic<u64> = Atomic::new(0);

// SAFETY: The verbs that take a protection domain may be called from any task at any time. The
// retired list is changed atomically and owns values that are `Send`.
unsafe impl Send for ProtectionDomain {}

// SAFETY: As above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates a protection domain, which the RDMA core lists under the name `owner`. Sleeps.
    /// `ENODEV` if the device is going away.
    pub fn new(device: &Device, owner: &'static CStr) -> Result<Arc<Self>> {
        let device = device.handle()?;
        // SAFETY: The handle keeps the device.
        let raw = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, owner.as_char_ptr())
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: `raw` was just made for `device`; the list is empty. If the allocation fails,
        // the value is dropped, and the domain with it.
        Ok(Arc::new(
            Self {
                raw,
                retired: Atomic::new(ptr::null_mut()),
                queue_pairs: Atomic::new(0),
                device,
                serial: MADE.fetch_add(1u64, ordering::Relaxed) + 1,
            },
            GFP_KERNEL,
        )?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether no request of the domain is carried out any more: every queue pair that was made in
    /// the domain is drained, and no further one can be made. A request that is still in flight, or
    /// is posted later, is flushed. Any context.
    pub fn is_drained(&self) -> bool {
        self.queue_pairs.load(ordering::Acquire) == CLOSED
    }

    /// A number that no other domain has or had; not 0.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    /// The key for local access to all DMA-mapped memory.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The domain is valid as long as this exists, and the key never changes.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }

    /// Puts a node on the list of resources that are released with the domain. Any context.
    ///
    /// # Safety
    ///
    /// `node` must be the start of a leaked `KBox<Node<T>>` with the `release` of that `T`, which
    /// the caller gives up.
    unsafe fn retire(&self, node: NonNull<Header>) {
        let node = node.as_ptr();
        let mut head = self.retired.load(ordering::Relaxed);
        loop {
            // SAFETY: By the function's requirement the node is ours until the exchange below
            // succeeds.
            unsafe { (*node).next = head };
            match self.retired.cmpxchg(head, node, ordering::Full) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        if !preempt::may_sleep() {
            preempt::leave_behind(&raw mut bindings::__this_module, "a protection domain");
            // The domain stays, so the device must stay as well.
            mem::forget(self.device.handle());
            return;
        }
        let mut head = self.retired.load(ordering::Acquire);
        while let Some(node) = NonNull::new(head) {
            // SAFETY: The list owns its nodes, and no other code uses the list any more. The next
            // pointer is read before the node is freed.
            head = unsafe { (*node.as_ptr()).next };
            // SAFETY: The list owns the node and gives it up here, and `release` is the function of
            // its type.
            unsafe { ((*node.as_ptr()).release)(node) };
        }
        // SAFETY: The domain is ours. By the type invariant everything in it held a reference to
        // `self` or was on the list, so the domain is unused.
        unsafe { bindings::ib_dealloc_pd_user(self.raw.as_ptr(), ptr::null_mut()) };
    }
}

/// Counts a queue pair in its domain.
///
/// # Invariants
///
/// The membership counts in `queue_pairs` of the domain until `ended` is set.
pub(super) struct Membership {
    domain: Arc<ProtectionDomain>,
    ended: Atomic<bool>,
}

impl Membership {
    /// Makes the membership of a queue pair that is about to be made. `ESHUTDOWN` if a queue pair
    /// of the domain was drained before, `ENOSPC` if there are too many.
    pub(super) fn new(domain: &Arc<ProtectionDomain>) -> Result<Self> {
        let mut members = domain.queue_pairs.load(ordering::Relaxed);
        loop {
            if members & CLOSED != 0 {
                return Err(ESHUTDOWN);
            }
            let more = members.checked_add(1).filter(|more| more & CLOSED == 0);
            let more = more.ok_or(ENOSPC)?;
            match domain.queue_pairs.cmpxchg(members, more, ordering::Full) {
                Ok(_) => break,
                Err(now) => members = now,
            }
        }
        // INVARIANT: The membership was just counted.
        Ok(Self {
            domain: domain.clone(),
            ended: Atomic::new(false),
        })
    }

    /// Ends the membership of a queue pair that was drained, or is destroyed. A request that is
    /// posted on the queue pair later is not carried out. The queue pair cannot be connected again:
    /// the RDMA core lets a queue pair leave the error state only by a reset.
    pub(super) fn drained(&self) {
        self.end(CLOSED);
    }

    fn end(&self, flag: u32) {
        if self.ended.xchg(true, ordering::Full) {
            return;
        }
        let count = &self.domain.queue_pairs;
        let mut members = count.load(ordering::Relaxed);
        loop {
            // INVARIANT: This membership does not count any more.
            let fewer = members.wrapping_sub(1) | flag;
            match count.cmpxchg(members, fewer, ordering::Full) {
                Ok(_) => return,
                Err(now) => members = now,
            }
        }
    }
}

impl Deref for Membership {
    type Target = Arc<ProtectionDomain>;

    fn deref(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // If the queue pair was made, its membership has ended as drained before. Otherwise it ends
        // here.
        self.end(0);
    }
}

/// The common start of all retired nodes.
struct Header {
    next: *mut Header,
    /// Frees the node and its value.
    release: unsafe fn(NonNull<Header>),
}

// SAFETY: Only the domain that owns the node follows the pointer.
unsafe impl Send for Header {}

// SAFETY: As above. The header is not read before the node is on the list.
unsafe impl Sync for Header {}

#[repr(C)]
struct Node<T> {
    header: Header,
    value: T,
}

/// A resource that stays until its protection domain is released, even if its owner is dropped
/// first.
///
/// Memory that a posted work request names must not be freed. The request carries bare addresses of
/// buffers and memory regions to the hardware, and no borrow can follow them there. So a dropped
/// resource is only put on a list of its domain. The domain is released after its last queue pair,
/// and a queue pair is destroyed only when nothing is in flight.
///
/// May be dropped in any context as long as something else holds the domain, for example a queue
/// pair. Otherwise the drop releases the domain, see [`ProtectionDomain`].
///
/// # Invariants
///
/// `node` has the `release` of `T`, and is in no list.
pub struct Retained<T: Send + 'static> {
    node: ManuallyDrop<KBox<Node<T>>>,
    domain: Arc<ProtectionDomain>,
}

impl<T: Send + 'static> Retained<T> {
    /// Hands `value` to `domain`. Sleeps.
    pub(crate) fn new(domain: &Arc<ProtectionDomain>, value: T) -> Result<Self> {
        let node = KBox::new(
            Node {
                header: Header {
                    next: ptr::null_mut(),
                    release: release::<T>,
                },
                value,
            },
            GFP_KERNEL,
        )?;
        // INVARIANT: The node was just made with the `release` of `T`.
        Ok(Self {
            node: ManuallyDrop::new(node),
            domain: domain.clone(),
        })
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl<T: Send + 'static> Deref for Retained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.node.value
    }
}

impl<T: Send + 'static> Drop for Retained<T> {
    fn drop(&mut self) {
        // SAFETY: `node` is not used again, as this is dropped.
        let node = unsafe { ManuallyDrop::take(&mut self.node) };
        // CAST: The header is the first field of the `repr(C)` node.
        let header = KBox::into_raw(node).cast::<Header>();
        if let Some(header) = NonNull::new(header) {
            // SAFETY: The node was just leaked, and has the `release` of its type.
            unsafe { self.domain.retire(header) };
        }
    }
}

/// Frees a retired node.
///
/// # Safety
///
/// `header` must be the start of a leaked `KBox<Node<T>>`, which the caller gives up.
unsafe fn release<T>(header: NonNull<Header>) {
    // SAFETY: By the function's requirement.
    drop(unsafe { KBox::from_raw(header.as_ptr().cast::<Node<T>>()) });
}
