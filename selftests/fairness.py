# SPDX-License-Identifier: GPL-2.0
"""As many requests at a time as there may be: none is left behind by those that come later."""

from __future__ import annotations

import bisect
from typing import Any

from lab.selftest_case import case
from lab.selftest_case import Test
from lib import disks
from lib import rnbd
from lib.fio import fio_jobs
from lib.rnbd import Device

TOPOLOGY = "one"
KIB = 1 << 10
DEPTH = 512
LOG = "/tmp/fairness"


def most_overtaken(t: Test, device: Device, depth: int = DEPTH, **job: Any) -> int:
    """Keep ``depth`` requests of one CPU in flight; how many others ended at most while one request
    was on its way. Counted, so that it does not matter how fast the machine is."""
    requests = (4 if t.debug else 12) * depth
    [report] = fio_jobs(t.client, device.path,
                        [{"name": "full", "iodepth": depth, "cpus_allowed": 0, "number_ios": requests,
                          "write_lat_log": LOG, "log_offset": 0, **job}],
                        direct=1, ioengine="io_uring", size="64m", io_size="64g", timeout=160)
    t.equal(report.errors, 0, "errors")
    # Of each request when it ended, in ms, and how long it took, in ns.
    text = t.client.read(f"{LOG}_clat.1.log")
    ends = [(int(end) * 1e6, int(taken))
            for end, taken, *_ in (line.split(",") for line in text.splitlines())]
    t.check(len(ends) >= requests, f"{len(ends)} of {requests} requests are in the log")
    finished = sorted(end for end, _ in ends)
    most = 0
    for end, taken in ends:
        ended = bisect.bisect_left(finished, end) - bisect.bisect_right(finished, end - taken)
        most = max(most, ended)
    return most


@case(timeout=240, quick=())
def test_full_queue(t: Test) -> None:
    """Reads and writes that are more than the server's send queue holds are answered in turn."""
    rnbd.load(t)
    device = rnbd.map_device(t, disks.null_blk(t, memory_backed=0, size=128))
    for name, rw, size in (("reads of 8 KiB", "randread", 8 * KIB),
                           ("writes of 16 KiB", "randwrite", 16 * KIB)):
        most = most_overtaken(t, device, rw=rw, bs=size)
        t.say(f"{name}: {most} others ended while one was on its way")
        t.check(most < 3 * DEPTH, f"{name}: one request was overtaken by {most}")
    device.unmap()


@case(timeout=240)
def test_full_disk(t: Test) -> None:
    """A request that finds no room in its disk is not overtaken by later ones for ever."""
    rnbd.load(t)
    disk = disks.null_blk(t, memory_backed=0, size=128, completion_nsec=2000000, irqmode=2,
                          hw_queue_depth=4)
    device = rnbd.map_device(t, disk)
    depth = 64
    most = most_overtaken(t, device, depth, rw="randread", bs=4 * KIB)
    t.say(f"{most} others ended while one was on its way")
    t.check(most < 2 * depth, f"one request was overtaken by {most}")
    device.unmap()
