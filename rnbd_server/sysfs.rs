// SPDX-License-Identifier: GPL-2.0

//! The files of an open device
//! (`/sys/class/rnbd-server/ctl/devices/<device>/sessions/<session>/`).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pr_err_ratelimited,
    pr_info_ratelimited,
    sysfs::{
        Attribute,
        StoreContext,
        SysfsOutput, //
    }, //
};
use rtrs_core::sysfs::is_text;

use crate::{
    control,
    session_device::SessionDevice, //
};

/// The files.
pub(crate) const SESSION_DEVICE: &[Attribute<SessionDevice>] = &[
    Attribute::read_only(c"access_mode", show_access_mode),
    Attribute::read_only(c"read_only", show_read_only),
    Attribute::read_only(c"mapping_path", show_mapping_path),
    Attribute::read_write(c"force_close", show_force_close, store_force_close),
];

fn show_access_mode(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("{}\n", device.mode().as_str()))
}

fn show_read_only(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("{}\n", u8::from(device.mode().is_read_only())))
}

fn show_mapping_path(device: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.write_bytes(device.name().as_bytes());
    out.write_bytes(b"\n");
    Ok(())
}

fn show_force_close(_: &Arc<SessionDevice>, out: &mut SysfsOutput<'_>) -> Result {
    out.print(fmt!("Usage: echo 1 > force_close\n"))
}

fn store_force_close(
    device: &Arc<SessionDevice>,
    context: &StoreContext<'_>,
    bytes: &[u8],
) -> Result {
    if !is_text(bytes, "1") {
        pr_err_ratelimited!(
            "force_close: invalid value '{}'\n",
            proto::text::Text::<100>::from_fn(|out| proto::text::write_untrusted(out, bytes))
                .as_str()
        );
        return Err(EINVAL);
    }
    pr_info_ratelimited!(
        "session {:?}: force close of {:?} requested\n",
        device.session().name().as_cstr(),
        device.name().as_cstr()
    );
    context.release_protection()?;
    control::force_close(device);
    Ok(())
}
