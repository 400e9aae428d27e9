# SPDX-License-Identifier: GPL-2.0
"""RDMA devices that go and come while they are in use."""

from __future__ import annotations

import errno
import time
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lab.vm_node import Node
from lib import disks
from lib import guest_io
from lib import memory
from lib import rnbd
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
ADD = "rdma link add rxe0 type rxe netdev eth0"
DELETE = "rdma link delete rxe0"


def start_writer(t: Test, device: Device) -> None:
    """Writes over and over; waits for the first ones."""
    t.client.call(guest_io.writer_start, path=device.path, name="writer")
    t.client.wait_for(f"/sys/block/{device.name}/stat",
                      matches=r"^\s*\d+\s+\d+\s+\d+\s+\d+\s+\d\d")


def delete(t: Test, node: Node) -> None:
    """Delete the RDMA device, which waits until nobody uses it; it is back after the test."""
    t.defer(node.run, f"rdma link show rxe0/1 >/dev/null 2>&1 || {ADD}")
    started = time.monotonic()
    node.run(DELETE, timeout=30)
    taken = time.monotonic() - started
    t.check(taken < 20 * node.slow, f"deleting the device took {taken:.0f} s")
    t.check(not node.exists("/sys/class/infiniband/rxe0"), "rxe0 is still there")


def maps(t: Test, disk: str = disks.PLAIN, **options: Any) -> Device:
    """A disk can be mapped and written."""
    device = rnbd.map_device(t, disk, **options)
    rnbd.works(t, device)
    return device


@case(quick=())
def test_load_before_device(t: Test) -> None:
    """A server that is loaded before there is an RDMA device listens when one comes."""
    rnbd.load(t, server=False)
    t.server.modules_unload_all()
    delete(t, t.server)
    rnbd.load(t, connect_timeout_ms=6000)
    with t.expect_errno(errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT,
                        errno.EHOSTUNREACH):
        rnbd.map_device(t, disks.PLAIN)
    t.server.run(ADD)
    maps(t).unmap()


@case(timeout=180, quick=())
def test_server_device(t: Test) -> None:
    """The server's device goes under a writing client: it closes all, and listens when it is back."""
    rnbd.load(t)
    device = maps(t)
    start_writer(t, device)
    delete(t, t.server)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
    t.equal(t.server.listdir(rnbd.SERVER_DEVICES), [], "exports without a device")
    end = t.client.call_within(80, guest_io.writer_stop, name="writer", stop=False, wait=60.0)
    t.check(not end["running"], "the writer is still waiting for its IO")
    t.equal(end["errno"], errno.EIO, "errno of the writer")
    t.server.run(ADD)
    device.unmap("force")
    t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True, timeout=60)
    maps(t).unmap()


@case(timeout=180)
def test_client_device(t: Test) -> None:
    """The client's device goes while it writes: the server closes the session and its devices."""
    rnbd.load(t)
    device = maps(t)
    start_writer(t, device)
    delete(t, t.client)
    t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True, timeout=45)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
    end = t.client.call_within(40, guest_io.writer_stop, name="writer", stop=False, wait=20.0)
    t.equal((end["running"], end["errno"]), (False, errno.EIO), "end of the writer")
    device.unmap("force")
    t.client.run(ADD)
    maps(t).unmap()


@case(timeout=180, module_sets=("ours",))
def test_device_is_back(t: Test) -> None:
    """When the client's device is back, its path does not wait for the time to connect again."""
    rnbd.load(t, rtrs_client="reconnect_delay_ms=3600000 hold_io_ms=600000")
    device = maps(t)
    path = rnbd.client_path(t, "sess")
    mark = t.client.log_mark()
    delete(t, t.client)
    t.client.wait_for(f"{path}/state", matches="^disconnected$")
    t.client.wait_log("Device disconnected", mark)
    start_held = t.client.start_job(f"dd if=/dev/urandom of={device.path} bs=4k count=1 oflag=direct")
    started = time.monotonic()
    t.client.run(ADD)
    # The first attempt would be after 42 s at the earliest.
    t.client.wait_for(f"{path}/state", matches="^connected$", timeout=20)
    t.say(f"connected {time.monotonic() - started:.1f} s after the device came back")
    t.equal(start_held.wait().rc, 0, "exit code of the write that was held")
    device.unmap()


@case(timeout=300, module_sets=("ours",))
def test_server_device_is_back(t: Test) -> None:
    """The server's device goes and comes under IO that may wait: the session is back by itself."""
    rnbd.load(t, rtrs_client="hold_io_ms=120000 reconnect_delay_ms=500")
    device = rnbd.map_device(t, disks.PLAIN)
    stream = Stream(t, device)
    taken = []
    for _ in range(t.rounds(2)):
        delete(t, t.server)
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
        t.server.run(ADD)
        taken.append(stream.go_on())
        t.equal(device.attribute("state"), "open", "state")
    t.say(f"goes on {seconds(taken)} after the device is back; {verified(stream.stop())}")


def test_other_device(t: Test) -> None:
    """Another RDMA device that comes and goes disturbs nobody."""
    rnbd.load(t)
    device = maps(t)
    start_writer(t, device)
    t.server.run("modprobe dummy numdummies=0; ip link add dummy7 type dummy; ip link set dummy7 up")
    t.defer(t.server.run, "ip link del dummy7")
    for _ in range(t.scaled(4)):
        t.server.run("rdma link add rxe7 type rxe netdev dummy7")
        t.server.run("rdma link delete rxe7")
    end = t.client.call(guest_io.writer_stop, name="writer")
    t.equal(end["errno"], 0, "errno of the writer")
    maps(t, disks.WITHOUT_DISCARD, session="other").unmap()


@case(timeout=300, kernels=("stock",))
def test_often(t: Test) -> None:
    """A device that goes and comes under a session, over and over, leaves nothing behind."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    rounds = t.scaled(8, 2)
    before = 0
    for number in range(rounds + 2):
        device = maps(t)
        delete(t, t.server)
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True)
        device.unmap("force")
        t.client.wait_for(f"{rnbd.CLIENT_SESSIONS}/sess", gone=True, timeout=60)
        t.server.run(ADD)
        if number == 1:
            before = memory.available(t.server)
    # A session has 8 MiB.
    memory.wait_returned(t.server, before, 4 * memory.MIB, f"after {rounds} rounds")


def test_unload_without_device(t: Test) -> None:
    """The modules can be unloaded when the device under a session has gone."""
    rnbd.load(t)
    device = maps(t)
    delete(t, t.server)
    t.server.modules_unload_all()
    device.unmap("force")
    t.server.run(ADD)
    rnbd.load(t)
    maps(t).unmap()
