// SPDX-License-Identifier: GPL-2.0

//! The state that the paths of a session share: its name, its settings, and the limits agreed with
//! the server.

use core::num::{
    NonZeroU16,
    NonZeroU32, //
};
use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    cpu,
    page::send::SendPages,
    pr_err_ratelimited,
    prelude::*,
    random,
    rdma::Device,
    sync::{
        atomic::{
            ordering,
            Atomic, //
        },
        completion::KillableMutex,
        set_once::SetOnce, //
    },
    workqueue::QueueHandle, //
};
use proto::{
    name::SessName,
    rtrs::{
        segments_of,
        ConnAccept,
        MAX_CON_NUM,
        MAX_SEGMENTS,
        SEGMENT_SIZE, //
    }, //
};
use rtrs_core::connection::QueueSizes;

use crate::{
    availability::Availability,
    drain::Drain,
    events::SessionEvents,
    params::NR_CONNECTIONS,
    requests::tags::Tags,
    settings::Settings, //
};

/// The segments that requests may have however short the largest request is, so that users can send
/// small pieces.
const SMALL_SEGMENTS: u32 = 32;

/// The most of a server's chunks that are used: as many tags as the kernel's users can use (C:
/// `BLK_MQ_MAX_DEPTH`), and one tag for service requests.
const MAX_QUEUE_DEPTH: u32 = 10240 + 1;

/// The limits that all paths of a session agree on. The first path sets them.
#[derive(Clone, Copy)]
struct Limits {
    /// The chunks that are used: as many as the first path's device has room for, and at most
    /// [`MAX_QUEUE_DEPTH`].
    queue_depth: u16,
    /// The server's chunks.
    num_chunks: u16,
    max_io_size: u32,
}

/// The state that the paths of a session share.
#[pin_data]
pub struct SessionCore {
    name: SessName,
    pub(crate) uuid: [u8; 16],
    pub(crate) port: u16,
    num_irq_queues: NonZeroU16,
    num_poll_queues: u16,
    /// The workqueue of the paths' work items.
    pub(crate) queue: QueueHandle,
    pub(crate) events: Arc<dyn SessionEvents>,
    limits: SetOnce<Limits>,
    /// The most segments of a request that every path can carry.
    max_segments: Atomic<u32>,
    pub(crate) tags: Arc<Tags>,
    #[pin]
    pub(crate) availability: Availability,
    #[pin]
    pub(crate) drain: Drain,
    /// Held by a path that asks the server for a connection for which the server may make a new
    /// session. So one path at a time asks.
    #[pin]
    pub(crate) asking: KillableMutex,
    /// The pages that the paths map when they come up, if the session shares pages with other
    /// sessions.
    #[pin]
    pub(crate) shared_pages: Mutex<Option<Arc<SendPages>>>,
    pub(crate) settings: Settings,
}

impl SessionCore {
    /// Makes the state; nothing is agreed with the server yet. Sleeps. `EINVAL` for more
    /// connections of a path than [`MAX_CON_NUM`]; `ENOMEM`.
    pub(crate) fn new(
        name: SessName,
        port: u16,
        num_poll_queues: u32,
        queue: QueueHandle,
        events: Arc<dyn SessionEvents>,
    ) -> Result<Arc<Self>> {
        let num_irq_queues = match NR_CONNECTIONS.get().value().unsigned_abs() {
            0 => cpu::nr_cpu_ids(),
            wanted => wanted.min(cpu::nr_cpu_ids()),
        };
        let num_irq_queues = u16::try_from(num_irq_queues).map_err(|_| EINVAL)?;
        let num_irq_queues = NonZeroU16::new(num_irq_queues).ok_or(EINVAL)?;
        let num_poll_queues = u16::try_from(num_poll_queues).map_err(|_| EINVAL)?;
        let queues = num_irq_queues.get().checked_add(num_poll_queues);
        // One connection is for service.
        if queues.is_none_or(|queues| queues >= MAX_CON_NUM) {
            return Err(EINVAL);
        }
        Arc::pin_init(
            try_pin_init!(Self {
                name,
                uuid: random::uuid(),
                port,
                num_irq_queues,
                num_poll_queues,
                queue,
                limits: SetOnce::new(),
                max_segments: Atomic::new(MAX_SEGMENTS),
                tags: Tags::new(events.clone())?,
                availability <- Availability::new(events.clone()),
                drain <- Drain::new(),
                events,
                asking <- KillableMutex::new(),
                shared_pages <- new_mutex!(None, "SessionCore::shared_pages"),
                settings: Settings::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes the tags for the limits agreed with the server. Sleeps. `EINVAL` if none are agreed.
    pub(crate) fn make_tags(&self) -> Result {
        let limits = self.limits.as_ref().ok_or(EINVAL)?;
        // A sink that does not begin on a page boundary touches one page more than it has.
        let segments = u32::from(self.max_segments()).max(segments_of(self.max_io_size()));
        self.tags.make(limits.queue_depth, segments)
    }

    /// The name. Any context.
    pub fn name(&self) -> &CStr {
        self.name.as_cstr()
    }

    /// The name as it goes to the server.
    pub(crate) fn session_name(&self) -> SessName {
        self.name
    }

    /// The name, for log lines.
    pub(crate) fn name_text(&self) -> &str {
        self.name().to_str().unwrap_or("?")
    }

    /// The number of tags that users may use. It is one less than the number of the server's chunks
    /// that are used, as the last chunk is for the transport's own requests. Any context.
    #[inline]
    pub fn queue_depth(&self) -> u32 {
        // 0 before the limits are agreed. A server has at least two chunks.
        (self.limits.as_ref()).map_or(0, |limits| u32::from(limits.queue_depth).wrapping_sub(1))
    }

    /// The most data of one request, in bytes. Any context.
    pub fn max_io_size(&self) -> u32 {
        // At most 2^16 times 2^12.
        let by_segments = u32::from(self.max_segments()).wrapping_mul(SEGMENT_SIZE);
        self.limits
            .as_ref()
            .map_or(0, |limits| limits.max_io_size.min(by_segments))
    }

    /// The most segments of one request, each of at most 4 KiB. Any context.
    pub fn max_segments(&self) -> u16 {
        (self.max_segments.load(ordering::Relaxed) & 0xffff) as u16
    }

    /// The queues for requests that raise interrupts: one for each CPU, or fewer if the module
    /// parameter `nr_connections` says so. At least 1. Any context.
    pub fn num_irq_queues(&self) -> u16 {
        self.num_irq_queues.get()
    }

    /// The queue for requests of the current CPU: the CPU's number modulo
    /// [`Self::num_irq_queues()`]. With a queue for each CPU the responses come to the current CPU,
    /// if completion vector *n* of the device interrupts CPU *n*. CPUs that share a queue get their
    /// responses on the CPU that the queue's vector interrupts. Any context.
    pub fn queue_of_current_cpu(&self) -> u32 {
        cpu::current_cpu() % NonZeroU32::from(self.num_irq_queues)
    }

    /// The queues for requests that are polled. Their numbers follow those of the other queues. Any
    /// context.
    pub fn num_poll_queues(&self) -> u16 {
        self.num_poll_queues
    }

    /// The completion vector of connection `cid`, as in C: the number of the queue, modulo the
    /// number of CPUs. The service connection, the first queue and the first polled queue have
    /// number 0. A device with fewer vectors takes the number modulo its own. `EINVAL` if the
    /// kernel has no CPU.
    pub(crate) fn cpu_of(&self, cid: u16) -> Result<u32> {
        let queue = match cid.checked_sub(1) {
            None => 0,
            Some(queue) => match queue.checked_sub(self.num_irq_queues()) {
                None => queue,
                Some(polled) => polled,
            },
        };
        u32::from(queue)
            .checked_rem(cpu::nr_cpu_ids())
            .ok_or(EINVAL)
    }

    /// The connections of each path.
    pub(crate) fn num_connections(&self) -> u16 {
        // `new` has checked that the sum fits.
        let queues = self.num_irq_queues().wrapping_add(self.num_poll_queues);
        queues.wrapping_add(1)
    }

    /// Takes over the server's offer to a path, called `path` in log lines, that uses `device`.
    /// Returns how many of the server's chunks are used. `ECONNRESET` if the offer does not fit the
    /// session.
    pub(crate) fn negotiated(
        &self,
        path: &str,
        accept: &ConnAccept,
        device: &Device,
    ) -> Result<u16> {
        if accept.queue_depth < 2 {
            pr_err_ratelimited!(
                "{}: the server's queue depth of {} leaves no room for requests: load rtrs_server \
                 with a larger sess_queue_depth\n",
                path,
                accept.queue_depth
            );
            return Err(ECONNRESET);
        }
        // Users may rely on requests of a page, as service requests do.
        if accept.max_io_size < SEGMENT_SIZE {
            pr_err_ratelimited!(
                "{}: the server's largest request of {} bytes is less than a page: load \
                 rtrs_server with a larger max_chunk_size\n",
                path,
                accept.max_io_size
            );
            return Err(ECONNRESET);
        }
        // One of the two is for service requests.
        let most = QueueSizes::max_queue_depth(device).clamp(2, MAX_QUEUE_DEPTH);
        let used = most.min(u32::from(accept.queue_depth));
        let limits = Limits {
            queue_depth: u16::try_from(used)?,
            num_chunks: accept.queue_depth,
            max_io_size: accept.max_io_size,
        };
        if self.limits.populate(limits) {
            return Ok(limits.queue_depth);
        }
        match self.limits.as_ref() {
            Some(known) if known.num_chunks != accept.queue_depth => {
                pr_err_ratelimited!(
                    "{}: the server's queue depth changed from {} to {}: load rtrs_server with the \
                     old sess_queue_depth\n",
                    path,
                    known.num_chunks,
                    accept.queue_depth
                );
                Err(ECONNRESET)
            }
            Some(known) if known.max_io_size > accept.max_io_size => {
                pr_err_ratelimited!(
                    "{}: the server's largest request shrank from {} to {} bytes: load rtrs_server \
                     with the old max_chunk_size\n",
                    path,
                    known.max_io_size,
                    accept.max_io_size
                );
                Err(ECONNRESET)
            }
            _ => Ok(self.limits.as_ref().unwrap_or(&limits).queue_depth),
        }
    }

    /// Lowers the segments of a request to the number that `device` can register and that the
    /// largest request needs, unless the session has made its tags already. Returns the most pages
    /// of 4 KiB that the data of a request touches. `EOPNOTSUPP` if the device can register no
    /// page.
    ///
    /// Each tag has memory for so many segments, and for each path a region for so many pages.
    pub(crate) fn limit_segments(&self, device: &Device) -> Result<u32> {
        // Data that does not begin on a page boundary touches one page more.
        let pages = device.max_fast_reg_page_list_len();
        let can = pages.checked_sub(1).ok_or(EOPNOTSUPP)?.min(MAX_SEGMENTS);
        let limits = self.limits.as_ref().ok_or(EINVAL)?;
        let mine = can.min(segments_of(limits.max_io_size).max(SMALL_SEGMENTS));
        if !self.tags.are_made() && mine < u32::from(self.max_segments()) {
            self.max_segments.store(mine, ordering::Relaxed);
        }
        Ok(segments_of(self.max_io_size()))
    }

    /// Whether requests are to wait for a path rather than fail. They wait for `hold_ms` at most,
    /// beginning when the last path was lost, or when the time is over for which the server is away
    /// on purpose. `None` stands for the session's `hold_io_ms`. Any context.
    pub fn holds_io(&self, hold_ms: Option<u32>) -> bool {
        self.holds_io_of(hold_ms, false)
    }

    /// As [`Self::holds_io`], for requests to an object of the server that the user has awaited
    /// since the server has gone away on purpose. They also wait when the server is back, until the
    /// time of the drain is over. Any context.
    pub fn holds_awaited_io(&self, hold_ms: Option<u32>) -> bool {
        self.holds_io_of(hold_ms, true)
    }

    fn holds_io_of(&self, hold_ms: Option<u32>, is_awaited: bool) -> bool {
        let ms = self.hold_ms(hold_ms);
        self.availability.was_lost_within(ms) || self.drain.holds_io(ms, is_awaited)
    }

    fn hold_ms(&self, hold_ms: Option<u32>) -> u32 {
        hold_ms.unwrap_or_else(|| self.settings.hold_io_ms())
    }

    /// As [`Self::holds_io`], for a request that was refused with
    /// [`NoPath`](crate::SubmitError::NoPath). Such a request may come before the loss of the last
    /// path is noted. Any context.
    pub fn holds_refused_io(&self, hold_ms: Option<u32>) -> bool {
        self.holds_io(hold_ms)
            || self.hold_ms(hold_ms) != 0 && self.availability.is_about_to_be_lost()
    }

    /// Notes that the server goes away for `told_ms`, as it has told. Returns for how many ms of
    /// that requests wait for it, from now on. `None` if they do not wait: see
    /// [`ClientDrain::begin`](proto::drain::ClientDrain::begin). Sleeps.
    pub fn begin_drain(&self, told_ms: u32) -> Option<u32> {
        self.drain.begin(told_ms)
    }

    /// Notes that the server is back and not draining. Returns for how many ms it was away. `None`
    /// if it was not away, or if the time was over before. Requests to
    /// [awaited](Self::holds_awaited_io) objects still wait. Sleeps.
    pub fn came_back(&self) -> Option<i64> {
        self.drain.came_back()
    }

    /// Notes that the user awaits nothing any more, so that no request waits if the server is back.
    /// Sleeps.
    pub fn end_drain(&self) {
        self.drain.end();
    }

    /// Whether the server is away on purpose, or about to go. Any context.
    pub fn is_server_away(&self) -> bool {
        self.drain.is_away()
    }

    /// Logs, once, that the server has been away for longer than it said. Sleeps.
    pub(crate) fn note_end_of_drain(&self) {
        if self.drain.has_run_out() {
            pr_err_ratelimited!(
                "session {}: the server is not back from its maintenance in the time that it \
                 announced: from now on requests are held for hold_io_ms, and then fail; ask the \
                 server's administrator\n",
                self.name_text()
            );
        }
    }
}
