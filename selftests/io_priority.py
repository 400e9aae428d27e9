# SPDX-License-Identifier: GPL-2.0
"""IO priorities go with the requests; what is no priority goes nowhere."""

from __future__ import annotations

import errno
import re

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import guest_hostile_io
from lib import guest_io
from lib import rnbd

TOPOLOGY = "one"
EVENT = "/sys/kernel/tracing/events/block/block_rq_issue/enable"
TRACE = "/sys/kernel/tracing/trace"


def watch(t: Test) -> None:
    """Record requests to disks from here on."""
    t.server.run(f"echo 1 >{EVENT}")
    t.defer(t.server.run, f"echo 0 >{EVENT}; echo >{TRACE}")


def priorities(t: Test, disk: str, operation: str, sector: int) -> list[tuple[str, int]]:
    """The class and level of the requests for a sector of a disk."""
    number = t.server.sh(f"stat -c '%Hr,%Lr' {disk}")
    pattern = re.compile(rf"block_rq_issue: {number} {operation}\S* .* {sector} \+ \d+ "
                         r"(\w+),\d+,(\d+) \[")
    found = [pattern.search(line) for line in t.server.read(TRACE).splitlines()]
    return [(match[1], int(match[2])) for match in found if match]


def carries(t: Test, priorities_of: dict[str, tuple[str, int]], server: str = "") -> None:
    """Read and write with each of some `ionice` options; the priorities that the server's disk has to get. """
    rnbd.load(t, rnbd_server=server)
    device = rnbd.map_device(t, disks.PLAIN)
    t.server.run("echo mq-deadline >/sys/block/vdb/queue/scheduler")
    t.defer(t.server.run, "echo none >/sys/block/vdb/queue/scheduler")
    watch(t)
    for index, (ionice, wanted) in enumerate(priorities_of.items()):
        if index == 2:
            path = rnbd.client_path(t, "sess")
            t.client.write(f"{path}/disconnect", "1")
            t.server.wait_for(f"{rnbd.SERVER_DEVICES}/vdb", gone=True)
            rnbd.reconnect(t, path)
            t.client.wait_for(f"{device.sysfs}/state", matches="open")
        for operation, words in (("R", f"if={device.path} iflag=direct of=/dev/null skip="),
                                 ("W", f"of={device.path} oflag=direct if=/dev/zero seek=")):
            place = 16 + index
            t.client.run(f"ionice {ionice} dd {words}{place} bs=64k count=1 2>/dev/null")
            got = priorities(t, disks.PLAIN, operation, place * 128)
            t.check(got and set(got) == {wanted}, f"ionice {ionice}, {operation}: got {got}, expected {wanted}")


@case(kernels=("stock",))  # the debug kernel has no tracing
def test_carried(t: Test) -> None:
    """Class and level of a read and of a write reach the server's disk, also in the server's next session; the
    real-time class does if the server grants it."""
    carries(t, {"-c 1 -n 2": ("rt", 2), "-c 2 -n 6": ("be", 6), "-c 3": ("idle", 7), "-c 1 -n 0": ("rt", 0)},
            "realtime_priority=Y" if t.modules == "ours" else "")


@case(kernels=("stock",), module_sets=("ours",))  # the debug kernel has no tracing
def test_realtime(t: Test) -> None:
    """Without being granted, the real-time class becomes the highest level of the best-effort class."""
    carries(t, {"-c 1 -n 2": ("be", 0), "-c 1 -n 7": ("be", 0), "-c 2 -n 6": ("be", 6), "-c 3": ("idle", 7)})


# The C server passes any value on; mq-deadline takes the class as an index without looking.
@case(module_sets=("ours",))
def test_invalid(t: Test) -> None:
    """A class that does not exist is refused with EINVAL, and changes nothing."""
    rnbd.load(t, client=False)
    t.client.run("modprobe rdma_ucm")
    t.server.call(guest_io.write, path=disks.PLAIN, offset=0, length=4096, seed=1)
    for scheduler in ("mq-deadline", "none"):
        t.server.run(f"echo {scheduler} >/sys/block/vdb/queue/scheduler")
        results = t.client.call(guest_hostile_io.priorities, address=t.server.address,
                                device_path=disks.PLAIN,
                                values=[0, 0x2004, 0x6000, 0x7FFF, 0x8000, 0xA004, 0xE000, 0xFFFF])
        t.server.wait_for(f"{rnbd.SERVER_SESSIONS}/hostile", gone=True)
        for value, number in results.items():
            wanted = 0 if int(value) < 0x8000 else errno.EINVAL
            t.equal(number, wanted, f"answer to a write with priority {int(value):#x}, {scheduler}")
