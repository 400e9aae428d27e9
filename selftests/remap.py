# SPDX-License-Identifier: GPL-2.0
"""What becomes of a device while its session is away, and when it is back."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd
from lib import uevents
from lib.operations import requests
from lib.rnbd import Device

TOPOLOGY = "one"
MIB = 1 << 20


def lose(t: Test, device: Device, export: str) -> None:
    """Take the session's path away, and wait until both ends have seen it."""
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    t.client.wait_for(f"{device.sysfs}/state", matches="closed")
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{export}", gone=True)


def reconnect(t: Test) -> None:
    """Give the path back."""
    path = rnbd.client_path(t, "sess")
    rnbd.reconnect(t, path)
    t.client.wait_for(f"{path}/state", matches="connected")


def test_states_and_uevents(t: Test) -> None:
    """open, closed, open; each change is announced, and IO fails at once meanwhile."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.attribute("state"), "open", "state")
    uevents.record(t)
    lose(t, device, "vdb")
    t.equal(uevents.actions(t, device, ["offline"]), ["offline"], "uevents after the path went")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    with t.expect_errno(errno.ENOENT):
        t.client.write(f"{device.sysfs}/resize", "8192")
    reconnect(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(uevents.actions(t, device, ["online"]), ["offline", "online"], "uevents")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)


def test_new_size(t: Test) -> None:
    """A disk that has grown or shrunk has its new size when the session is back."""
    rnbd.load(t)
    disk = disks.loop(t, 32)
    device = rnbd.map_device(t, disk)
    t.client.call(guest_io.write, path=device.path, offset=MIB, length=4096, seed=1)
    for mib in (64, 48):
        lose(t, device, disk[5:])
        uevents.record(t)
        disks.resize_loop(t, disk, mib)
        reconnect(t)
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{mib * 2048}$")
        seen = uevents.actions(t, device, ["change", "online"])
        t.check("change" in seen and "online" in seen, f"uevents for the new size: {seen}")
        t.client.call(guest_io.write, path=device.path, offset=mib * MIB - 4096, length=4096,
                      seed=mib)
        t.intact(t.server.call(guest_io.compare, path=disk, offset=mib * MIB - 4096, length=4096,
                               seed=mib), None, "first wrong byte at the new end")
    with t.expect_errno(errno.ENOSPC):
        t.client.call(guest_io.write, path=device.path, offset=48 * MIB, length=4096, seed=1)
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=MIB, length=4096, seed=1),
             None, "first wrong byte of what was there before")


@case(module_sets=("ours",))
def test_other_disk(t: Test) -> None:
    """A disk with other blocks is not taken for the one of before."""
    rnbd.load(t)
    disk = disks.null_blk(t, blocksize=512)
    folder = f"/sys/kernel/config/nullb/{disk[5:]}"
    device = rnbd.map_device(t, disk)

    def changed(state: str, log: str, **attributes: object) -> None:
        lose(t, device, disk[5:])
        t.server.write(f"{folder}/power", "0")
        for name, value in attributes.items():
            t.server.write(f"{folder}/{name}", str(value))
        t.server.write(f"{folder}/power", "1")
        mark = t.client.log_mark()
        reconnect(t)
        t.client.wait_log(log, mark)
        t.client.wait_for(f"{device.sysfs}/state", matches=state)

    changed("closed", "has blocks of 4096 bytes now, and the device has blocks of 512", blocksize=4096)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/{disk[5:]}", gone=True)
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    with t.expect_errno(errno.EINVAL):
        t.client.write(f"{device.sysfs}/remap_device", "1")
    t.client.write(f"{rnbd.client_path(t, 'sess')}/disconnect", "1")
    t.server.write(f"{folder}/power", "0")
    t.server.write(f"{folder}/blocksize", "512")
    t.server.write(f"{folder}/power", "1")
    reconnect(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)


@case(module_sets=("ours",))
def test_disk_comes_later(t: Test) -> None:
    """While requests are held, a disk that the server has later than the path is waited for."""
    rnbd.load(t)
    name = "/dev/late"
    t.server.run(f"ln -s {disks.PLAIN} {name}")
    t.defer(t.server.run, f"rm -f {name}")
    device = rnbd.map_device(t, name)
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/hold_io_ms", "120000")
    lose(t, device, disks.PLAIN[5:])
    t.server.run(f"rm {name}")
    write = t.client.start_job(["dd", "if=/dev/zero", f"of={device.path}", "bs=4k", "count=1",
                                "oflag=direct"], timeout=60)
    mark = t.client.log_mark()
    reconnect(t)
    t.client.wait_log("server responded: -2", mark)
    t.equal(device.attribute("state"), "closed", "state without a disk")
    t.check(not write.done(), "a request was not held")
    t.server.run(f"ln -s {disks.PLAIN} {name}")
    t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=20)
    t.equal(write.wait().rc, 0, "exit code of the writer")


def test_shrunk_under_a_mapping(t: Test) -> None:
    """Beyond the new end of a disk that has shrunk a request fails, and only that."""
    rnbd.load(t)
    disk = disks.loop(t, 32)
    device = rnbd.map_device(t, disk)
    disks.resize_loop(t, disk, 16)
    if t.modules == "ours":
        # The client follows, unless it is told otherwise.
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{16 * 2048}$")
        t.client.write(f"{device.sysfs}/resize", str(32 * 2048))
    beyond = requests(t.client, device.path, 24 * MIB, 4096)
    for name in ("write", "read", "discard"):
        with t.expect_errno(errno.EIO):
            beyond[name]()
    t.client.call(guest_io.write, path=device.path, offset=16 * MIB - 4096, length=4096, seed=1)
    t.equal(device.attribute("state"), "open", "state")


def test_remap_device(t: Test) -> None:
    """remap_device opens a device that could not be opened when the session came back."""
    rnbd.load(t)
    disk = disks.null_blk(t, size=64)
    folder = f"/sys/kernel/config/nullb/{disk[5:]}"
    device = rnbd.map_device(t, disk)
    other = rnbd.map_device(t, disks.PLAIN)
    remap = f"{device.sysfs}/remap_device"
    with t.expect_errno(errno.EALREADY):
        t.client.write(remap, "1")
    lose(t, device, disk[5:])
    t.client.wait_for(f"{other.sysfs}/state", matches="closed")
    with t.expect_errno(errno.ECONNABORTED):
        t.client.write(remap, "1")
    t.equal(device.attribute("state"), "closed", "state without a path")
    t.server.run(f"echo 0 >{folder}/power")
    mark = t.client.log_mark()
    reconnect(t)
    t.client.wait_for(f"{other.sysfs}/state", matches="open")
    t.client.wait_log("(?i)open.*fail|fail.*open", mark)
    t.equal(device.attribute("state"), "closed", "state without the server's disk")
    with t.expect_errno(errno.ENOENT):
        t.client.write(remap, "1")
    with t.expect_errno(errno.EIO):
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
    t.client.call(guest_io.write, path=other.path, offset=0, length=4096, seed=1)
    t.server.run(f"echo 96 >{folder}/size; echo 1 >{folder}/power")
    for word in ("0", "", "11", "yes"):
        with t.expect_errno(errno.EINVAL):
            t.client.write(remap, word or "\n")
    uevents.record(t)
    t.client.write(remap, "1\n")
    t.equal(device.attribute("state"), "open", "state")
    t.equal(uevents.actions(t, device, ["online"])[-1], "online", "last uevent")
    t.equal(device.size(), 96 * MIB, "size")
    with t.expect_errno(errno.EALREADY):
        t.client.write(remap, "1")
    t.client.call(guest_io.write, path=device.path, offset=95 * MIB, length=4096, seed=2)
    t.intact(t.server.call(guest_io.compare, path=disk, offset=95 * MIB, length=4096, seed=2),
             None, "first wrong byte")


def test_map_without_path(t: Test) -> None:
    """A device of a session that has no path up cannot be mapped: ECONNABORTED, and nothing is left."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    lose(t, device, "vdb")
    for _ in range(2):
        with t.expect_errno(errno.ECONNABORTED):
            rnbd.map_device(t, disks.WITHOUT_DISCARD)
        t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [rnbd.link_name(disks.PLAIN, "sess")],
                "links in ctl/devices")
        t.equal([name for name in t.client.listdir("/sys/block") if name.startswith("rnbd")],
                [device.name], "disks")
    reconnect(t)
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), ["vdb"], "what the server has open")
    second = rnbd.map_device(t, disks.WITHOUT_DISCARD)
    t.client.call(guest_io.write, path=second.path, offset=0, length=4096, seed=1)
    second.unmap()


def test_last_path_removed(t: Test) -> None:
    """Without any path a device is closed; one that is added opens it again, as large as it is then."""
    rnbd.load(t)
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    disk = disks.loop(t, 16)
    device = rnbd.map_device(t, disk)
    t.client.call(guest_io.write, path=device.path, offset=MIB, length=64 << 10, seed=1)
    for mib, address in ((32, t.server.address6), (64, t.server.address)):
        t.client.write(f"{rnbd.client_path(t, 'sess')}/remove_path", "1")
        t.equal(t.client.listdir(f"{session}/paths"), [], "paths")
        t.client.wait_for(f"{device.sysfs}/state", matches="closed")
        with t.expect_errno(errno.EIO):
            t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
        disks.resize_loop(t, disk, mib)
        t.client.write(f"{session}/add_path", f"ip:{address}")
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.client.wait_for(f"/sys/block/{device.name}/size", matches=f"^{mib * 2048}$")
        t.intact(t.client.call(guest_io.compare, path=device.path, offset=MIB, length=64 << 10,
                               seed=1), None, "first byte that differs")
        t.client.call(guest_io.write, path=device.path, offset=mib * MIB - 4096, length=4096,
                      seed=mib)
        t.intact(t.server.call(guest_io.compare, path=disk, offset=mib * MIB - 4096, length=4096,
                               seed=mib), None, "first wrong byte at the new end")


def test_connected_path_reconnected(t: Test) -> None:
    """reconnect of the only path, which is up, is counted once; the device goes and comes back."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    path = rnbd.client_path(t, "sess")
    uevents.record(t)
    t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=7)
    # Refused as long as the server closes the old connections.
    rnbd.reconnect(t, path)
    t.equal(t.client.read(f"{path}/state"), "connected", "state of the path")
    t.client.wait_for(f"{device.sysfs}/state", matches="open")
    t.equal(uevents.actions(t, device, ["offline", "online"]), ["offline", "online"], "uevents")
    t.equal(t.client.read(f"{path}/stats/reconnects").split()[0], "1", "successful attempts")
    t.intact(t.client.call(guest_io.compare, path=device.path, offset=0, length=4096, seed=7),
             None, "first byte that differs")


@case(module_sets=("ours",))
def test_lost_while_mapping(t: Test) -> None:
    """The session is lost while a disk's partitions are read: all devices are back, that one, too."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for name, value in (("hold_io_ms", 120000), ("reconnect_delay_ms", 200)):
        t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/{name}", str(value))
    slow = disks.null_blk(t, completion_nsec=1000000000, irqmode=2)
    text = rnbd.map_text(session="sess", device_path=slow, paths=[f"ip:{t.server.address}"])
    job = t.client.start_job(f"echo '{text}' >{rnbd.MAP_DEVICE}", timeout=90)
    t.client.wait_for("/sys/block/rnbd1/inflight", matches=r"^\s*[1-9]", timeout=30)
    mark = t.client.log_mark()
    t.server.write(f"{rnbd.server_path(t, 'sess')}/disconnect", "1")
    t.client.wait_log("vdb@sess> Device online", mark, timeout=40)
    t.equal(device.attribute("state"), "open", "state")
    t.equal(job.wait().rc, 0, "exit code of the mapping")
    late = rnbd.find_device(t.client, slow, "sess")
    t.equal(late.attribute("state"), "open", "state of the device that was being mapped")
    late.unmap()


def test_unmap_while_away(t: Test) -> None:
    """A device whose session is away can be unmapped; its disk is announced as removed."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    uevents.record(t)
    lose(t, device, "vdb")
    device.unmap()
    seen = uevents.actions(t, device, ["offline", "remove"])
    t.equal((seen[0], seen[-1]), ("offline", "remove"), "first and last uevent")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    rnbd.map_device(t, disks.PLAIN)
