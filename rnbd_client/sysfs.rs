// SPDX-License-Identifier: GPL-2.0

//! The files in sysfs: `/sys/class/rnbd-client/ctl` and `/sys/block/rnbd<N>/rnbd`.
//!
//! Names, modes and text are those of the C module (`rnbd-clt-sysfs.c`,
//! Documentation/ABI/testing/sysfs-class-rnbd-client and sysfs-block-rnbd). Files that C does not
//! have are in Documentation/ABI/testing/sysfs-block-rnbd-extensions.

use kernel::{
    str::BStr,
    sync::Arc, //
};
use kernel_ext::{
    prelude::*,
    sysfs::{
        Attribute,
        StoreContext,
        SysfsOutput, //
    }, //
};
use proto::{
    device_state::DeviceState,
    latency::Kind,
    number::{
        self,
        Base, //
    },
    setting::{
        HOLD_DISK_IO,
        IO_TIMEOUT,
        LATENCY_SECONDS, //
    }, //
};
use rtrs_core::error::from_errno;

use crate::{
    client::Client,
    mapping::{
        self,
        Files,
        Mapping, //
    },
    remote_device::{
        device_log,
        RemoteDevice, //
    }, //
};

/// The files of the control device.
///
/// The text of `map_device` is C's, byte for byte, without options that C does not have;
/// `selftests/wrong_input.py` compares it.
pub(crate) const CTL_ATTRIBUTES: &[Attribute<Client>] = &[Attribute::read_write(
    c"map_device",
    |_, out| {
        out.print(fmt!(
            "Usage: echo \"[dest_port=server port number] sessname=<name of the rtrs session> \
                 path=<[srcaddr@]dstaddr> [path=<[srcaddr@]dstaddr>] \
                 device_path=<full path on remote side> [access_mode=<ro|rw|migration>] \
                 [nr_poll_queues=<number of queues>]\" > map_device\n\n\
                 addr ::= [ ip:<ipv4> | ip:<ipv6> | gid:<gid> ]\n"
        ))
    },
    |client, _, line| mapping::map_device(client, line, DEVICE_FILES),
)];

/// The files of a device.
const DEVICE_FILES: Files = Files {
    device: FILES,
    latency: LATENCY_FILES,
};

/// The files of the directory `rnbd` of a device's disk.
const FILES: &[Attribute<Mapping>] = &[
    Attribute::read_write(
        c"unmap_device",
        |_, out| out.print(fmt!("Usage: echo <normal|force> > unmap_device\n")),
        store_unmap,
    ),
    Attribute::read_write(
        c"resize",
        |_, out| out.print(fmt!("Usage: echo <new size in sectors> > resize\n")),
        |mapping, context, bytes| {
            let sectors = number::parse_u64(bytes, Base::ByPrefix)
                .map_err(|error| from_errno(error.errno()))?;
            // This waits for the task that makes the disk. If that task cannot make a later file,
            // it removes this file, and the removal must not wait for this write.
            context.release_protection()?;
            mapping.device.resize(sectors)
        },
    ),
    Attribute::read_write(
        c"remap_device",
        |_, out| out.print(fmt!("Usage: echo <1> > remap_device\n")),
        |mapping, context, bytes| {
            if bytes.trim_ascii() != b"1" {
                return Err(invalid_value(&mapping.device.remote, "remap_device", bytes));
            }
            // This waits for the server. A task that unmaps the device meanwhile must not wait for
            // this file: it waits for its turn, where it can be killed.
            context.release_protection()?;
            mapping.remap()
        },
    ),
    Attribute::read_only(c"mapping_path", |mapping, out| {
        print_bytes(out, mapping.device.remote.path.as_bytes())
    }),
    Attribute::read_only(c"state", |mapping, out| {
        out.print(fmt!("{}\n", mapping.device.remote.state().sysfs_str()))
    }),
    Attribute::read_only(c"closed_by", |mapping, out| {
        let remote = &mapping.device.remote;
        let is_closed = remote.state() == DeviceState::Disconnected && remote.is_closed_by_server();
        out.print(fmt!("{}\n", if is_closed { "server" } else { "" }))
    }),
    Attribute::read_only(c"session", |mapping, out| {
        print_bytes(out, mapping.device.remote.server.session.as_bytes())
    }),
    Attribute::read_only(c"access_mode", |mapping, out| {
        out.print(fmt!("{}\n", mapping.device.remote.access_mode.as_str()))
    }),
    Attribute::read_only(c"io_mode", |mapping, out| {
        let wish = mapping.device.remote.io_mode;
        out.print(fmt!("{}\n", wish.map_or("any", |mode| mode.as_str())))
    }),
    Attribute::read_only(c"nr_poll_queues", |mapping, out| {
        out.print(fmt!("{}\n", mapping.nr_poll_queues))
    }),
    Attribute::read_write(
        c"io_timeout_ms",
        |mapping, out| out.print(fmt!("{}\n", mapping.device.remote.io_timeout_ms())),
        |mapping, context, bytes| {
            let device = &mapping.device;
            let ms = IO_TIMEOUT.parse(bytes).map_err(|error| {
                device_log!(pr_err, device.remote, "{}", error.message().as_str());
                from_errno(error.errno())
            })?;
            // The task that makes the disk may wait for the removal of this file, as with `resize`.
            context.release_protection()?;
            // The number is not negative.
            device.set_io_timeout(ms.unsigned_abs())
        },
    ),
    Attribute::read_write(
        c"hold_io_ms",
        |mapping, out| out.print(fmt!("{}\n", mapping.device.remote.hold_io_ms())),
        |mapping, _, bytes| {
            let device = &mapping.device.remote;
            let ms = HOLD_DISK_IO.parse(bytes).map_err(|error| {
                device_log!(pr_err, device, "{}", error.message().as_str());
                from_errno(error.errno())
            })?;
            device.set_hold_io_ms(ms);
            Ok(())
        },
    ),
    Attribute::read_only(c"io_timeouts", |mapping, out| {
        out.print(fmt!("{}\n", mapping.device.remote.io_timeouts()))
    }),
    Attribute::read_only(c"io_unanswered", |mapping, out| {
        out.print(fmt!("{}\n", mapping.device.remote.unanswered()))
    }),
];

/// The files of the directory `latency` in that directory.
const LATENCY_FILES: &[Attribute<Mapping>] = &[
    Attribute::read_write(
        c"seconds",
        |mapping, out| out.print(fmt!("{}\n", mapping.device.latency_seconds())),
        |mapping, context, bytes| {
            let device = &mapping.device;
            let seconds = LATENCY_SECONDS.parse(bytes).map_err(|error| {
                device_log!(
                    pr_err,
                    device.remote,
                    "latency/{}",
                    error.message().as_str()
                );
                from_errno(error.errno())
            })?;
            // The task that makes the disk may wait for the removal of this file, as with `resize`.
            context.release_protection()?;
            // The number is not negative.
            device.set_latency_seconds(seconds.unsigned_abs())
        },
    ),
    Attribute::read_only(c"read_wait", show_latency::<0, 0>),
    Attribute::read_only(c"read_remote", show_latency::<0, 1>),
    Attribute::read_only(c"read_whole", show_latency::<0, 2>),
    Attribute::read_only(c"write_wait", show_latency::<1, 0>),
    Attribute::read_only(c"write_remote", show_latency::<1, 1>),
    Attribute::read_only(c"write_whole", show_latency::<1, 2>),
    Attribute::read_only(c"other_wait", show_latency::<2, 0>),
    Attribute::read_only(c"other_remote", show_latency::<2, 1>),
    Attribute::read_only(c"other_whole", show_latency::<2, 2>),
];

/// Shows the histogram of a kind of requests and a stage, by their places in `Kind::ALL` and
/// `CLIENT_STAGES`.
fn show_latency<const KIND: usize, const STAGE: usize>(
    mapping: &Arc<Mapping>,
    out: &mut SysfsOutput<'_>,
) -> Result {
    let kind = Kind::ALL.get(KIND).ok_or(EINVAL)?;
    mapping.device.remote.latency.show(*kind, STAGE, out)
}

fn store_unmap(mapping: &Arc<Mapping>, context: &StoreContext<'_>, bytes: &[u8]) -> Result {
    let device = &mapping.device.remote;
    let (force, option) = match bytes.trim_ascii() {
        b"normal" => (false, "normal"),
        b"force" => (true, "force"),
        _ => return Err(invalid_value(device, "unmap_device", bytes)),
    };
    device_log!(pr_info, device, "Unmapping device, option: {}.", option);
    // The file is removed with the device.
    context.release_protection()?;
    mapping.unmap(force).inspect_err(|error| {
        if *error != EALREADY {
            device_log!(
                pr_err,
                device,
                "unmap_device failed, err: {}",
                error.to_errno()
            );
        }
    })
}

fn invalid_value(device: &RemoteDevice, file: &str, bytes: &[u8]) -> Error {
    device_log!(
        pr_err,
        device,
        "{}: Invalid value: {}; read the file for its usage",
        file,
        BStr::from_bytes(bytes.trim_ascii())
    );
    EINVAL
}

/// Prints a name as it is, whatever its bytes are.
fn print_bytes(out: &mut SysfsOutput<'_>, bytes: &[u8]) -> Result {
    out.write_bytes(bytes);
    out.write_bytes(b"\n");
    Ok(())
}
