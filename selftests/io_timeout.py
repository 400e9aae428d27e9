# SPDX-License-Identifier: GPL-2.0
"""With io_timeout_ms a disk that hangs below a server that does not costs its own requests, and nothing else."""

from __future__ import annotations

import errno

from lab.selftest_case import case
from lab.selftest_case import OTHER
from lab.selftest_case import Test
from lib import cable
from lib import disks
from lib import guest_timeout
from lib import rnbd
from lib.guest_timeout import BUFFERED
from lib.guest_timeout import FLUSH
from lib.rnbd import Device

TOPOLOGY = "two"
ONLY_OURS = ("ours",)

KIB, MIB = 1 << 10, 1 << 20
TIMEOUT_MS = 1000
# Each way that data takes: copied, sent from its own memory, registered.
REQUESTS = [("read", 4 * KIB), ("write", 4 * KIB), ("read", 64 * KIB), ("write", 64 * KIB), ("read", 512),
            ("read", 120 * KIB), (FLUSH, 0)]


def pair(t: Test, paths: list[str] | None = None) -> tuple[Device, Device, str]:
    """A device whose disk can hang and which has a timeout, another one of the session, and that disk."""
    disk = disks.holdable(t, 32, disks.PLAIN)
    held = rnbd.map_device(t, disk, paths=paths)
    other = rnbd.map_device(t, disks.WITHOUT_DISCARD, paths=paths)
    rnbd.works(t, held)
    t.client.write(f"{held.sysfs}/io_timeout_ms", str(TIMEOUT_MS))
    return held, other, disk


def ends(t: Test, device: Device, requests: list[tuple[str, int]]) -> list[float]:
    """Requests of a disk that hangs end with the error for that; their seconds."""
    done = t.client.call_within(60, guest_timeout.run, path=device.path, requests=requests)
    names = [f"{kind} of {length}" for kind, length in requests]
    wanted = [(errno.ETIMEDOUT,) if kind != BUFFERED else (errno.EIO, errno.ETIMEDOUT) for kind, _ in requests]
    for name, (number, _), numbers in zip(names, done, wanted, strict=True):
        t.check(number in numbers, f"{name} ended with {errno.errorcode.get(number, number)}")
    return [seconds for _, seconds in done]


def comes_back(t: Test, device: Device) -> None:
    """When the disk goes on, its late responses are taken, spoil nothing, and requests are sent again."""
    t.client.wait_for(f"{device.sysfs}/io_unanswered", matches="^0", timeout=30)
    t.equal(t.client.call(guest_timeout.spoilt), 0, "bytes that late data has written to memory given back")
    rnbd.works(t, device, seed=2)


@case(timeout=240, module_sets=ONLY_OURS, quick=("stock", OTHER))
def test_ends(t: Test) -> None:
    """Requests of each kind end in time, later ones at once; the session's other disk and its path go on."""
    rnbd.load(t)
    held, other, disk = pair(t)
    before = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
    mark = t.client.log_mark()
    disks.hold(t, disk)
    seconds = ends(t, held, REQUESTS)
    t.check(min(seconds) >= TIMEOUT_MS / 1000 * 0.9, f"a request ended after {min(seconds):.2f} s")
    t.check(max(seconds) < 10 * t.client.slow, f"a request ended after {max(seconds):.2f} s")
    t.say(f"ended after {min(seconds):.1f} to {max(seconds):.1f} s")
    t.client.wait_log(r"no response of the server for at least \d{4,5} ms, ended with -110", mark)
    count = int(held.attribute("io_timeouts"))
    t.check(0 < count <= len(REQUESTS), f"{count} requests counted of {len(REQUESTS)}")
    t.equal(int(held.attribute("io_unanswered")), count, "requests without a response")
    later = ends(t, held, [("read", 4 * KIB), ("write", 64 * KIB), (BUFFERED, 4 * KIB)])
    t.check(max(later) < TIMEOUT_MS / 1000, f"a later request took {max(later):.2f} s")
    rnbd.works(t, other, length=MIB)
    disks.let_go(t, disk)
    comes_back(t, held)
    t.equal(t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects"), before, "reconnects of the path")


@case(timeout=240, module_sets=ONLY_OURS)
def test_off(t: Test) -> None:
    """Without it requests wait until the disk goes on, whatever the block layer's own time is."""
    rnbd.load(t)
    held, other, disk = pair(t)
    t.equal(other.attribute("io_timeout_ms"), "0", "what a device begins with")
    t.client.write(f"{held.sysfs}/io_timeout_ms", "0")
    t.client.write(f"/sys/block/{held.name}/queue/io_timeout", str(TIMEOUT_MS))
    disks.hold(t, disk)
    waits = t.client.start_call(60, guest_timeout.run, path=held.path, requests=REQUESTS)
    # Longer than the time that counts if it is on.
    t.client.run("sleep 4")
    rnbd.works(t, other)
    t.equal(held.attribute("io_timeouts"), "0", "requests that were ended")
    disks.let_go(t, disk)
    done = waits.wait()
    t.equal([number for number, _ in done], [0] * len(REQUESTS), "errors of requests that have waited")
    t.check(min(seconds for _, seconds in done) > TIMEOUT_MS / 1000, f"the disk did not hang: {done}")


@case(timeout=300, module_sets=ONLY_OURS)
def test_others_go_on(t: Test) -> None:
    """Two disks of the session hang together, each with more requests than may be ended: the rest of these wait,
    and another disk works with the tags that are free and the numbers that are left."""
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    held, other, disk = pair(t)
    second_disk = disks.holdable(t, 32, disks.LARGE_BLOCKS)
    second = rnbd.map_device(t, second_disk)
    t.client.write(f"{second.sysfs}/io_timeout_ms", str(TIMEOUT_MS))
    disks.hold(t, disk)
    disks.hold(t, second_disk)
    both = [held, second]
    waits = [t.client.start_call(90, guest_timeout.run, path=device.path, requests=[("read", 4 * KIB)] * 20)
             for device in both]
    for device in both:
        # A quarter of 63.
        t.client.wait_for(f"{device.sysfs}/io_unanswered", matches="^15$", timeout=30)
    for number in range(3):
        rnbd.works(t, other, length=MIB, seed=number)
    for device in both:
        t.equal(device.attribute("io_unanswered"), "15", "requests without a response")
    disks.let_go(t, disk)
    disks.let_go(t, second_disk)
    for device, wait in zip(both, waits, strict=True):
        numbers = [number for number, _ in wait.wait()]
        t.equal(numbers.count(errno.ETIMEDOUT), 15, "requests that were ended")
        t.equal(numbers.count(0), 5, "requests that have waited")
        comes_back(t, device)
    rnbd.works(t, other, length=MIB, seed=9)


@case(timeout=240, module_sets=ONLY_OURS, quick=("stock",))
def test_unmap(t: Test) -> None:
    """A device can be unmapped while its disk hangs, and mapped again later."""
    rnbd.load(t)
    held, other, disk = pair(t)
    disks.hold(t, disk)
    ends(t, held, REQUESTS)
    held.unmap()
    rnbd.works(t, other)
    disks.let_go(t, disk)
    t.equal(t.client.call(guest_timeout.spoilt), 0, "bytes that late data has written to memory given back")
    again = rnbd.map_device(t, disk)
    rnbd.works(t, again, seed=3)


@case(timeout=300, module_sets=ONLY_OURS)
def test_path_lost(t: Test) -> None:
    """The path is lost before the response: the device sends nothing until the path is back, which the
    server refuses until the disk has gone on; another disk uses the other path."""
    cable.prepare(t)
    rnbd.load(t)
    held, other, disk = pair(t, paths=[f"ip:{address}" for address in t.server.addresses])
    first = rnbd.path_over(t, 0)
    # All requests by the first path.
    t.client.write(f"{rnbd.path_over(t, 1)}/disconnect", "1")
    disks.hold(t, disk)
    ends(t, held, REQUESTS)
    count = held.attribute("io_unanswered")
    rnbd.reconnect(t, rnbd.path_over(t, 1))
    t.client.write(f"{first}/disconnect", "1")
    rnbd.works(t, other)
    ends(t, held, [("write", 4 * KIB)])
    t.equal(held.attribute("io_unanswered"), count, "requests without a response when their path was lost")
    disks.let_go(t, disk)
    ends(t, held, [("write", 4 * KIB)])
    rnbd.reconnect(t, first)
    comes_back(t, held)


def sends_again(t: Test, device: Device, disk: str, path: str) -> None:
    """Requests of a disk are sent again by another path, as this one is lost, and end well."""
    t.client.write(f"{device.sysfs}/io_timeout_ms", "0")
    disks.hold(t, disk)
    # As many of the session's tags as the block layer gives to each of two disks, or nearly.
    waits = t.client.start_call(90, guest_timeout.run, path=device.path, requests=[("read", 4 * KIB)] * 30)
    t.client.wait_for(f"/sys/block/{device.name}/inflight", matches=r"^\s*30\b", timeout=30)
    t.client.write(f"{path}/disconnect", "1")
    disks.let_go(t, disk)
    t.equal([number for number, _ in waits.wait()], [0] * 30, "errors of requests that were sent again")
    t.client.write(f"{device.sysfs}/io_timeout_ms", str(TIMEOUT_MS))


@case(timeout=300, module_sets=ONLY_OURS)
def test_path_lost_earlier(t: Test) -> None:
    """A path was lost with requests in flight, and is back: a disk that hangs later, and loses its path, does not
    wait for what was sent again then."""
    cable.prepare(t)
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    held, _, disk = pair(t, paths=[f"ip:{address}" for address in t.server.addresses])
    first, second = rnbd.path_over(t, 0), rnbd.path_over(t, 1)
    sends_again(t, held, disk, first)
    rnbd.reconnect(t, first)
    # All requests by the second path.
    t.client.write(f"{first}/disconnect", "1")
    disks.hold(t, disk)
    ends(t, held, REQUESTS)
    rnbd.reconnect(t, first)
    t.client.write(f"{second}/disconnect", "1")
    disks.let_go(t, disk)
    rnbd.reconnect(t, second)
    comes_back(t, held)


@case(timeout=300, module_sets=ONLY_OURS)
def test_path_removed_earlier(t: Test) -> None:
    """A path was lost with requests in flight, and removed: a disk that hangs later, and loses its path, does not
    wait for the removed one."""
    cable.prepare(t)
    rnbd.load(t, rtrs_server="sess_queue_depth=64")
    addresses = [f"ip:{address}" for address in t.server.addresses]
    held, _, disk = pair(t, paths=addresses)
    first, second = rnbd.path_over(t, 0), rnbd.path_over(t, 1)
    sends_again(t, held, disk, first)
    t.client.write(f"{first}/remove_path", "1")
    disks.hold(t, disk)
    ends(t, held, REQUESTS)
    # For the server, and for the session, this is another path.
    t.client.write(f"{rnbd.CLIENT_SESSIONS}/sess/add_path", addresses[0])
    t.client.write(f"{second}/disconnect", "1")
    disks.let_go(t, disk)
    rnbd.reconnect(t, second)
    comes_back(t, held)


@case(timeout=300, module_sets=ONLY_OURS)
def test_c_server(t: Test) -> None:
    """The same with a C server, in both of its modes."""
    for mode in ("N", "Y"):
        for node, name in ((t.client, "ours"), (t.server, "c")):
            rnbd.use_set(node, name)
            t.defer(rnbd.use_set, node, t.modules)
        rnbd.load(t, rtrs_server=f"{rnbd.fewer_buffers(t)}always_invalidate={mode}")
        held, other, disk = pair(t)
        before = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
        disks.hold(t, disk)
        ends(t, held, REQUESTS)
        rnbd.works(t, other)
        disks.let_go(t, disk)
        comes_back(t, held)
        after = t.client.read(f"{rnbd.client_path(t, 'sess')}/stats/reconnects")
        t.equal(after, before, f"reconnects of the path, mode {mode}")
        held.unmap()
        other.unmap()


@case(module_sets=ONLY_OURS)
def test_values(t: Test) -> None:
    """The file takes whole numbers in its range, and nothing else."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.PLAIN)
    for value in ("1000", "86400000", "0"):
        t.client.write(f"{device.sysfs}/io_timeout_ms", value)
        t.equal(device.attribute("io_timeout_ms"), value, "value")
    for value in ("-1", "1", "999", "86400001", "x", ""):
        t.client.run(f"! echo '{value}' > {device.sysfs}/io_timeout_ms")
    t.equal(device.attribute("io_timeout_ms"), "0", "value after wrong ones")
