// SPDX-License-Identifier: GPL-2.0

//! How long requests of a device may be in flight, how many took longer, and how long requests wait
//! while no path is up.

use kernel_ext::{
    block::mq::request::Op,
    prelude::*,
    sync::atomic::ordering, //
};

use super::{
    device_log,
    RemoteDevice, //
};

impl RemoteDevice {
    /// The time that a request may be in flight before the client ends it, in ms: 1,000 to
    /// 86,400,000, or 0 for no limit. Any context.
    pub(crate) fn io_timeout_ms(&self) -> u32 {
        self.io_timeout_ms.load(ordering::Relaxed)
    }

    /// Sets the time of [`Self::io_timeout_ms`]. The caller has checked the range. Any context.
    pub(crate) fn set_io_timeout_ms(&self, ms: u32) {
        self.io_timeout_ms.store(ms, ordering::Relaxed);
    }

    /// The time that requests wait while no path is up, in ms: 0 to 86,400,000, or -1 for the
    /// session's `hold_io_ms`. Any context.
    pub(crate) fn hold_io_ms(&self) -> i32 {
        self.hold_io_ms.load(ordering::Relaxed)
    }

    /// Sets the time of [`Self::hold_io_ms`]. The caller has checked the range. Any context.
    pub(crate) fn set_hold_io_ms(&self, ms: i32) {
        self.hold_io_ms.store(ms, ordering::Relaxed);
    }

    /// The time of [`Self::hold_io_ms`]; `None` if the session's setting counts. Any context.
    pub(super) fn hold_ms(&self) -> Option<u32> {
        u32::try_from(self.hold_io_ms()).ok()
    }

    /// How many requests were ended because they took too long, modulo 2^32. Any context.
    pub(crate) fn io_timeouts(&self) -> u32 {
        self.io_timeouts.load(ordering::Relaxed)
    }

    /// How many requests that took too long have no response yet. Any context.
    pub(crate) fn unanswered(&self) -> u32 {
        self.state.unanswered()
    }

    /// Counts a request that is about to be ended because it takes too long. Any context.
    pub(crate) fn timed_out(&self) {
        self.io_timeouts.add(1, ordering::Relaxed);
        self.state.add_unanswered();
    }

    /// Uncounts a request that was ended because it took too long: the server is not at work on it
    /// any more. Any context.
    pub(crate) fn answered(&self) {
        if self.state.answered() {
            kernel_ext::ratelimited!(device_log!(
                pr_info,
                self,
                "The server is done with all requests that took too long; requests are sent again \
                 while the device's state is open"
            ));
        }
    }

    /// Logs that a request takes too long and is not ended. Any context.
    pub(crate) fn log_too_many(&self) {
        kernel_ext::ratelimited!(device_log!(
            pr_err,
            self,
            "A request takes longer than io_timeout_ms and is not ended: too many ended requests \
             of this session have no response yet (io_unanswered of its devices); look at the \
             disks on the server"
        ));
    }

    /// Logs that a request was ended that had been in flight for `ms`, or longer if its time has
    /// begun anew. Any context.
    pub(crate) fn log_timeout(&self, op: Op, sector: u64, bytes: u32, ms: u32) {
        // The block layer gives a flush no sector.
        let sector = if op == Op::Flush { 0 } else { sector };
        kernel_ext::ratelimited!(device_log!(
            pr_err,
            self,
            "{:?} of {} bytes at sector {}: no response of the server for at least {} ms, ended \
             with {}; the server may still carry it out. Until the server is done with it, the \
             client sends nothing to the disk, and other requests fail at once while the device's \
             state is open: look at the disk on the server",
            op,
            bytes,
            sector,
            ms,
            ETIMEDOUT.to_errno()
        ));
    }
}
