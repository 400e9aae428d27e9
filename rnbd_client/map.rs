// SPDX-License-Identifier: GPL-2.0

//! Mapping a device: what a line written to `map_device` does.

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::Arc, //
};
use proto::map_options;
use rtrs_core::error::from_errno;

use crate::{
    client::Client,
    device::Device, //
};

/// Maps the device that `line` describes. Sleeps.
///
/// `EINVAL` for a line that makes no sense (`ENOMEM` for too many paths, as C), `ENXIO` for an
/// unknown session without a path to open it by, `EEXIST` for a device that the session has
/// already, and what the transport and the server say.
pub(crate) fn map_device(client: &Arc<Client>, line: &[u8]) -> Result {
    let options = map_options::parse(line, nr_cpu_ids()).map_err(|error| {
        pr_err!("map_device: {}\n", error.message().as_str());
        from_errno(error.errno())
    })?;
    pr_info!(
        "Mapping device {} on session {}, (access_mode: {}, nr_poll_queues: {})\n",
        options.device_path.as_cstr(),
        options.sessname.as_cstr(),
        options.access_mode.as_str(),
        options.nr_poll_queues
    );
    let user = client.use_session(&options)?;
    let session = user.session()?;
    if session.has_device(&options.device_path) {
        pr_err!(
            "map_device: session {} has device {} already\n",
            options.sessname.as_cstr(),
            options.device_path.as_cstr()
        );
        return Err(EEXIST);
    }
    if !user.is_first && (options.nr_poll_queues > 0 || session.nr_poll_queues > 0) {
        // The queues of the session are those of its first device.
        pr_err!(
            "map_device: a device with nr_poll_queues= needs a session of its own, {} is in use\n",
            options.sessname.as_cstr()
        );
        return Err(EINVAL);
    }
    Device::map(client, user, &options)
}
