# SPDX-License-Identifier: GPL-2.0
"""Unmapping a device that is open."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib import uevents

TOPOLOGY = "one"
# The server looks twice a second at what it has to tell; the rest is for a machine that is busy.
SOON = 5.0


def test_normal_is_refused(t: Test) -> None:
    """unmap_device=normal gives EBUSY while the disk is open, and changes nothing."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.hold, path=device.path, name="holder")
    t.defer(t.client.call, guest_io.release, name="holder")
    with t.expect_errno(errno.EBUSY):
        device.unmap("normal")
    t.equal(device.attribute("state"), "open", "state")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.release, name="holder")
    device.unmap("normal")


def test_normal_is_refused_while_mounted(t: Test) -> None:
    """A mounted file system keeps its disk."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.run(f"mkfs.ext4 -q -F {device.path} 16M; mkdir -p /mnt/fs; "
                 f"mount {device.path} /mnt/fs")
    with t.expect_errno(errno.EBUSY):
        device.unmap("normal")
    t.client.run("echo still here >/mnt/fs/file; sync; umount /mnt/fs")
    device.unmap("normal")


@case(quick=EVERYWHERE)
def test_force_under_io(t: Test) -> None:
    """unmap_device=force ends a writer's IO with an error; nothing hangs."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat", matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")
    device.unmap("force")
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.check(not end["running"], "the writer is still waiting for its IO")
    t.check(end["errno"] in (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOSPC),
            f"the writer ended with errno {end['errno']}")
    t.check(end["writes"] > 0, "the writer never wrote")
    t.check(not t.client.exists(f"/sys/block/{device.name}"), "the disk is still in sysfs")


def test_twice_at_once(t: Test) -> None:
    """Of two that unmap a device one does; the other is told that, or that there is no device."""
    rnbd.load(t)
    for _round in range(t.rounds(5)):
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        # Each says its errno.
        each = ["python3", "-c", "import os, sys\ntry:\n fd = os.open(sys.argv[1], os.O_WRONLY)\n"
                "except FileNotFoundError: sys.exit(2)\n"
                "try: os.write(fd, b'force')\nexcept OSError as error: sys.exit(error.errno)",
                f"{device.sysfs}/unmap_device"]
        jobs = [t.client.start_job(each, timeout=60) for _ in range(2)]
        codes = sorted(job.wait().rc for job in jobs)
        t.check(codes[0] == 0 and codes[1] in (errno.ENOENT, errno.ENODEV, errno.EALREADY),
                f"errnos of two that unmap: {codes}")
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)


def test_force_while_the_disk_hangs(t: Test) -> None:
    """force waits for what the server works on; disconnecting the path ends that, too."""
    rnbd.load(t)
    held = disks.holdable(t, 8, disks.WITHOUT_DISCARD)
    device = rnbd.map_device(t, held, keep=True)
    t.client.run("udevadm settle", timeout=60)
    disks.hold(t, held)
    write = t.client.start_job(["dd", "if=/dev/zero", f"of={device.path}", "bs=4k", "count=1",
                                "oflag=direct"], timeout=120)
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=r"^\s*0\s+1", timeout=30)
    path = rnbd.client_path(t, "sess")
    unmap = t.client.start_job(["sh", "-c", f"echo force >{device.sysfs}/unmap_device"],
                               timeout=120)
    t.client.wait_for(device.sysfs, gone=True)
    t.check(not unmap.done(), "the disk was unmapped before its request had ended")
    t.client.write(f"{path}/disconnect", "1")
    t.equal(unmap.wait().rc, 0, "exit code of who unmaps")
    t.check(write.wait().rc != 0, "the write succeeded")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    disks.let_go(t, held)


def test_force_while_mounted(t: Test) -> None:
    """After force, a mounted file system gets errors and can be unmounted."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.client.run(f"mkfs.ext4 -q -F {device.path} 16M; mkdir -p /mnt/fs; "
                 f"mount {device.path} /mnt/fs; echo text >/mnt/fs/file; sync")
    device.unmap("force")
    result = t.client.run("dd if=/dev/zero of=/mnt/fs/new bs=64k count=1 conv=fsync", check=False,
                          timeout=40)
    t.check(result.rc != 0 and not result.timed_out, "a write to the lost disk succeeded or hung")
    t.client.run("umount /mnt/fs", timeout=60)


def test_wrong_word(t: Test) -> None:
    """Anything but normal and force is EINVAL and named in the log."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for word in ("", "Force", "forced", "normal force", "x" * 300):
        mark = t.client.log_mark()
        with t.expect_errno(errno.EINVAL):
            t.client.write(f"{device.sysfs}/unmap_device", word or "\n")
        t.client.wait_log("unmap_device", mark)
    t.equal(device.attribute("state"), "open", "state")
    t.client.write(f"{device.sysfs}/unmap_device", "normal\n")


def test_remap_while_mapped(t: Test) -> None:
    """remap_device on a connected device is EALREADY, a wrong word EINVAL."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(errno.EALREADY):
        t.client.write(f"{device.sysfs}/remap_device", "1")
    with t.expect_errno(errno.EINVAL):
        t.client.write(f"{device.sysfs}/remap_device", "2")


def test_force_close_on_server(t: Test) -> None:
    """The server's force_close ends a mapping; the client's IO fails, unmapping works."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    folder = f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess"
    with t.expect_errno(errno.EINVAL):
        t.server.write(f"{folder}/force_close", "0")
    t.server.write(f"{folder}/force_close", "1")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True)
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.write, path=other.path, offset=0, length=4096, seed=1)
    device.unmap()
    again = rnbd.map_device(t, disks.PLAIN)
    t.client.call(guest_io.write, path=again.path, offset=0, length=4096, seed=1)


@case(module_sets=("ours",))
def test_told_of_force_close(t: Test) -> None:
    """A client is told that a device was closed: its requests fail at once, and remap_device opens it again."""
    rnbd.load(t)
    device, other = rnbd.map_device(t, disks.PLAIN), rnbd.map_device(t, disks.WITHOUT_DISCARD)
    rnbd.configure(t, hold_io_ms=600000)
    export = f"{rnbd.SERVER_DEVICES}/vdb/sessions/sess/force_close"
    for seed in range(3):
        mark = t.client.log_mark()
        uevents.record(t)
        t.server.write(export, "1")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=SOON)
        t.client.wait_log(r"vdb@sess> The server's administrator has closed the device: requests fail", mark)
        t.check("offline" in uevents.actions(t, device, ["offline"]), "no uevent")
        t.equal(device.attribute("closed_by"), "server", "who has closed it")
        with t.expect_errno(errno.EIO):
            t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        rnbd.works(t, other, seed=seed)
        t.client.write(f"{device.sysfs}/remap_device", "1")
        t.equal((device.attribute("state"), device.attribute("closed_by")), ("open", ""), "state after remap_device")
        rnbd.works(t, device, seed=seed)
        t.check("online" in uevents.actions(t, device, ["online"]), "no uevent")
    # A device that is closed while the session is lost is open again with the next one, as all devices are.
    path = rnbd.client_path(t, "sess")
    t.server.write(export, "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=SOON)
    t.client.write(f"{path}/disconnect", "1")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdc", gone=True)
    rnbd.reconnect(t, path)
    for one in (device, other):
        t.client.wait_for(f"{one.sysfs}/state", matches="open")
        rnbd.works(t, one)
