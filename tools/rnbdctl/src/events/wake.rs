// SPDX-License-Identifier: GPL-2.0

//! Waits until something may have changed.
//!
//! The kernel sends a uevent for a disk that is mapped, unmapped, opened, closed or resized. There
//! is no uevent for paths, so a look also follows after a certain time.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

use rustix::event::poll;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::netlink;
use rustix::net::recv;
use rustix::net::socket_with;
use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

/// The kernel's own uevents, as opposed to those that udev passes on.
const KERNEL_GROUP: u32 = 1;

/// The longest uevent in bytes (the kernel's `UEVENT_BUFFER_SIZE`, and its head).
const UEVENT_SIZE: usize = 4096;

/// Waits for uevents.
#[derive(Debug)]
pub struct Wake {
    /// `None` if the kernel gives this user no such socket, as in some containers.
    socket: Option<OwnedFd>,
    /// The open [`ARRAYS`], if `with_arrays` is set and md is loaded.
    arrays: Option<File>,
    /// Whether a change of an md array ends a wait, too.
    with_arrays: bool,
}

/// The list of md arrays. `poll` reports a change of an array to a file that was read before; then
/// the file is opened and read again.
const ARRAYS: &str = "/proc/mdstat";

impl Wake {
    /// Waits for changes from now on.
    pub fn new() -> Self {
        Self {
            socket: uevents().ok(),
            arrays: None,
            with_arrays: false,
        }
    }

    /// Waits for changes from now on, also for those of md arrays, as when a leg fails.
    pub fn with_mirrors() -> Self {
        Self {
            with_arrays: true,
            arrays: arrays(),
            ..Self::new()
        }
    }

    /// Returns when a disk of RNBD or an array has changed, or after `longest`. Without a socket it
    /// returns after `longest`.
    pub fn wait(&mut self, longest: Duration) -> io::Result<()> {
        if self.with_arrays && self.arrays.is_none() {
            // md may have been loaded since the last wait.
            self.arrays = arrays();
        }
        let Some(socket) = &self.socket else {
            std::thread::sleep(longest);
            return Ok(());
        };
        let end = Instant::now().checked_add(longest);
        loop {
            let left = end.map_or(longest, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(());
            }
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
            if let Some(arrays) = &self.arrays {
                fds.push(PollFd::new(arrays, PollFlags::PRI));
            }
            let ready = poll(&mut fds, Some(&timeout));
            let have_arrays = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            drop(fds);
            match ready {
                Ok(0) => return Ok(()),
                Ok(_) if have_arrays => {
                    self.arrays = arrays();
                    return Ok(());
                }
                Ok(_) if has_news(socket) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Default for Wake {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens and reads the list of arrays; `poll` reports the changes after that.
fn arrays() -> Option<File> {
    let mut file = File::open(ARRAYS).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    Some(file)
}

fn uevents() -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::KOBJECT_UEVENT),
    )?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

/// Takes all pending uevents. Returns whether one of them is about a disk of RNBD, or was lost and
/// may have been.
fn has_news(socket: &OwnedFd) -> bool {
    let mut buffer = [0_u8; UEVENT_SIZE];
    let mut has_news = false;
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, len)) => has_news |= is_ours(buffer.get(..len).unwrap_or(&[])),
            Err(Errno::NOBUFS) => has_news = true,
            Err(Errno::INTR) => (),
            Err(_) => return has_news,
        }
    }
}

/// Whether a uevent is about RNBD. It is `change@/devices/virtual/block/rnbd0` and further strings.
fn is_ours(uevent: &[u8]) -> bool {
    let head = uevent.split(|&byte| byte == 0).next().unwrap_or(&[]);
    [&b"/rnbd"[..], b"/rtrs"]
        .iter()
        .any(|part| head.windows(part.len()).any(|window| window == *part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_disks_count() {
        for (uevent, ours) in [
            (
                &b"change@/devices/virtual/block/rnbd0\0ACTION=change"[..],
                true,
            ),
            (b"add@/devices/virtual/rnbd-client/ctl\0", true),
            (b"change@/devices/virtual/block/loop0\0X=/rnbd0", false),
            (b"", false),
        ] {
            assert_eq!(is_ours(uevent), ours, "{}", uevent.escape_ascii());
        }
    }

    #[test]
    fn it_returns_in_time() {
        let mut wake = Wake::new();
        let begin = Instant::now();
        wake.wait(Duration::from_millis(20)).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(20) || wake.socket.is_some());
        let mut silent = Wake {
            socket: None,
            ..Wake::new()
        };
        let begin = Instant::now();
        silent.wait(Duration::from_millis(20)).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }
}
