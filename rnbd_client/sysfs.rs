// SPDX-License-Identifier: GPL-2.0

//! The files in sysfs: `/sys/class/rnbd-client/ctl` and `/sys/block/rnbd<N>/rnbd`.
//!
//! Names, modes and text are those of the C module (`rnbd-clt-sysfs.c`,
//! Documentation/ABI/testing/sysfs-class-rnbd-client and sysfs-block-rnbd).

use kernel::{
    prelude::*,
    str::BStr,
    sync::Arc, //
};
use kernel_ext::sysfs::{
    Attribute,
    StoreContext,
    SysfsOutput, //
};
use proto::number::{
    self,
    Base, //
};
use rtrs_core::error::from_errno;

use crate::{
    client::Client,
    device::{
        device_log,
        Device, //
    },
    map, //
};

/// The files of the control device.
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
    |client, _, line| map::map_device(client, line),
)];

/// The files of a device.
pub(crate) const DEVICE_ATTRIBUTES: &[Attribute<Device>] = &[
    Attribute::read_write(
        c"unmap_device",
        |_, out| out.print(fmt!("Usage: echo <normal|force> > unmap_device\n")),
        store_unmap,
    ),
    Attribute::read_write(
        c"resize",
        |_, out| out.print(fmt!("Usage: echo <new size in sectors> > resize\n")),
        |device, context, bytes| {
            let sectors = number::parse_u64(bytes, Base::ByPrefix)
                .map_err(|error| from_errno(error.errno()))?;
            // This waits for whoever makes the disk, who removes this file if the next one fails.
            context.release_protection()?;
            device.resize(sectors)
        },
    ),
    Attribute::read_write(
        c"remap_device",
        |_, out| out.print(fmt!("Usage: echo <1> > remap_device\n")),
        |device, context, bytes| {
            if bytes.trim_ascii() != b"1" {
                return Err(invalid_value(device, "remap_device", bytes));
            }
            // This waits for the server. Who unmaps the device meanwhile is not to wait for this
            // file, but for its turn, where it can be killed.
            context.release_protection()?;
            device.remap()
        },
    ),
    Attribute::read_only(c"mapping_path", |device, out| {
        print_bytes(out, device.path.as_bytes())
    }),
    Attribute::read_only(c"state", |device, out| {
        out.print(fmt!("{}\n", device.state().sysfs_str()))
    }),
    Attribute::read_only(c"session", |device, out| {
        print_bytes(out, device.session.name.as_bytes())
    }),
    Attribute::read_only(c"access_mode", |device, out| {
        out.print(fmt!("{}\n", device.access_mode.as_str()))
    }),
    Attribute::read_only(c"nr_poll_queues", |device, out| {
        out.print(fmt!("{}\n", device.nr_poll_queues))
    }),
];

fn store_unmap(device: &Arc<Device>, context: &StoreContext<'_>, bytes: &[u8]) -> Result {
    let (force, option) = match bytes.trim_ascii() {
        b"normal" => (false, "normal"),
        b"force" => (true, "force"),
        _ => return Err(invalid_value(device, "unmap_device", bytes)),
    };
    device_log!(pr_info, device, "Unmapping device, option: {}.", option);
    // The file goes with the device.
    context.release_protection()?;
    device.unmap(force).inspect_err(|error| {
        if *error != EALREADY {
            device_log!(pr_err, device, "unmap_device: {}", error.to_errno());
        }
    })
}

fn invalid_value(device: &Device, file: &str, bytes: &[u8]) -> Error {
    device_log!(
        pr_err,
        device,
        "{}: Invalid value: {}",
        file,
        BStr::from_bytes(bytes.trim_ascii())
    );
    EINVAL
}

/// A name as it is, whatever its bytes are.
fn print_bytes(out: &mut SysfsOutput<'_>, bytes: &[u8]) -> Result {
    out.write_bytes(bytes);
    out.write_bytes(b"\n");
    Ok(())
}
