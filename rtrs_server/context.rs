// SPDX-License-Identifier: GPL-2.0

//! The module's context: settings, workqueues and other things that exist once.

use kernel::{
    sync::Arc,
    ModuleMetadata, //
};
use kernel_ext::{
    device::class::Class,
    prelude::*,
    sync::rcu::RcuArc,
    sysfs::Directory,
    workqueue::{
        OwnedQueue,
        QueueFlags,
        QueueHandle, //
    }, //
};

use crate::{
    admission::Admission,
    clients::Clients,
    limits,
    params::Settings,
    pool::Pool, //
};

/// The module's settings, and what all listeners share.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    /// The resources that clients have.
    pub(crate) admission: Arc<Admission>,
    /// The directories that show these resources.
    pub(crate) clients: Arc<Clients>,
    pub(crate) class: Class,
    /// Memory for sessions.
    pub(crate) pool: Arc<Pool>,
    /// Establishes paths.
    pub(crate) queue: QueueHandle,
    /// Closes paths, which waits for requests of the user, however long these take.
    pub(crate) closing: QueueHandle,
    /// Heartbeats, and the time to establish a path; no work on this queue waits.
    pub(crate) timers: QueueHandle,
    /// Handles completions.
    pub(crate) completions: QueueHandle,
    /// Runs workers, which may sleep.
    pub(crate) workers: QueueHandle,
}

/// Set while the module is loaded.
static CONTEXT: RcuArc<Context> = RcuArc::empty();

impl Context {
    /// The context; `ENODEV` while the module is not fully loaded.
    pub(crate) fn get() -> Result<Arc<Self>> {
        CONTEXT.get().ok_or(ENODEV)
    }
}

/// Keeps the context while the module is loaded.
pub(crate) struct ContextOwner {
    _pool: Directory<Pool>,
    // Destroyed last, in this order. Work on the first two queues closes paths on the third. Work
    // on the third uses the context, and waits for the last two queues.
    _timers: OwnedQueue,
    _queue: OwnedQueue,
    _closing: OwnedQueue,
    _workers: OwnedQueue,
    _completions: OwnedQueue,
}

impl ContextOwner {
    /// Makes the context. Sleeps.
    pub(crate) fn new<M: ModuleMetadata>(settings: Settings) -> Result<Self> {
        let pool = Pool::new(settings.chunk_pool_mb, &settings.layout)?;
        let shown = pool.show::<M>()?;
        let class = Class::new(c"rtrs-server")?;
        let queue = OwnedQueue::new(c"rtrs_server_wq", QueueFlags::UNBOUND)?;
        let closing = OwnedQueue::new(c"rtrs_server_close", QueueFlags::UNBOUND)?;
        let timers = OwnedQueue::new(
            c"rtrs_server_timer",
            QueueFlags::UNBOUND | QueueFlags::HIGH_PRIORITY | QueueFlags::MEM_RECLAIM,
        )?;
        // With the flags of the RDMA core's own queue.
        let completions = OwnedQueue::new(
            c"rtrs_server_cq",
            QueueFlags::PER_CPU | QueueFlags::HIGH_PRIORITY | QueueFlags::MEM_RECLAIM,
        )?;
        // Clients may write to free memory. The queue is per CPU, since a CPU then takes up the
        // next work as soon as the previous one sleeps: see `Connection::collect_for_now()`.
        let workers = OwnedQueue::new(
            c"rtrs_server_io",
            QueueFlags::PER_CPU | QueueFlags::MEM_RECLAIM,
        )?;
        let admission = Admission::new(limits::limits())?;
        let context = Context {
            clients: Clients::new::<M>(admission.clone())?,
            admission,
            settings,
            class,
            pool,
            queue: queue.handle(),
            closing: closing.handle(),
            timers: timers.handle(),
            completions: completions.handle(),
            workers: workers.handle(),
        };
        drop(CONTEXT.replace(Some(Arc::new(context, GFP_KERNEL)?)));
        Ok(Self {
            _pool: shown,
            _timers: timers,
            _queue: queue,
            _closing: closing,
            _workers: workers,
            _completions: completions,
        })
    }
}

impl Drop for ContextOwner {
    fn drop(&mut self) {
        drop(CONTEXT.replace(None));
    }
}
