// SPDX-License-Identifier: GPL-2.0

//! What the server says of a device while the device is open.

use kernel_ext::{
    prelude::*,
    sync::atomic::ordering, //
};
use proto::{
    device_state::{
        DeviceEvent,
        DeviceState, //
    },
    rnbd::{
        CloseReason,
        DeviceNews,
        NewsRsp, //
    }, //
};

use super::{
    device_log,
    RemoteDevice, //
};

impl RemoteDevice {
    /// Takes the news that the server has closed this device by itself, if the server says so in
    /// `epoch`; returns whether it does. Then requests fail from here on. Sleeps.
    pub(crate) fn take_close(&self, response: &NewsRsp<'_>, epoch: u32) -> bool {
        if !self.server.tells_of_closing(epoch) {
            return false;
        }
        let reason = {
            let _users = self.users.lock();
            let Some(reason) = self.news_in(response, epoch).and_then(|news| news.closed) else {
                return false;
            };
            self.is_closed_there.store(true, ordering::Relaxed);
            // In state `Mapped` this cannot fail.
            let _ = self.change_state_locked(DeviceEvent::LinkLost);
            reason
        };
        // If another machine has taken the disk over, later requests of this client would do harm.
        let reopen = "if no other machine has written to the disk since, write 1 to remap_device";
        let (why, remedy) = match reason {
            CloseReason::Administrator => {
                ("The server's administrator has closed the device", reopen)
            }
            CloseReason::Policy => (
                "The server's administrator has closed the device, and the server's export policy \
                 does not let this client open the device again with this access_mode",
                "ask the server's administrator",
            ),
            CloseReason::Other => ("The server has closed the device", reopen),
        };
        kernel_ext::ratelimited!(device_log!(
            pr_err,
            self,
            "{}: requests fail; {}",
            why,
            remedy
        ));
        true
    }

    /// The server's news of this device in `epoch`, with the lock of `users` held. `None` if there
    /// are none, or if the device was opened in another epoch.
    fn news_in(&self, response: &NewsRsp<'_>, epoch: u32) -> Option<DeviceNews> {
        if self.state() != DeviceState::Mapped || self.epoch.load(ordering::Relaxed) != epoch {
            return None;
        }
        response.device(self.device_id.load(ordering::Relaxed))
    }

    /// Takes the server's news of this device in `epoch`; returns the news, and whether the size
    /// has changed. `None` if there are none, or if the device was opened in another epoch. Sleeps.
    pub(crate) fn take_news(
        &self,
        response: &NewsRsp<'_>,
        epoch: u32,
    ) -> Option<(DeviceNews, bool)> {
        let (news, was, is_resized) = {
            let _users = self.users.lock();
            let news = self.news_in(response, epoch)?;
            if news.closed.is_some() && self.server.tells_of_closing(epoch) {
                // The device was opened after the look of `take_close`; the record has no limits.
                return None;
            }
            self.note_news(news)
        };
        if was.gone != news.gone {
            let what = if news.gone {
                "was removed, requests fail"
            } else {
                "is back"
            };
            kernel_ext::ratelimited!(device_log!(pr_info, self, "The server's disk {}", what));
        }
        if news.gone {
            return None;
        }
        if was.read_only != news.read_only {
            let what = if news.read_only {
                "is read-only"
            } else {
                "can be written to now"
            };
            kernel_ext::ratelimited!(device_log!(pr_info, self, "The server's disk {}", what));
        }
        if was.write_cache != news.write_cache {
            let what = if news.write_cache {
                "a write cache now, flushes are sent"
            } else {
                "no write cache any more"
            };
            kernel_ext::ratelimited!(device_log!(pr_info, self, "The server's disk has {}", what));
        }
        Some((news, is_resized))
    }

    /// Notes the server's news of the disk, with the lock of `users` held. Returns the news, the
    /// state that was noted before, and whether the size has changed. If the disk is gone, nothing
    /// else is noted.
    fn note_news(&self, news: DeviceNews) -> (DeviceNews, DeviceNews, bool) {
        let mut was = DeviceNews {
            gone: self.disk_is_gone.xchg(news.gone, ordering::Full),
            ..DeviceNews::default()
        };
        if news.gone {
            return (news, was, false);
        }
        was.read_only = self.disk_is_read_only.xchg(news.read_only, ordering::Full);
        was.write_cache = self.disk_has_cache.xchg(news.write_cache, ordering::Full);
        if news.write_cache {
            // Only in this direction: data that was written before the cache was turned off may
            // still be in it.
            self.write_cache.store(true, ordering::Relaxed);
        }
        let is_resized = self.nsectors.xchg(news.nsectors, ordering::Full) != news.nsectors;
        (news, was, is_resized)
    }
}
