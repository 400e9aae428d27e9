// SPDX-License-Identifier: GPL-2.0

//! Actions on a mapped device.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::tunable;
use super::write;
use super::write::meaning;
use super::write::Meaning;
use crate::model::ClientDevice;
use crate::Error;
use crate::Kind;
use crate::Result;

const SECTOR_SIZE: u64 = 512;

const UNMAP: &[Meaning] = &[
    meaning(
        Errno::BUSY,
        Kind::Busy,
        "the device is in use",
        "unmount the device and end the programs that have it open (see lsblk and fuser -v), \
         or use --force, which fails its later requests",
    ),
    meaning(
        Errno::ALREADY,
        Kind::Busy,
        "another process is unmapping the device",
        "",
    ),
    meaning(
        Errno::NODEV,
        Kind::NotFound,
        "the device is already unmapped",
        "",
    ),
];

const REMAP: &[Meaning] = &[
    meaning(
        Errno::ALREADY,
        Kind::Busy,
        "the device is open, as far as this client knows",
        "if requests fail with EIO, a C server has closed the device (force-close) without a \
         message to the client: rnbdctl unmap --force, then map the disk again",
    ),
    meaning(
        Errno::NODEV,
        Kind::NotFound,
        "the device is being unmapped",
        "",
    ),
    meaning(
        Errno::CONNABORTED,
        Kind::Unreachable,
        "the session of the device has no path that is up",
        "list the paths with rnbdctl list paths; connect a path with rnbdctl path reconnect",
    ),
    meaning(
        Errno::NOENT,
        Kind::NotFound,
        "the server has no such disk any more",
        "",
    ),
    meaning(
        Errno::PERM,
        Kind::NotPermitted,
        "another client has mapped the disk for writing",
        "",
    ),
    meaning(
        Errno::ACCESS,
        Kind::NotPermitted,
        "the server does not allow this client to map the disk any more",
        "",
    ),
];

const RESIZE: &[Meaning] = &[
    meaning(
        Errno::NOENT,
        Kind::Busy,
        "the session of the device is not connected",
        "show the session with: rnbdctl show",
    ),
    meaning(Errno::INVAL, Kind::Usage, "the kernel refuses the size", ""),
    meaning(Errno::RANGE, Kind::Usage, "the kernel refuses the size", ""),
];

const SET: &[Meaning] = &[
    meaning(
        Errno::INVAL,
        Kind::Usage,
        "the kernel refuses the value",
        "",
    ),
    meaning(
        Errno::NOENT,
        Kind::Busy,
        "the device is being mapped or unmapped",
        "list the states of devices with: rnbdctl list devices",
    ),
];

/// The waits between attempts to unmap. udev reads a disk that was just mapped or written to, and
/// has it open meanwhile. Each attempt costs a line in the kernel's log.
const UNMAP_WAITS: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(450),
];

/// Unmaps a device; with `force` also a device that is in use. The call waits for requests that the
/// server is at work on; later requests fail.
pub fn unmap(device: &ClientDevice, force: bool) -> Result {
    let word = if force { "force" } else { "normal" };
    let what = format!("unmapping {}", device.path);
    let file = device.folder.join("unmap_device");
    for wait in UNMAP_WAITS {
        match write::write(&what, &file, word, &[UNMAP]) {
            Err(error) if error.kind() == Kind::Busy => thread::sleep(wait),
            result => return result,
        }
    }
    write::write(&what, &file, word, &[UNMAP])
}

/// Lets the server open the disk of a closed device again.
pub fn remap(device: &ClientDevice) -> Result {
    let what = format!("remapping {}", device.path);
    let file = device.folder.join("remap_device");
    write::write(&what, &file, "1", &[REMAP, write::CONNECT])
}

/// Tells this machine the new size of the disk in bytes. The disk must have been resized at the
/// server before.
pub fn resize(device: &ClientDevice, bytes: u64) -> Result {
    let what = format!("resizing {} to {bytes} bytes", device.path);
    if bytes == 0 || bytes.checked_rem(SECTOR_SIZE) != Some(0) {
        let why = format!("a size is a multiple of {SECTOR_SIZE} bytes, and not 0");
        return Err(Error::new(Kind::Usage, what, why));
    }
    let sectors = bytes.checked_div(SECTOR_SIZE).unwrap_or(0);
    let file = device.folder.join("resize");
    write::write(&what, &file, &sectors.to_string(), &[RESIZE])
}

/// Checks that the tunable `name` can have the value `value`, and that the device has the tunable.
/// Returns the value as a number.
pub fn check_tunable(device: &ClientDevice, name: &str, value: &str) -> Result<i32> {
    let what = format!("setting {name} of {}", device.path);
    let number = tunable::value(&what, &ClientDevice::TUNABLES, name, value)?;
    if device.tunable(name).is_none() {
        let why = "the loaded rnbd_client lacks this tunable";
        return Err(Error::new(Kind::Unsupported, what, why)
            .hint("rnbd_client is older than 0.2.0, or the C module without tunables of devices"));
    }
    Ok(number)
}

/// Sets the tunable `name` to `value`.
pub fn set_tunable(device: &ClientDevice, name: &str, value: i32) -> Result {
    let what = format!("setting {name} of {} to {value}", device.path);
    let file = device.folder.join(name);
    write::write(&what, &file, &value.to_string(), &[SET])
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_device_without_a_disk_takes_no_tunable() {
        let explained = |errno: Errno| {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            let error = write::explain("setting x", &error, &[SET]);
            (error.kind(), error.to_string())
        };
        assert_eq!(
            explained(Errno::NOENT),
            (
                Kind::Busy,
                "setting x: the device is being mapped or unmapped (ENOENT)".to_owned()
            )
        );
        assert_eq!(
            explained(Errno::INVAL),
            (
                Kind::Usage,
                "setting x: the kernel refuses the value (EINVAL)".to_owned()
            )
        );
    }

    #[test]
    fn an_open_device_may_have_been_closed_by_the_server() {
        let error = io::Error::from_raw_os_error(Errno::ALREADY.raw_os_error());
        let error = write::explain("remapping x", &error, &[REMAP, write::CONNECT]);
        assert_eq!(
            error.to_string(),
            "remapping x: the device is open, as far as this client knows (EALREADY)"
        );
        let hint = error.remedy().unwrap_or_default();
        assert!(
            hint.contains("EIO") && hint.contains("unmap --force"),
            "{hint}"
        );
    }
}
