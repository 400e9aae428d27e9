# SPDX-License-Identifier: GPL-2.0
"""Machines are upgraded one by one: this checkout and the last release at two ends, and under IO."""

from __future__ import annotations

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import rnbd
from lib.operations import every_operation
from lib.stream import seconds
from lib.stream import Stream
from lib.stream import verified

TOPOLOGY = "two"
RELEASE = "release"
MIB = 1 << 20
SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
FAST = {"hb_interval_ms": 200, "hb_missed_max": 3, "reconnect_delay_ms": 1000, "connect_timeout_ms": 10000,
        "hold_io_ms": 60000}


def use(t: Test, client: str, server: str) -> None:
    """The client's and the server's modules."""
    if RELEASE not in t.lab.platform.of("client").modules:
        t.skip("the history of this checkout does not reach back to the last release")
    for node, name in ((t.client, client), (t.server, server)):
        rnbd.use_set(node, name)
        t.defer(rnbd.use_set, node, "ours")
    rnbd.load(t)


def mapped(t: Test) -> rnbd.Device:
    """A disk with a path by each link."""
    device = rnbd.map_device(t, disks.PLAIN, paths=[f"ip:{address}" for address in t.server.addresses])
    rnbd.configure(t, **FAST)
    return device


def server_changes(t: Test, device: rnbd.Device, stream: Stream, to: str) -> float:
    """The server gets modules of another set while the client's requests wait; the seconds until they go on."""
    t.server.modules_unload_all()
    t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=30)
    rnbd.use_set(t.server, to)
    t.server.modules_load("rnbd_server", rtrs_server=rnbd.fewer_buffers(t))
    return stream.go_on()


def one_path_lost(t: Test, stream: Stream) -> None:
    """A path is disconnected and connected again: the other one takes its requests."""
    path = rnbd.path_over(t, 1)
    t.client.write(f"{path}/disconnect", "1")
    t.client.wait_for(f"{path}/state", matches="disconnected")
    stream.go_on()
    rnbd.reconnect(t, path)
    stream.go_on()


def server_is_upgraded_and_taken_back(t: Test, device: rnbd.Device) -> None:
    """The server's modules of the last release are replaced by this checkout's, and back, under IO; on each a path
    is lost, too."""
    stream = Stream(t, device)
    taken = []
    for _ in range(t.rounds(1, 5)):
        for to in ("ours", RELEASE):
            taken.append(server_changes(t, device, stream, to))
            one_path_lost(t, stream)
    t.say(f"goes on {seconds(taken)} after the server's modules have changed; {verified(stream.stop())}")


@case(timeout=300, module_sets=("ours",), kernels=("stock",), quick=())
def test_server_first(t: Test) -> None:
    """A client of the last release: its server is upgraded under IO, and taken back."""
    use(t, RELEASE, RELEASE)
    server_is_upgraded_and_taken_back(t, mapped(t))


@case(timeout=300, module_sets=("ours",), kernels=("stock",))
def test_client_first(t: Test) -> None:
    """A client of this checkout: its server of the last release is upgraded under IO, and taken back."""
    use(t, "ours", RELEASE)
    device = mapped(t)
    every_operation(t, device, offset=128 * MIB, timeout=60)
    server_is_upgraded_and_taken_back(t, device)


@case(timeout=300, module_sets=("ours",), kernels=("stock",))
def test_old_client(t: Test) -> None:
    """A client of the last release does every operation on a server of this checkout."""
    use(t, RELEASE, "ours")
    device = mapped(t)
    every_operation(t, device, offset=128 * MIB, timeout=60)
    stream = Stream(t, device)
    one_path_lost(t, stream)
    t.say(verified(stream.stop()))
