# SPDX-License-Identifier: GPL-2.0
"""Our ends and C's mixed, both invalidation modes: all operations while paths and servers fail."""

from __future__ import annotations

import errno
import time

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import cable
from lib import disks
from lib import guest_io
from lib import rnbd
from lib.operations import ERASE
from lib.operations import every_operation
from lib.operations import OPERATIONS
from lib.operations import requests
from lib.rnbd import Device
from lib.stream import seconds
from lib.stream import Stream

TOPOLOGY = "two"
MIB = 1 << 20

SESSION = f"{rnbd.CLIENT_SESSIONS}/sess"
# The C client notices a silent path after 30 s and waits as long before it connects again.
C_PATIENCE = 100.0
# The server's standard disks with a write cache, 512 bytes and 4 KiB a block, and where
# every_operation works on them.
PLACES = {disks.PLAIN: 128 * MIB, disks.LARGE_BLOCKS: 32 * MIB}


def once(t: Test, devices: list[Device]) -> None:
    """Every operation on both standard disks."""
    for device in devices:
        if device.device_path in PLACES:
            every_operation(t, device, offset=PLACES[device.device_path], timeout=C_PATIENCE)


class Probe:
    """Instead of Streams for C clients, with which requests fail when a path goes, although another path is up (also
    with C servers): every operation is done at each step."""

    def __init__(self, t: Test, devices: list[Device]) -> None:
        self._t, self._devices, self._rounds = t, devices, 0
        self.go_on()

    def go_on(self) -> None:
        """All operations, on both disks."""
        once(self._t, self._devices)
        self._rounds += 1

    @staticmethod
    def longest() -> float:
        """Nothing waits meanwhile."""
        return 0.0

    def stop(self) -> str:
        """What was done."""
        return f"all operations {self._rounds} times on {len(self._devices)} disks"


class Streams:
    """All operations all the time, by requests of one block and more."""

    def __init__(self, t: Test, devices: list[Device]) -> None:
        plain, large, erasable = devices
        self._streams = [
            Stream(t, plain, workers=2, sizes=(4096,), operations=OPERATIONS),
            Stream(t, plain, name="sectors", workers=1, sizes=(512,), offset=64 * MIB,
                   operations=("write", "sync_write", "flush", "zero_out")),
            Stream(t, large, workers=1, sizes=(4096,), operations=OPERATIONS),
            Stream(t, erasable, workers=1, sizes=(512,), operations=ERASE)]

    def go_on(self) -> None:
        """Each must come through its operations."""
        for stream in self._streams:
            stream.go_on(requests=24)

    def longest(self) -> float:
        """The longest time a request took since the last call."""
        return max(stream.longest() for stream in self._streams)

    def stop(self) -> str:
        """What was done."""
        results = [stream.stop() for stream in self._streams]
        return (f"{sum(result['writes'] for result in results)} changes, "
                f"{sum(result['reads'] for result in results)} reads verified")


def connect(t: Test, path: str, stream: Probe | Streams) -> None:
    """Have a path connected again, by hand or by itself, and used."""
    rnbd.reconnect(t, path, C_PATIENCE)
    t.client.wait_for(f"{path}/state", matches="^connected", timeout=C_PATIENCE)
    stream.go_on()


def by_hand(t: Test, stream: Probe | Streams) -> list[float]:
    """Each path is disconnected and connected again; the longest times a request took."""
    gaps = []
    for link in (0, 1):
        path = rnbd.path_over(t, link)
        stream.longest()
        t.client.write(f"{path}/disconnect", "1")
        t.client.wait_for(f"{path}/state", matches="disconnected")
        stream.go_on()
        gaps.append(stream.longest())
        connect(t, path, stream)
    return gaps


def cut(t: Test, stream: Probe | Streams) -> tuple[float, float]:
    """A link carries nothing for a while; the longest a request took, the path's way back."""
    path = rnbd.path_over(t, 1)
    stream.longest()
    cable.cut(t, 1)
    t.client.wait_for(f"{path}/state", matches="^(?!connected)", timeout=C_PATIENCE)
    stream.go_on()
    gap = stream.longest()
    cable.mend(t, 1)
    started = time.monotonic()
    t.client.wait_for(f"{path}/state", matches="^connected", timeout=C_PATIENCE)
    back = time.monotonic() - started
    stream.go_on()
    return gap, back


def after_a_cut(t: Test, stream: Probe | Streams, client: str) -> list[str]:
    """What was seen of a link that is cut."""
    gap, back = cut(t, stream)
    waited = []
    if client == "ours":
        # Heartbeats each 5 s, five of which may be missed.
        t.check(25.0 < gap < 40.0 * t.client.slow, f"a silent path was noticed after {gap:.1f} s")
        waited.append(f"link cut {gap:.1f} s")
    return [*waited, f"the cut link's path back after {back:.1f} s"]


def fail_all(t: Test, devices: list[Device]) -> None:
    """Every operation fails at once while there is no path."""
    for device in devices:
        for request in requests(t.client, device.path, 0, 4096).values():
            with t.expect_errno(errno.EIO):
                request()
        if device.queue("write_cache") == "write back":
            with t.expect_errno(errno.EIO):
                t.client.call(guest_io.fsync, path=device.path)


def server_returns(t: Test, devices: list[Device], parameters: str) -> float:
    """The server's modules go and come: IO fails meanwhile; paths and devices come back alone.

    One disk has grown meanwhile, another one is gone, and is mapped anew when it is there."""
    disk, gone = disks.loop(t, 16), disks.null_blk(t, size=16)
    grown, late = (rnbd.map_device(t, path) for path in (disk, gone))
    t.server.modules_unload_all()
    for device in (*devices, grown, late):
        t.client.wait_for(f"{device.sysfs}/state", matches="closed", timeout=C_PATIENCE)
    fail_all(t, devices)
    disks.resize_loop(t, disk, 24)
    power = f"/sys/kernel/config/nullb/{gone[5:]}/power"
    t.server.write(power, "0")
    mark = t.client.log_mark()
    rnbd.load(t, rtrs_server=parameters)
    started = time.monotonic()
    for device in (*devices, grown):
        t.client.wait_for(f"{device.sysfs}/state", matches="open", timeout=C_PATIENCE)
    back = time.monotonic() - started
    once(t, devices)
    t.client.wait_for(f"/sys/block/{grown.name}/size", matches=f"^{24 * 2048}$")
    t.client.call(guest_io.write, path=grown.path, offset=24 * MIB - 4096, length=4096, seed=1)
    t.intact(t.server.call(guest_io.compare, path=disk, offset=24 * MIB - 4096, length=4096,
                           seed=1), None, "first wrong byte at the new end")
    t.client.write(f"{grown.sysfs}/resize", str(8 * 2048))
    t.equal(grown.size(), 8 * MIB, "size")
    t.client.wait_log("(?i)open.*fail|fail.*open", mark)
    t.equal(late.attribute("state"), "closed", "state without the server's disk")
    t.server.write(power, "1")
    t.client.write(f"{late.sysfs}/remap_device", "1")
    t.equal(late.attribute("state"), "open", "state after remap_device")
    t.client.call(guest_io.write, path=late.path, offset=0, length=4096, seed=2)
    t.intact(t.server.call(guest_io.compare, path=gone, offset=0, length=4096, seed=2), None,
             "first wrong byte after remap_device")
    grown.unmap()
    late.unmap()
    return back


def faults(t: Test, client: str, server: str, mode: str) -> None:
    """All of the above with a module set on each end."""
    for node, name in ((t.client, client), (t.server, server)):
        rnbd.use_set(node, name)
        t.defer(rnbd.use_set, node, t.modules)
    cable.prepare(t)
    parameters = f"{rnbd.fewer_buffers(t)}always_invalidate={mode}"
    rnbd.load(t, rtrs_server=parameters)
    paths = [f"ip:{address}" for address in t.server.addresses]
    exported = [*PLACES] if client == "c" else [*PLACES, disks.erasable(t)]
    devices = [rnbd.map_device(t, disk, paths=paths) for disk in exported]
    stream = (Probe if client == "c" else Streams)(t, devices)
    gaps = by_hand(t, stream)
    said = [] if client == "c" else [f"gaps by hand {seconds(gaps)}"]
    if not t.quick:
        said += after_a_cut(t, stream, client)
    done = stream.stop()
    # The C client waits 30 s.
    if not (t.quick and client == "c"):
        returned = server_returns(t, devices, parameters)
        said.append(f"devices back {returned:.1f} s after the server")
    t.say(f"{client} client, {server} server, always_invalidate={mode}: "
          + "; ".join([*said, done]))
    for device in devices:
        device.unmap()
    t.client.wait_for(SESSION, gone=True, timeout=40)
    t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/sess", gone=True, timeout=40)


@case(timeout=600, module_sets=("ours",), quick=())
def test_our_client_invalidating(t: Test) -> None:
    """Our client with the C server, always_invalidate=Y."""
    faults(t, "ours", "c", "Y")


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_client_trusting(t: Test) -> None:
    """Our client with the C server, always_invalidate=N."""
    faults(t, "ours", "c", "N")


@case(timeout=600, module_sets=("ours",), quick=())
def test_our_server_invalidating(t: Test) -> None:
    """The C client with our server, always_invalidate=Y."""
    faults(t, "c", "ours", "Y")


@case(timeout=600, quick=(), module_sets=("ours",))
def test_our_server_trusting(t: Test) -> None:
    """The C client with our server, always_invalidate=N."""
    faults(t, "c", "ours", "N")


@case(timeout=600, quick=())
def test_same_invalidating(t: Test) -> None:
    """Both ends of the set under test, always_invalidate=Y."""
    faults(t, t.modules, t.modules, "Y")


@case(timeout=600, quick=())
def test_same_trusting(t: Test) -> None:
    """Both ends of the set under test, always_invalidate=N."""
    faults(t, t.modules, t.modules, "N")
