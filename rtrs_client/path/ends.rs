// SPDX-License-Identifier: GPL-2.0

//! The two ends of a path: its addresses and its device, and the name made of them. How the end of
//! a path comes about is in `ending.rs` and `teardown.rs`.

use kernel::{
    str::CString,
    sync::Arc, //
};
use kernel_ext::{
    prelude::*,
    rdma::QueuePair,
    sync::atomic::ordering, //
};
use proto::{
    addr::{
        Address,
        PathAddress,
        PATH_TEXT_LEN, //
    },
    text::Text, //
};
use rtrs_core::address::address;

use super::{
    DevicePort,
    Path,
    PathHandler, //
};

impl Path {
    /// The name of the directory in sysfs: `source@destination`, as they were when the path was
    /// connected for the first time. `EINVAL` before that. Any context.
    pub(crate) fn file_name(&self) -> Result<&CStr> {
        Ok(self.file_name.as_ref().ok_or(EINVAL)?)
    }

    /// Whether `address` has the addresses that the path was made with, or the ends that it had
    /// last. Sleeps.
    pub(crate) fn is_known_as(&self, address: &PathAddress) -> bool {
        self.address.same_as(address) || self.used_ends().same_as(address)
    }

    /// The ends of the path. The source is the one in use, once there was a connection. Sleeps.
    fn used_ends(&self) -> PathAddress {
        PathAddress {
            src: self.used_source(),
            dst: self.address.dst,
        }
    }

    /// Gives this path its name if it has none yet; its ends are known now. `EEXIST` if another
    /// path of the session has the same ends. Sleeps.
    pub(crate) fn settle_name(&self) -> Result {
        // If paths with the same ends are connected at the same time, one of them has to stay.
        let _naming = self.owner.naming().lock();
        if self.file_name.as_ref().is_some() {
            return Ok(());
        }
        let ends = self.used_ends();
        let is_same =
            |other: &&Arc<Self>| other.file_name.as_ref().is_some() && other.is_known_as(&ends);
        let paths = self.owner.paths().get();
        if let Some(other) = paths.iter().find_map(|paths| paths.iter().find(is_same)) {
            pr_err!(
                "{}: the session has this path already, as {}\n",
                self.name_text(),
                other.name_text()
            );
            return Err(EEXIST);
        }
        let name = CString::try_from_fmt(fmt!(
            "{}@{}",
            self.source_text().as_str(),
            self.address.dst.to_text().as_str()
        ))?;
        self.file_name.populate(name);
        Ok(())
    }

    /// The source address. It is the one in use, once there was a connection. Sleeps.
    fn used_source(&self) -> Option<Address> {
        let used = self.device.lock().as_ref().and_then(|device| device.source);
        used.or(self.address.src)
    }

    /// The text of the source address, empty if there is none yet. Sleeps.
    pub(crate) fn source_text(&self) -> Text<PATH_TEXT_LEN> {
        match self.used_source() {
            Some(source) => source.to_text(),
            None => Text::new(),
        }
    }

    /// Notes the device of the first connection. Sleeps.
    pub(crate) fn set_device(&self, queue_pair: &QueuePair<PathHandler>) -> Result {
        let name = queue_pair.domain().device().name();
        *self.device.lock() = Some(DevicePort {
            name: CString::try_from_fmt(fmt!("{}", name))?,
            port: queue_pair.id().port_num(),
            source: address(&queue_pair.id().local_address()),
        });
        // A server that has lost the session may make a new one on any later connect.
        self.first.store(true, ordering::Relaxed);
        Ok(())
    }
}
