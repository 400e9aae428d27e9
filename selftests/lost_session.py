# SPDX-License-Identifier: GPL-2.0
"""A server that has forgotten a session, of which the client has seen only one path go."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import cable
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.stream import Stream

TOPOLOGY = "two"
MIB = 1 << 20


# The C client makes a new session on the first path, in which its devices are unknown to the
# server, or are others.
@case(timeout=240, module_sets=("ours",))
def test_forgotten(t: Test) -> None:
    """Until the other path is known to be down, too, no new session is made; then all devices are back."""
    rnbd.load(t)
    devices = [rnbd.map_device(t, disk) for disk in (disks.PLAIN, disks.WITHOUT_DISCARD)]
    session = f"{rnbd.CLIENT_SESSIONS}/sess"
    for number in (1, 2):
        for disk in (disks.PLAIN, disks.WITHOUT_DISCARD):
            t.server.call(guest_io.write, path=disk, offset=0, length=MIB, seed=number,
                          direct=False)
            t.server.call(guest_io.fsync, path=disk)
    t.client.write(f"{session}/add_path", f"ip:{t.server.address6}")
    names = t.client.listdir(f"{session}/paths")
    seen = next(f"{session}/paths/{name}" for name in names if t.server.address6 not in name)
    silent = next(f"{session}/paths/{name}" for name in names if t.server.address6 in name)
    # The server goes without a word on one of the paths.
    address = f"{t.server.address6}/64 dev eth0"
    t.server.run(f"ip addr del {address}")
    t.defer(t.server.run, f"ip addr replace {address} nodad")
    t.client.write(f"{seen}/disconnect", "1")
    t.server.module_unload("rnbd_server", "rtrs_server")
    t.server.modules_load("rtrs_server", "rnbd_server")
    t.equal(t.client.read(f"{silent}/state"), "connected", "state of the silent path")
    with t.expect_errno(errno.ENOTCONN):
        t.client.write(f"{seen}/reconnect", "1")
    t.equal(t.server.listdir(rnbd.SERVER_SESSIONS), [], "new sessions")
    for device in devices:
        t.equal(device.attribute("state"), "open", "state")
    # Now the other path is known to be down too.
    t.client.write(f"{silent}/disconnect", "1", timeout=120)
    for device in devices:
        t.equal(device.attribute("state"), "closed", "state without a path")
    rnbd.reconnect(t, seen)
    for index, device in enumerate(devices):
        t.client.wait_for(f"{device.sysfs}/state", matches="open")
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=10 + index)
    for index, device in enumerate(devices):
        t.intact(t.server.call(guest_io.compare, path=device.device_path, offset=0, length=4096,
                               seed=10 + index), None, f"first wrong byte of {device.device_path}")


@case(timeout=240, module_sets=("ours",))
def test_slow_close(t: Test) -> None:
    """While a disk of a lost session cannot be closed, other clients are served, and the client waits."""
    held = disks.holdable(t, 8, disks.WITHOUT_DISCARD)
    cable.prepare(t)
    rnbd.load(t, rtrs_client="hb_interval_ms=200 hb_missed_max=3 reconnect_delay_ms=1000 "
              "connect_timeout_ms=10000", rtrs_server="hb_interval_ms=200 hb_missed_max=3")
    devices = [rnbd.map_device(t, disk) for disk in (disks.PLAIN, held)]
    stream = Stream(t, devices[0])
    # Whoever closes a disk last writes what is in the page cache.
    t.server.call(guest_io.write, path=held, offset=0, length=MIB, seed=1, direct=False)
    disks.hold(t, held)
    mark = t.server.log_mark()
    cable.cut(t, 0)
    t.client.wait_for(f"{devices[0].sysfs}/state", matches="closed", timeout=30)
    # Requests that the client has given up: the server is to make a new session.
    t.equal(stream.stop(check=False)["errnos"], [errno.EIO], "errors of requests without a path")
    cable.mend(t, 0)
    t.server.wait_log("given up requests, closing the session", mark, timeout=30)
    other = rnbd.map_device(t, disks.LARGE_BLOCKS, session="other")
    t.client.call(guest_io.write, path=other.path, offset=0, length=4096, seed=2)
    t.equal(devices[0].attribute("state"), "closed", "state while the old session is there")
    disks.let_go(t, held)
    for device in devices:
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=30)
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=3)
    t.intact(t.server.call(guest_io.compare, path=held, offset=0, length=4096, seed=3), None,
             "first wrong byte of the disk")
