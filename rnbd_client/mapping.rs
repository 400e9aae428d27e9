// SPDX-License-Identifier: GPL-2.0

//! Mapping a device, and unmapping it.

use core::mem;
use kernel::{
    c_str,
    cpu::nr_cpu_ids,
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    kobject::{
        uevent,
        Uevent, //
    },
    module::ModuleReference,
    prelude::*,
    sysfs::{
        Attribute,
        Directory,
        Link, //
    }, //
};
use proto::{
    device_state::{
        DeviceEvent,
        DeviceState, //
    },
    map_options::{
        self,
        MapOptions, //
    }, //
};
use rtrs_core::error::from_errno;

use crate::{
    client::{
        Client,
        SessionUser, //
    },
    device::Device,
    disk,
    remote_device::{
        device_log,
        RemoteDevice, //
    },
    session::Session, //
};

/// The files of a mapping in sysfs.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    /// The files of the directory `rnbd` of the mapping's disk.
    pub(crate) device: &'static [Attribute<Mapping>],
    /// The files of the directory `latency` in that directory.
    pub(crate) latency: &'static [Attribute<Mapping>],
}

/// A mapped device: its disk, its files in sysfs, and its use of the session.
#[pin_data]
pub(crate) struct Mapping {
    pub(crate) device: Arc<Device>,
    pub(crate) nr_poll_queues: u32,
    session: Arc<Session>,
    /// Held while the mapping is made and while it is taken apart.
    #[pin]
    parts: Mutex<Parts>,
}

/// The parts of a mapping besides the disk; dropped in this order.
#[derive(Default)]
struct Parts {
    link: Option<Link>,
    latency: Option<Directory<Mapping>>,
    directory: Option<Directory<Mapping>>,
    user: Option<SessionUser>,
    /// Keeps the module loaded while there is a mapping, so that no disk is lost by mistake.
    module: Option<ModuleReference>,
}

/// Maps the device that `line` describes. Sleeps.
///
/// `EINVAL` for an invalid line (`ENOMEM` for too many paths, as C), `ENXIO` for an unknown session
/// without a path to open it by, `EEXIST` for a device that the session has already, `EHOSTDOWN` if
/// the server is draining, and errors of the transport and of the server.
pub(crate) fn map_device(client: &Arc<Client>, line: &[u8], files: Files) -> Result {
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
    map(client, &options, files).inspect_err(|error| {
        if *error == EHOSTDOWN {
            pr_err!(
                "map_device: the server of session {} is draining for maintenance and opens no \
                 device: map device {} when the maintenance is over\n",
                options.sessname.as_cstr(),
                options.device_path.as_cstr()
            );
        }
    })
}

/// Maps the device that `options` describe. Sleeps. `EHOSTDOWN` if the server is draining.
fn map(client: &Arc<Client>, options: &MapOptions, files: Files) -> Result {
    let user = client.use_session(options)?;
    let session = user.session()?;
    session.check_away()?;
    if session.has_device(&options.device_path) {
        pr_err!(
            "map_device: session {} has device {} already\n",
            options.sessname.as_cstr(),
            options.device_path.as_cstr()
        );
        return Err(EEXIST);
    }
    if !user.is_first && (options.nr_poll_queues > 0 || session.nr_poll_queues > 0) {
        // The queues of a session were made for its first device.
        pr_err!(
            "map_device: device {} cannot join session {}: a session with nr_poll_queues= has one \
             device only: choose another sessname=\n",
            options.device_path.as_cstr(),
            options.sessname.as_cstr()
        );
        return Err(EINVAL);
    }
    Mapping::make(client, user, session, options, files)
}

impl Mapping {
    /// Makes the device that `options` describe, and its disk. Sleeps.
    ///
    /// `EEXIST` if the session has a device of this path, the server's error, and errors of making
    /// a disk. Nothing is left of the device after an error.
    // Not inlined, so that it takes no room on the stack while the session is opened, which needs
    // most of the stack.
    #[inline(never)]
    fn make(
        client: &Arc<Client>,
        user: SessionUser,
        session: Arc<Session>,
        options: &MapOptions,
        files: Files,
    ) -> Result {
        let index = client.new_index().inspect_err(|error| {
            pr_err!(
                "map_device: no number of /dev/rnbdN for device {} of session {}, err: {}\n",
                options.device_path.as_cstr(),
                options.sessname.as_cstr(),
                error.to_errno()
            );
        })?;
        let remote = RemoteDevice::new(session.server.clone(), index, options)?;
        let parts = Parts {
            user: Some(user),
            module: Some((client.context.module)()?),
            ..Parts::default()
        };
        let mapping = Arc::pin_init(
            try_pin_init!(Self {
                device: Device::new(remote, &client.context.limits_queue)?,
                nr_poll_queues: options.nr_poll_queues,
                session,
                parts <- new_mutex!(parts, "Mapping::parts"),
            }? Error),
            GFP_KERNEL,
        )?;
        if let Err(error) = mapping.session.add_device(&mapping.device) {
            drop(mapping.take_parts());
            return Err(error);
        }
        mapping.set_up(client, files).inspect_err(|_| {
            // Not if another task has unmapped the device already.
            let changed = mapping.device.remote.change_state(DeviceEvent::Unmap);
            if let Ok(was) = changed {
                mapping.tear_down(was);
            }
        })
    }

    /// Opens the device at the server, and makes the disk, its files and its link.
    fn set_up(self: &Arc<Self>, client: &Arc<Client>, files: Files) -> Result {
        let Self {
            device, session, ..
        } = &**self;
        let remote = &device.remote;
        let opened = device.open();
        // If the client was told meanwhile that the server goes away, that is the error to report.
        let opened = opened.or_else(|error| session.check_away().and(Err(error)));
        let response = opened.inspect_err(|error| {
            device_log!(
                pr_err,
                remote,
                "map_device: failed, can't open remote device, err: {}",
                error.to_errno()
            );
        })?;
        // Partitions are read now.
        let disk = disk::add(
            remote,
            &session.tag_set,
            &client.major,
            remote.index(),
            &response,
        )
        .inspect_err(Self::failed(remote, "disk"))?;
        // No task reaches the mapping before the directory is made. A task that unmaps it then
        // waits for this lock.
        let mut parts = self.parts.lock();
        device
            .set_disk(disk)
            .inspect_err(Self::failed(remote, "size"))?;
        device.with_disk(|disk| {
            let directory = Directory::new(disk, c_str!("rnbd"), files.device, self.clone())
                .inspect_err(Self::failed(remote, "sysfs directory"))?;
            let directory = parts.directory.insert(directory);
            let latency = Directory::new(directory, c_str!("latency"), files.latency, self.clone());
            parts.latency = Some(latency.inspect_err(Self::failed(remote, "latency directory"))?);
            let _ = uevent(disk, Uevent::Online);
            let link = client.link_device(remote, disk);
            parts.link = Some(link.inspect_err(Self::failed(remote, "sysfs link"))?);
            Ok(())
        })?;
        drop(parts);
        // Takes over what has changed since the server opened the device. Fails if it is unmapped
        // already.
        let _ = device.send_uevents();
        session.want_news();
        Ok(())
    }

    /// Logs that a part cannot be made.
    fn failed<'a>(remote: &'a RemoteDevice, what: &'a str) -> impl Fn(&Error) + 'a {
        move |error| {
            device_log!(
                pr_err,
                remote,
                "map_device: failed to set up the device's {}, err: {}",
                what,
                error.to_errno()
            );
        }
    }

    /// Asks the server to open the device again; see [`Device::remap`]. Sleeps.
    ///
    /// `EHOSTDOWN` while the server is draining: the server opens no device then.
    pub(crate) fn remap(&self) -> Result {
        self.session.check_away().inspect_err(|_| {
            device_log!(
                pr_err,
                self.device.remote,
                "remap_device: the server is draining for maintenance and opens no device: if the \
                 device's state is closed when the maintenance is over, write 1 again"
            );
        })?;
        self.device.remap()?;
        self.device.remote.set_awaited(false);
        self.session.want_news();
        Ok(())
    }

    /// Removes the device. Sleeps, until all requests in flight have ended.
    ///
    /// `EALREADY` if another task is doing that, `EBUSY` if the disk is open, unless by force.
    pub(crate) fn unmap(&self, force: bool) -> Result {
        let remote = &self.device.remote;
        let was = remote.begin_unmap(force).inspect_err(|error| {
            if *error == EALREADY {
                device_log!(pr_info, remote, "Device is already being unmapped");
            }
        })?;
        self.tear_down(was);
        device_log!(pr_info, remote, "Device is unmapped");
        Ok(())
    }

    /// Removes the link, the files and the disk, and has the server close the device. Called after
    /// the change to `Unmapped` from state `was`, by the task that made the change.
    fn tear_down(&self, was: DeviceState) {
        // If the device is still being set up, this waits for that.
        let parts = self.take_parts();
        drop(parts.link);
        drop(parts.latency);
        drop(parts.directory);
        self.device.remove(was);
        // Not before the server has closed the device: an open meanwhile would get the very device
        // that is being closed.
        self.session.remove_device(&self.device);
        // The last user closes the session.
        drop(parts.user);
        drop(parts.module);
    }

    fn take_parts(&self) -> Parts {
        mem::take(&mut *self.parts.lock())
    }
}
