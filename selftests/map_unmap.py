# SPDX-License-Identifier: GPL-2.0
"""Map and unmap devices, modules loaded once or again each time."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import EVERYWHERE
from lab.selftest_case import Test
from lib import disks
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"


@case(quick=EVERYWHERE)
def test_map_and_unmap(t: Test) -> None:
    """A mapped device has its disk and files; unmapped, nothing remains."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    t.equal(device.size(), 512 << 20, "size")
    t.equal(device.attribute("state"), "open", "state")
    t.equal(device.attribute("session"), "sess", "session")
    t.equal(device.attribute("mapping_path"), disks.PLAIN, "mapping_path")
    t.equal(device.attribute("access_mode"), "rw", "access_mode")
    t.equal(device.attribute("nr_poll_queues"), "0", "nr_poll_queues")
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/state"), "connected", "path state")
    device.unmap()
    t.check(not t.client.exists(f"/sys/block/{device.name}"), "the disk is still in sysfs")
    t.check(not t.client.exists(device.path), f"{device.path} is still there")
    t.equal(t.client.listdir(rnbd.CLIENT_DEVICES), [], "links in ctl/devices")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)


@case(timeout=300, quick=())
def test_fifty_times(t: Test) -> None:
    """Fifty mappings, the modules of both ends reloaded between them."""
    for _ in range(t.scaled(50, 5)):
        rnbd.load(t, rtrs_server="sess_queue_depth=64")
        device = rnbd.map_device(t, disks.PLAIN, keep=True)
        t.client.call(guest_io.write, path=device.path, offset=0, length=4096, seed=1)
        device.unmap()
        for node in t.nodes:
            node.modules_unload_all()


def test_same_device_twice(t: Test) -> None:
    """A device that the session has mapped is refused with EEXIST."""
    rnbd.load(t)
    rnbd.map_device(t, disks.PLAIN)
    with t.expect_errno(errno.EEXIST):
        rnbd.map_device(t, disks.PLAIN)
